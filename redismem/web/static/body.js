// The body of a message in the chat: texts, tool calls and results to unfold, pictures.

import { contentsOf } from "./contents.js";
import { el, placeBefore, setText, show } from "./dom.js";
import { markdownOf } from "./markdown.js";
import { makePicture } from "./pictures.js";
import { indentJson, unescapeLetters } from "./pretty.js";
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
  const isMarkdown = message.role === "assistant" || message.role === "model";
  let shownChars = 0;
  let pictureCount = 0;
  return contentsOf(message).map((part) => {
    if (part.kind === "text") {
      const left = Math.max(0, SHOWN_CHARS - shownChars);
      shownChars += part.text.length;
      if (isMarkdown && part.text.length <= left) return el("div", { class: "text md", dir: "auto" }, ...markdownOf(part.text));
      return makeFolded(() => el("p", { class: "text", dir: "auto" }), part.text, left);
    }
    if (part.kind === "call") return makeFold("call", "Calls", part.name || "a tool", part.value);
    if (part.kind === "result") return makeFold(part.isError ? "result failed" : "result", part.isError ? "Error of" : "Result of", part.name || names.get(part.id) || "a tool", part.value);
    if (part.kind === "other") return makeFold("other", "Part", part.name, part.value);
    pictureCount += 1;
    return pictureCount > MOST_PICTURES ? el("p", { class: "word", text: "Another picture." }) : makePicture(part);
  });
}

// Returns the first `count` characters of a text, in a node that `make` returns, and a button for the next ones. Each
// click adds a node, since a browser orders the brackets of one block in the square of their number.
function makeFolded(make, text, count) {
  const folded = el("div");
  const button = el("button", { class: "quiet tiny", type: "button", text: `Show more of ${plural(text.length, "character")}` });
  let shownChars = 0;
  const add = (most) => {
    const end = most < text.length ? placeBefore(text, most) : text.length;
    const node = make();
    setText(node, text.slice(shownChars, end));
    button.before(node);
    shownChars = end;
    show(button, end < text.length);
  };
  button.addEventListener("click", () => add(shownChars + SHOWN_CHARS));
  folded.append(button);
  if (count > 0) add(count);
  return folded;
}

function makeFold(kind, word, name, value) {
  const raw = typeof value === "string" ? value : JSON.stringify(value);
  const brief = unescapeLetters(raw.slice(0, 4 * BRIEF_CHARS)).replace(/\s+/g, " ").slice(0, BRIEF_CHARS);
  const fold = el("details", { class: `fold ${kind}` }, el("summary", {}, `${word} `, el("code", { text: name.slice(0, 100) }), el("span", { class: "fold-brief", text: brief })));
  // Most folds are never opened.
  fold.addEventListener("toggle", () => fold.childElementCount === 1 && fold.append(makeFolded(() => el("pre", { class: "json", dir: "auto" }), indentJson(raw), SHOWN_CHARS)));
  return fold;
}
