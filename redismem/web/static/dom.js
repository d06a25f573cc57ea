// Elements of the page. Text from users is inserted as text, never as markup.

export const byId = (id) => document.getElementById(id);

// Browsers lay out a run of letters that kern or join in the square of its length, and a <wbr> ends the run.
export const RUN_CHARS = 500;
// What belongs to the character before it: marks, joiners, skin tones, second halves of a pair.
const INNER = /^[\p{M}\p{Emoji_Modifier}\u200d\udc00-\udfff]/u;

// Returns the text as children of a node, with a <wbr> between runs.
function runsOf(text) {
  if (text.length <= RUN_CHARS) return [text];
  const runs = [];
  let from = 0;
  while (text.length - from > RUN_CHARS) {
    const end = placeBefore(text, from + RUN_CHARS);
    runs.push(text.slice(from, end), document.createElement("wbr"));
    from = end;
  }
  return [...runs, text.slice(from)];
}

// Returns a place where a text may be cut, at most RUN_CHARS / 2 before `most`: behind a space, or between characters.
export function placeBefore(text, most) {
  const least = most - RUN_CHARS / 2;
  for (let at = most; at > least; at -= 1) if (text[at - 1] === " ") return at;
  for (let at = most; at > least; at -= 1) {
    if (text[at - 1] !== "\u200d" && !INNER.test(String.fromCodePoint(text.codePointAt(at)))) return at;
  }
  return most;
}

export function el(tag, given = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.append(...runsOf(String(value)));
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (typeof child === "string") node.append(...runsOf(child));
    else if (child !== null && child !== undefined && child !== false) node.append(child);
  }
  return node;
}

export function setText(node, text) {
  const newText = String(text);
  if (node.textContent !== newText) node.replaceChildren(...runsOf(newText));
}

export function show(node, isShown) {
  node.hidden = !isShown;
}

// Makes the children of `parent` match the items, in order. Reuses the node of each key, so focus, selection and
// expanded texts survive. Of items with the same key, the first is shown.
export function reconcile(parent, items, keyOf, make, update) {
  const oldNodes = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const placed = new Set();
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (placed.has(key)) continue;
    placed.add(key);
    let node = oldNodes.get(key);
    if (node) oldNodes.delete(key);
    else {
      node = make(item);
      node.dataset.key = key;
    }
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
    update(node, item);
  }
  for (const node of oldNodes.values()) node.remove();
}
