// The list of dead sessions: the reason, the time, and a button to retry.

import { announce, tellFault } from "./announce.js";
import { ask } from "./api.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { hrefOf } from "./place.js";
import { ago, describeError, plural, shortId } from "./words.js";

let shown = [];
let lookAgain = () => {};

export function beginDead(look) {
  lookAgain = look;
  byId("retry-all").addEventListener("click", () => retry(shown.map((each) => each.session_id)));
}

async function retry(ids) {
  try {
    const { taken } = await ask("POST", "/v1/dead/retry", { body: { session_ids: ids } });
    announce(`${plural(taken.length, "session")} will be retried.`);
    byId("dead-title").tabIndex = -1;
    byId("dead-title").focus();
  } catch (error) {
    tellFault(describeError(error));
  }
  await lookAgain();
}

export function drawDead({ count, sessions, now_ms: nowMs }, overdueCount) {
  shown = sessions;
  setText(byId("dead-count"), count);
  const none = overdueCount ? `None. ${plural(overdueCount, "session")} still due for a summary.` : "None. Every due summary has been written or is in progress.";
  const word = count ? "These sessions could not be summarised. Nothing is lost: their messages are still used in full." : none;
  setText(byId("dead-word"), word);
  show(byId("retry-all"), sessions.length > 1);
  reconcile(byId("dead"), sessions, (each) => each.session_id, make, (node, each) => {
    const [link, why, button] = node.children;
    setText(link, shortId(each.session_id));
    link.title = each.session_id;
    const reason = each.failure || (each.state === "live" ? "no reason was stored" : `it is ${each.state}`);
    const attempts = each.attempts ? `, after ${plural(each.attempts, "attempt")}` : "";
    setText(why, `${reason}${attempts}, ${ago(each.died_ms, nowMs)}`);
    button.setAttribute("aria-label", `Retry ${each.session_id}`);
  });
}

const make = (each) =>
  el(
    "li",
    {},
    el("a", { href: hrefOf(each.session_id), class: "dead-id" }),
    el("span", { class: "dead-why", dir: "auto" }),
    el("button", { type: "button", class: "quiet small", text: "Retry", onclick: () => retry([each.session_id]) }),
  );
