// The state of the connection to the server and its memory.

import { byId, setText, show } from "./dom.js";
import { UNREACHABLE } from "./words.js";

const TEXTS = {
  well: ["Connected", ""],
  connecting: ["Connecting", ""],
  away: [
    "Memory unreachable",
    "The memory is unreachable right now. You can go on: answers are based on your last message only. Messages that " +
      "are not stored are marked, so that you can send them again.",
  ],
  lost: ["No connection", UNREACHABLE],
};

let now = "";

export function tellHealth(state) {
  if (state === now) return;
  now = state;
  const [word, more] = TEXTS[state];
  document.body.dataset.health = state;
  setText(byId("health-text"), word);
  setText(byId("banner"), more);
  show(byId("banner"), more !== "");
}
