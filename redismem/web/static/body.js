// The body of a message in the chat: texts, tool calls and results to unfold, pictures.

import { contentsOf } from "./contents.js";
import { el } from "./dom.js";
import { markdownOf } from "./markdown.js";
import { makePicture } from "./pictures.js";
import { indentJson } from "./pretty.js";
import { plural } from "./words.js";

const SHOWN_CHARS = 20_000;
const BRIEF_CHARS = 80;
const MOST_PICTURES = 10;
const drawn = new WeakMap();

// Draws a message anew only if it has changed, so that opened parts stay open. `names` has the names of called tools.
export function drawBody(node, message, names) {
  const before = drawn.get(node);
  if (before?.message === message) return;
  const json = JSON.stringify(message);
  if (before?.json !== json) node.replaceChildren(...partsOf(message, names));
  drawn.set(node, { message, json });
}

function partsOf(message, names) {
  const makeText = message.role === "assistant" || message.role === "model" ? makeMarkdown : makePlain;
  let pictureCount = 0;
  return contentsOf(message).map((part) => {
    if (part.kind === "text") return makeText(part.text);
    if (part.kind === "call") return makeFold("call", "Calls", part.name || "a tool", part.value);
    if (part.kind === "result") return makeFold(part.isError ? "result failed" : "result", part.isError ? "Error of" : "Result of", part.name || names.get(part.id) || "a tool", part.value);
    if (part.kind === "other") return makeFold("other", "Part", part.name, part.value);
    pictureCount += 1;
    return pictureCount > MOST_PICTURES ? el("p", { class: "word", text: "Another picture." }) : makePicture(part);
  });
}

const makeMarkdown = (text) => (text.length > SHOWN_CHARS ? makePlain(text) : el("div", { class: "text md", dir: "auto" }, ...markdownOf(text)));

function makePlain(text) {
  return el("div", {}, ...shortened(el("p", { class: "text", dir: "auto" }), text));
}

// Returns the node with the beginning of the text and, if there is more, a button that shows all.
function shortened(node, text) {
  node.textContent = text.slice(0, SHOWN_CHARS);
  if (text.length <= SHOWN_CHARS) return [node];
  const button = el("button", { class: "quiet tiny", type: "button", text: `Show all ${plural(text.length, "character")}` });
  button.addEventListener("click", () => {
    node.textContent = text;
    button.remove();
  });
  return [node, button];
}

function makeFold(kind, word, name, value) {
  const raw = typeof value === "string" ? value : JSON.stringify(value);
  const brief = raw.slice(0, 4 * BRIEF_CHARS).replace(/\s+/g, " ").slice(0, BRIEF_CHARS);
  const fold = el("details", { class: `fold ${kind}` }, el("summary", {}, `${word} `, el("code", { text: name.slice(0, 100) }), el("span", { class: "fold-brief", text: brief })));
  // Most folds are never opened.
  fold.addEventListener("toggle", () => fold.childElementCount === 1 && fold.append(...shortened(el("pre", { class: "json", dir: "auto" }), indentJson(raw))));
  return fold;
}
