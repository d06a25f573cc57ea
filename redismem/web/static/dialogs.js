// Questions: whether to clear, for a reason, and for the key. The element that had the focus gets it back.

import { forgetKey, keepKey } from "./api.js";
import { byId, el } from "./dom.js";

// True if somebody says yes. `lines`: what will happen.
export function confirmed(title, lines, yes) {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-yes").textContent = yes;
  byId("confirm-text").replaceChildren(...lines.map((line) => el("p", { text: line, dir: "auto" })));
  return new Promise((resolve) => {
    const answer = (isYes) => () => {
      dialog.close();
      resolve(isYes);
    };
    byId("confirm-no").onclick = answer(false);
    byId("confirm-yes").onclick = answer(true);
    // Not `close`: that comes later, perhaps when the next question is open already.
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
    byId("confirm-no").focus();
  });
}

// What somebody writes; null if they would rather not.
export function asked(title, label, yes, maxLength) {
  const dialog = byId("ask");
  const field = byId("ask-text");
  byId("ask-title").textContent = title;
  byId("ask-label").textContent = label;
  byId("ask-yes").textContent = yes;
  field.value = "";
  field.maxLength = maxLength;
  return new Promise((resolve) => {
    const answer = (text) => {
      dialog.close();
      resolve(text);
    };
    byId("ask-form").onsubmit = (event) => {
      event.preventDefault();
      if (field.value.trim()) answer(field.value.trim());
    };
    byId("ask-no").onclick = () => answer(null);
    dialog.oncancel = () => resolve(null);
    dialog.showModal();
    field.focus();
  });
}

export function beginKeys() {
  const dialog = byId("key");
  document.addEventListener("key-needed", (event) => {
    byId("key-word").textContent = event.detail ? "This key is not known here." : "";
    forgetKey();
    if (!dialog.open) dialog.showModal();
    byId("key-text").focus();
  });
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey(byId("key-text").value.trim());
    location.reload();
  });
  byId("forget-key").addEventListener("click", () => {
    forgetKey();
    location.reload();
  });
}
