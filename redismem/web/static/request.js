// The dialog with the request that a model gets: the exact JSON for each provider, to copy.

import { open, sessionPath } from "./api.js";
import { byId, setText, show } from "./dom.js";
import { copy } from "./thread.js";
import { describeError, formatBytes } from "./words.js";

// More text than this would make the browser slow. Copying takes all of it.
const SHOWN_CHARS = 100_000;
const CALLS = { openai: "to_openai()", anthropic: "to_anthropic()", gemini: "to_gemini()" };

let shown = null;
let text = "";
let reading = new AbortController();

const chosenFormat = () => new FormData(byId("request-form")).get("format");

export function beginRequest() {
  byId("request-form").addEventListener("change", read);
  byId("request-again").addEventListener("click", read);
  byId("request-copy").addEventListener("click", async () => {
    setText(byId("request-word"), (await copy(text, "The request")) ? "Copied." : "Copying failed: the browser does not allow it here.");
  });
  byId("request-close").addEventListener("click", () => byId("request").close());
  // A closed dialog keeps no text, which may be cleared meanwhile.
  byId("request").addEventListener("close", () => {
    reading.abort();
    shown = null;
    draw("");
  });
}

export function openRequest(conversation) {
  shown = { sessionId: conversation.sessionId, epoch: conversation.context.epoch };
  byId("request").showModal();
  read();
}

// Closes the dialog when the conversation in it was cleared or left.
export function drawRequest(conversation) {
  if (shown && (conversation.sessionId !== shown.sessionId || conversation.context?.epoch !== shown.epoch)) byId("request").close();
}

async function read() {
  reading.abort();
  reading = new AbortController();
  const { signal } = reading;
  const format = chosenFormat();
  byId("request").setAttribute("aria-busy", "true");
  setText(byId("request-word"), "Reading…");
  setFailed(false);
  try {
    // The text is shown as it came: JSON.parse would round long numbers.
    const response = await open("GET", sessionPath(shown.sessionId, `/context/request?format=${format}`), { signal });
    const newText = await response.text();
    if (signal.aborted) return;
    draw(newText);
    const rest = text.length > SHOWN_CHARS ? " Only the beginning is shown; Copy takes all of it." : "";
    setText(byId("request-word"), `${formatBytes(new Blob([text]).size)}, as context.${CALLS[format]} returns it.${rest}`);
  } catch (error) {
    if (signal.aborted) return;
    draw("");
    setText(byId("request-word"), describeError(error));
    setFailed(true);
  }
  byId("request").removeAttribute("aria-busy");
}

function setFailed(isFailed) {
  show(byId("request-again"), isFailed);
  show(byId("request-text"), !isFailed);
  byId("request-word").classList.toggle("fault", isFailed);
}

function draw(newText) {
  text = newText;
  setText(byId("request-text"), text.slice(0, SHOWN_CHARS));
  byId("request-copy").disabled = text === "";
}
