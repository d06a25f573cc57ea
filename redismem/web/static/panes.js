// On a phone, one panel is shown at a time; the buttons at the bottom choose it.

import { byId } from "./dom.js";

export function showPane(name) {
  document.body.dataset.pane = name;
  for (const button of document.querySelectorAll(".tabs button")) {
    if (button.dataset.pane === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

export function beginPanes() {
  showPane("chat");
  byId("conversation-list").addEventListener("click", (event) => event.target.closest("a") && showPane("chat"));
  for (const button of document.querySelectorAll(".tabs button")) {
    button.addEventListener("click", () => showPane(button.dataset.pane));
  }
}
