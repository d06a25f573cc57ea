// The list of dead sessions: the kind of failure, its reason, what to do, and a button to retry.

import { announce, tellFault } from "./announce.js";
import { ask } from "./api.js";
import { check, whyUnknown } from "./checkup.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { hrefOf } from "./place.js";
import { ago, capitalize, describeError, formatCount, plural, shortId } from "./words.js";

const SHOWN_COUNT = 50;
let shown = [];
let turn = 0;

export function beginDead() {
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
  await check({ again: true });
}

// Draws what the checkup says of dead sessions, and then the list of them, if there are any.
export async function drawDead({ document, error }) {
  const mine = ++turn;
  const why = error ? describeError(error) : whyUnknown({ document });
  const count = why ? null : document.queues.queues.dead.count;
  setText(byId("dead-count"), count === null ? "" : formatCount(count));
  if (!count) return drawList([], count === null ? `Not known: ${why}` : "");
  try {
    const { sessions, now_ms: nowMs } = await ask("GET", `/v1/dead?limit=${SHOWN_COUNT}`);
    if (mine === turn) drawList(sessions, wordOf(sessions.length, count), nowMs);
  } catch (failure) {
    if (mine === turn) drawList([], `The list cannot be read: ${describeError(failure)}`);
  }
}

function wordOf(listed, count) {
  const part = listed < count ? ` The ${formatCount(listed)} that have been dead longest are listed.` : "";
  return `Nothing is lost: their messages are still used in full.${part}`;
}

function drawList(sessions, word, nowMs) {
  shown = sessions;
  setText(byId("dead-word"), word);
  show(byId("dead-word"), word !== "");
  show(byId("retry-all"), sessions.length > 1);
  setText(byId("retry-all"), sessions.length < SHOWN_COUNT ? "Retry all" : "Retry these");
  reconcile(byId("dead"), sessions, (each) => each.session_id, make, (node, each) => {
    const [link, why, button] = node.children;
    setText(link, shortId(each.session_id));
    link.title = each.session_id;
    const [kind, more, advice] = why.children;
    const isLive = each.state === "live";
    const attempts = each.attempts ? `, after ${plural(each.attempts, "attempt")}` : "";
    setText(kind, capitalize(isLive ? each.kind : `it is ${each.state}`));
    setText(more, `${isLive ? each.failure || "no reason recorded" : "dead"}${attempts}, ${ago(each.died_ms, nowMs)}`);
    setText(advice, isLive ? each.advice : "");
    button.setAttribute("aria-label", `Retry ${each.session_id}`);
  });
}

const make = (each) =>
  el(
    "li",
    {},
    el("a", { href: hrefOf(each.session_id), class: "dead-id" }),
    el("p", { class: "dead-why", dir: "auto" }, el("strong"), el("span"), el("span")),
    el("button", { type: "button", class: "quiet small", text: "Retry", onclick: () => retry([each.session_id]) }),
  );
