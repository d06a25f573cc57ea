// Dead sessions: why, since when, and another try.

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { byId, el, keyed, setText, show } from "./dom.js";
import { hrefOf } from "./place.js";
import { ago, many, shortId, wordsOf } from "./words.js";

let shown = [];
let lookAgain = () => {};

export function beginDead(look) {
  lookAgain = look;
  byId("retry-all").addEventListener("click", () => retry(shown.map((each) => each.session_id)));
}

async function retry(ids) {
  try {
    const { taken } = await ask("POST", "/v1/dead/retry", { body: { session_ids: ids } });
    announce(`${many(taken.length, "session")} will be tried again.`);
    byId("dead-title").tabIndex = -1;
    byId("dead-title").focus();
  } catch (error) {
    announce(wordsOf(error));
    setText(byId("dead-word"), wordsOf(error));
  }
  await lookAgain();
}

export function drawDead({ count, sessions, now_ms: nowMs }) {
  shown = sessions;
  setText(byId("dead-count"), count);
  const word = count
    ? "Nobody could summarise these. Nothing of them is lost, and all messages are still used as they are."
    : "None. Every summary that was due has been written, or is being tried.";
  setText(byId("dead-word"), word);
  show(byId("retry-all"), sessions.length > 1);
  keyed(byId("dead"), sessions, (each) => each.session_id, make, (node, each) => {
    const [link, why, button] = node.children;
    setText(link, shortId(each.session_id));
    link.title = each.session_id;
    const reason = each.failure || (each.state === "live" ? "no reason was kept" : `it is ${each.state}`);
    const attempts = each.attempts ? `, after ${many(each.attempts, "attempt")}` : "";
    setText(why, `${reason}${attempts}, ${ago(each.died_ms, nowMs)}`);
    button.setAttribute("aria-label", `Try ${each.session_id} again`);
  });
}

const make = (each) =>
  el(
    "li",
    {},
    el("a", { href: hrefOf(each.session_id), class: "dead-id" }),
    el("span", { class: "dead-why", dir: "auto" }),
    el("button", { type: "button", class: "quiet small", text: "Try again", onclick: () => retry([each.session_id]) }),
  );
