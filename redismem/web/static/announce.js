// Announces a text to screen readers.

import { byId } from "./dom.js";

let clearing = 0;

export function announce(text) {
  const place = byId("announcer");
  place.textContent = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => (place.textContent = ""), 10_000);
}
