// The message field: sends, stops an answer, and shows which param the chat waits for.

import { byId, setText, show } from "./dom.js";

const MOST_ROWS_PX = 180;

// `onSend(text)` resolves to true if the text is accepted; otherwise the text stays in the field.
export function beginComposer(onSend, onStop) {
  const field = byId("message");
  const send = async () => {
    const text = field.value.trim();
    field.focus();
    if (!text || byId("send").ariaDisabled === "true") return;
    if (!(await onSend(text))) return;
    field.value = "";
    fit();
  };
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  document.addEventListener("keydown", (event) => {
    const isHere = event.target === document.body || event.target.closest(".pane.chat") !== null;
    if (event.key === "Escape" && !event.isComposing && isHere && !byId("stop").hidden) onStop();
  });
  field.addEventListener("input", fit);
  byId("stop").addEventListener("click", () => {
    onStop();
    field.focus();
  });
}

export const focusComposer = () => byId(byId("reading").hidden ? "message" : "write").focus();

// `isRunning` says that an answer may be stopped, `isBusy` that no message can be sent, `isAccepting` that the server
// has not accepted the text of the field yet. `waitingFor` is the param that the chat asks for, or null. `isSensitive`
// hides the typed text. Without a model, answers quote the memory.
export function drawComposer({ isRunning, isBusy, isAccepting, waitingFor, isSensitive, mayWrite, isWriting = true, hasModel = true }) {
  const isReading = mayWrite && !isWriting;
  show(byId("reading"), isReading);
  show(byId("composer-row"), !isReading);
  show(byId("composer-word"), !isReading);
  const hadFocus = document.activeElement === byId("stop");
  const mayStop = isRunning && mayWrite && isWriting;
  show(byId("stop"), mayStop);
  // A button that is `disabled` would take the focus from the field at the second click of a double click.
  byId("send").ariaDisabled = String(isBusy || !mayWrite);
  if (hadFocus && !mayStop) focusComposer();
  const waiting = byId("waiting");
  show(waiting, waitingFor !== null);
  setText(waiting, waitingFor === null ? "" : `Waiting for an answer: ${waitingFor}${isSensitive && !isReading ? ". What you type is hidden and not stored in the conversation." : ""}`);
  const field = byId("message");
  field.classList.toggle("masked", isSensitive);
  field.spellcheck = !isSensitive;
  field.disabled = !mayWrite;
  field.readOnly = isAccepting;
  const source = hasModel ? "" : " No model is set up: answers quote the memory.";
  const word = mayStop ? "An answer is being written. Esc stops it." : `Enter sends, Shift+Enter begins a new line.${source}`;
  setText(byId("composer-word"), mayWrite ? word : "Your key can only read here.");
}

function fit() {
  const field = byId("message");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, MOST_ROWS_PX)}px`;
}
