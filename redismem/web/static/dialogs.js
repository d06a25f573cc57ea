// Dialogs: confirm, ask for a text, ask for the key. Afterwards the focus returns to where it was.

import { forgetKey, keepKey } from "./api.js";
import { byId, el } from "./dom.js";
import { describeError } from "./words.js";

// Runs `act()` if the user confirms, and resolves to true if it succeeded. When it fails, the dialog stays open, says
// why, and offers to try again. `lines` say what will happen, `no` is the button that leaves all as it is.
export function confirmAndAct(title, lines, yes, act, no = "Keep it") {
  const dialog = byId("confirm");
  byId("confirm-title").textContent = title;
  byId("confirm-no").textContent = no;
  byId("confirm-text").replaceChildren(...lines.map((line) => el("p", { text: line, dir: "auto" })));
  const setActing = (isActing, word, fault = "") => {
    byId("confirm-yes").disabled = byId("confirm-no").disabled = isActing;
    byId("confirm-yes").textContent = word;
    byId("confirm-fault").textContent = fault;
  };
  setActing(false, yes);
  return new Promise((resolve) => {
    const close = (isDone) => {
      dialog.close();
      resolve(isDone);
    };
    byId("confirm-no").onclick = () => close(false);
    byId("confirm-yes").onclick = async () => {
      setActing(true, "One moment…");
      try {
        await act();
      } catch (error) {
        setActing(false, "Try again", error.code ? describeError(error) : "The server did not answer. It may have done this nevertheless.");
        return byId("confirm-yes").focus();
      }
      return close(true);
    };
    // `close` fires later, perhaps when the next dialog is already open; `cancel` does not.
    dialog.oncancel = (event) => {
      if (byId("confirm-yes").disabled) event.preventDefault();
      else resolve(false);
    };
    dialog.showModal();
    byId("confirm-no").focus();
  });
}

// Resolves to the text that the user enters, or to null if they cancel. `check(text)` returns why a text is refused, or "".
export function askForText(title, label, yes, maxLength, { value = "", no = "Put it back", isOptional = false, check = () => "" } = {}) {
  const dialog = byId("ask");
  const field = byId("ask-text");
  byId("ask-title").textContent = title;
  byId("ask-label").textContent = label;
  byId("ask-yes").textContent = yes;
  byId("ask-no").textContent = no;
  field.value = value;
  field.maxLength = maxLength;
  field.required = !isOptional;
  field.oninput = () => field.setCustomValidity(check(field.value.trim()));
  field.oninput();
  return new Promise((resolve) => {
    const answer = (text) => {
      dialog.close();
      resolve(text);
    };
    byId("ask-form").onsubmit = (event) => {
      event.preventDefault();
      if (isOptional || field.value.trim()) answer(field.value.trim());
    };
    byId("ask-no").onclick = () => answer(null);
    dialog.oncancel = () => resolve(null);
    dialog.showModal();
    field.select();
  });
}

export function beginKeys() {
  const dialog = byId("key");
  document.addEventListener("key-needed", (event) => {
    byId("key-word").textContent = event.detail ? "This server does not know this key." : "";
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
