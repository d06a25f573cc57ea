// On a phone, one panel is shown at a time; the buttons at the bottom choose it.

import { byId } from "./dom.js";

export function showPane(name) {
  document.body.dataset.pane = name;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

const KEY = "redismem.folded";

// On a wide screen, the panel with the model's input folds away.
function fold(isFolded) {
  document.body.dataset.folded = String(isFolded);
  byId("fold").setAttribute("aria-expanded", String(!isFolded));
  if (isFolded) localStorage.setItem(KEY, "yes");
  else localStorage.removeItem(KEY);
}

export function beginPanes() {
  showPane("chat");
  fold(localStorage.getItem(KEY) !== null);
  byId("fold").addEventListener("click", () => fold(document.body.dataset.folded !== "true"));
  byId("conversation-list").addEventListener("click", (event) => event.target.closest("a") && showPane("chat"));
  for (const button of document.querySelectorAll(".tabs button")) {
    button.addEventListener("click", () => showPane(button.dataset.pane));
  }
}
