// Announces a text to screen readers, and shows faults to everybody.

import { byId, setText, show } from "./dom.js";

let clearing = 0;

export function announce(text) {
  const place = byId("announcer");
  place.textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (place.textContent = ""), 10_000);
}

// Shows why an action failed, until the user dismisses it or acts again.
export function tellFault(text) {
  setText(byId("toast-text"), text);
  show(byId("toast"), text !== "");
}

export function beginFaults() {
  byId("toast-close").addEventListener("click", () => tellFault(""));
  document.addEventListener("click", (event) => event.target.closest("button, a") && tellFault(""), { capture: true });
}
