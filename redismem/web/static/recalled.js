// What an answer remembered: messages that were recalled for it. Folded under the answer; each row opens its message.

import { ask, sessionPath } from "./api.js";
import { el, reconcile, setText } from "./dom.js";
import { goTo, hrefOf } from "./place.js";
import { describeError, formatDate, nameOf, plural, shortId, textOf } from "./words.js";

const MOST_ROWS = 100;
const MOST_SPAN = 100;
const WORDS_CHARS = 160;
const known = new WeakMap();

// Returns what a stream or a stored reply says of it as {rows, tokens, conversation}, or null if that is not readable:
// whoever appends a message chooses its metadata. The same for the same object, so that it is not drawn again.
export function recalledOf(told, conversation) {
  if (typeof told !== "object" || told === null) return null;
  if (!known.has(told)) known.set(told, read(told, conversation));
  return known.get(told);
}

function read({ seqs, days, sessions, tokens, unsearched }, conversation) {
  if (!Array.isArray(seqs) || seqs.length === 0 || !Array.isArray(days)) return null;
  const rows = seqs.slice(0, MOST_ROWS).map((seq, at) => ({ seq, day: String(days[at] ?? ""), sessionId: String(sessions?.[at] ?? conversation.sessionId) }));
  if (!rows.every(({ seq }) => Number.isSafeInteger(seq) && seq > 0)) return null;
  return { rows, tokens: Number(tokens) || 0, unsearched: Number(unsearched) || 0, conversation };
}

function makeFold() {
  const fold = el("details", { class: "fold recalled" }, el("summary", {}, el("span")), el("p", { class: "word" }), el("ol", { class: "recalled-rows" }));
  // Texts are read when they are shown, and forgotten when they are not: their messages may be cleared meanwhile.
  fold.addEventListener("toggle", () => (fold.open ? fill(fold) : fold.lastElementChild.replaceChildren()));
  return fold;
}

// Draws the fold before a node; none if the answer remembered nothing.
export function drawRecalled(next, recalled) {
  const before = next.previousElementSibling;
  const old = before.classList.contains("recalled") ? before : null;
  if (!recalled) return old?.remove();
  const fold = old ?? makeFold();
  if (!old) next.before(fold);
  fold.recalled = recalled;
  const { rows, tokens, unsearched } = recalled;
  const counts = [plural(rows.length, "message"), tokens && plural(tokens, "token"), unsearched && `${plural(unsearched, "earlier message")} not searched`];
  return setText(fold.firstElementChild.firstElementChild, `Remembered ${counts.filter(Boolean).join(", ")}`);
}

async function fill(fold) {
  const { recalled } = fold;
  const [, word, list] = fold.children;
  setText(word, "");
  draw(list, recalled, null);
  try {
    const messages = await readMessages(recalled);
    if (!fold.open || fold.recalled !== recalled) return;
    draw(list, recalled, messages);
    fold.scrollIntoView({ block: "nearest" });
  } catch (error) {
    setText(word, describeError(error));
  }
}

const keyOf = ({ sessionId, seq }) => `${seq}:${sessionId}`;

// `messages` is null until they are read.
function draw(list, { rows, conversation }, messages) {
  reconcile(list, rows, keyOf, makeRow, (node, row) => {
    const link = node.firstElementChild;
    const [day, who, text, place] = link.children;
    const message = messages?.get(keyOf(row))?.message;
    link.href = hrefOf(row.sessionId, row.seq);
    setText(day, formatDate(row.day));
    setText(who, message ? nameOf(message.role) : "");
    setText(text, message ? textOf(message).replace(/\s+/g, " ").slice(0, WORDS_CHARS) || "No text" : messages ? "Not stored any more" : "…");
    setText(place, row.sessionId === conversation.sessionId ? `#${row.seq}` : `in ${shortId(row.sessionId)} #${row.seq}`);
  });
}

function makeRow() {
  const part = (name, dir) => el("span", { class: `recalled-${name}`, dir });
  const link = el("a", { class: "recalled-row" }, part("day"), part("who"), part("text", "auto"), part("place"));
  // The address may name the message already.
  link.addEventListener("click", () => location.hash === link.getAttribute("href") && goTo(link.getAttribute("href"), { replace: true }));
  return el("li", {}, link);
}

// Returns the messages of the rows by key, as far as they are stored.
async function readMessages({ rows, conversation }) {
  const found = new Map();
  const others = [];
  for (const row of rows) {
    const loaded = row.sessionId === conversation.sessionId ? conversation.messages.get(row.seq) : undefined;
    if (loaded) found.set(keyOf(row), loaded);
    else others.push(row);
  }
  for (const { sessionId, first, last } of spansOf(others)) {
    const path = sessionPath(sessionId, `/messages?include_originals=true&limit=${last - first + 1}&before=${last + 1}`);
    const page = await ask("GET", path).catch((error) => {
      if (error.status !== 404 && error.status !== 403) throw error;
      return { messages: [] };
    });
    for (const message of page.messages) found.set(keyOf({ sessionId, seq: message.seq }), message);
  }
  return found;
}

// Groups rows that are near each other, each group for one request.
function spansOf(rows) {
  const spans = [];
  for (const { sessionId, seq } of [...rows].sort((a, b) => (a.sessionId === b.sessionId ? a.seq - b.seq : a.sessionId < b.sessionId ? -1 : 1))) {
    const last = spans.at(-1);
    if (last?.sessionId === sessionId && seq - last.first < MOST_SPAN) last.last = seq;
    else spans.push({ sessionId, first: seq, last: seq });
  }
  return spans;
}
