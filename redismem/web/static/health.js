// Whether the server and its memory answer, in words.

import { byId, setText, show } from "./dom.js";
import { UNREACHABLE } from "./words.js";

const SAID = {
  well: ["Connected", ""],
  connecting: ["Connecting", ""],
  away: [
    "Memory away",
    "The memory cannot be reached just now. You can go on: the model then knows your last message alone, and what is " +
      "not kept is marked, so that you can send it again.",
  ],
  lost: ["No connection", UNREACHABLE],
};

let now = "";

export function tellHealth(state) {
  if (state === now) return;
  now = state;
  const [word, more] = SAID[state];
  document.body.dataset.health = state;
  setText(byId("health-text"), word);
  setText(byId("banner"), more);
  show(byId("banner"), more !== "");
}
