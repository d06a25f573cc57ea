// What could not be read and lies in quarantine: listed, shown, restored and dropped.

import { announce } from "./announce.js";
import { ask } from "./api.js";
import { check, findingOf, whyUnknown } from "./checkup.js";
import { confirmAndAct } from "./dialogs.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { ago, capitalize, describeError, formatSpan, formatTime, plural, textOf } from "./words.js";

const PAGE_COUNT = 50;
const WORDS = { messages: "message", state: "field", originals: "original", record: "field", order: "member" };

let entries = [];
let cursor = null;
let nowMs = 0;
let examinedMs = 0;
let parts = new Map();

const keyOf = ({ kind, id, put_ms: putMs }) => `${kind} ${putMs} ${id}`;
const named = ({ kind, id, put_ms: putMs }) => ({ kind, id, put_ms: putMs });

export function beginQuarantine() {
  byId("more-quarantined").addEventListener("click", () => read(cursor));
}

// Reads the list whenever the doctor has searched for copies: the search scans keys, so it is not read more often.
export function drawQuarantine({ document, error }) {
  const why = error ? describeError(error) : whyUnknown({ document });
  const checkedMs = why ? 0 : (findingOf(document, "quarantine")?.checked_ms ?? 0);
  if (why) draw([], null, `Not known: ${why}`);
  else if (checkedMs !== examinedMs) read(null);
  examinedMs = checkedMs;
}

async function read(from) {
  try {
    const page = await ask("GET", `/v1/quarantine?limit=${PAGE_COUNT}${from === null ? "" : `&cursor=${from}`}`);
    nowMs = page.now_ms;
    draw(from === null ? page.entries : [...entries, ...page.entries], page.cursor, "");
  } catch (error) {
    draw([], null, `The list cannot be read: ${describeError(error)}`);
  }
}

function draw(newEntries, newCursor, word) {
  entries = newEntries;
  cursor = newCursor;
  const keys = new Set(entries.map(keyOf));
  parts = new Map([...parts].filter(([key]) => keys.has(key)));
  setText(byId("quarantine-count"), word ? "" : `${entries.length}${cursor === null ? "" : "+"}`);
  setText(byId("quarantine-word"), word);
  show(byId("quarantine-word"), word !== "");
  show(byId("more-quarantined"), cursor !== null);
  reconcile(byId("quarantine"), entries, keyOf, make, update);
}

function make(entry) {
  const fold = el("details", { class: "fold copy-fold" }, el("summary", { text: "Show" }), el("div", { class: "copy-parts" }));
  fold.addEventListener("toggle", () => fold.open && showParts(entry, fold.lastElementChild));
  const button = (word, act) => el("button", { type: "button", class: "quiet small", text: word, "aria-label": `${word} ${entry.id}`, onclick: () => act(entry) });
  return el(
    "li",
    {},
    el("div", { class: "copy-head" }, el("strong", { class: "dead-id", dir: "auto" }), el("span", { class: "chip" }), el("span", { class: "copy-buttons" }, button("Restore…", restore), button("Drop…", drop))),
    el("p", { class: "word" }),
    fold,
  );
}

function update(node, entry) {
  const [head, more] = node.children;
  setText(head.children[0], entry.id);
  setText(head.children[1], entry.kind);
  setText(more, `${capitalize(ago(entry.put_ms, nowMs))}, ${formatTime(entry.put_ms)} · ${holds(entry)} · ${expiry(entry)} · ${entry.log} in the logs`);
}

const holds = ({ keys }) => keys.map((key) => (key.entry_count < 0 ? `${key.name} is a ${key.type}` : plural(key.entry_count, WORDS[key.name] ?? "entry"))).join(", ");

function expiry({ keys }) {
  const ends = keys.map((key) => key.expires_ms).filter((ms) => ms >= 0);
  return ends.length ? `expires in ${formatSpan(Math.max(0, Math.min(...ends) - nowMs))}` : "never expires";
}

async function partsOf(entry) {
  const read = await ask("POST", "/v1/quarantine/show", { body: named(entry) });
  parts.set(keyOf(entry), read);
  return read;
}

async function showParts(entry, place) {
  place.replaceChildren(el("p", { class: "word", text: "Reading…" }));
  try {
    place.replaceChildren(...linesOf(await partsOf(entry)));
  } catch (error) {
    place.replaceChildren(el("p", { class: "fault", text: describeError(error) }));
  }
}

function linesOf(read) {
  const lines = read.faults.map((fault) => el("p", { class: "fault", dir: "auto", text: fault }));
  if (!read.faults.length) lines.push(el("p", { class: "word", text: "It has no faults: a restoration brings all of it back." }));
  if (read.kind === "record") return lines;
  const counts = `${plural(read.messages_count, "message")} and ${plural(read.summaries_count, "summary", "summaries")} can be read.`;
  lines.push(el("p", { class: "word", text: counts }));
  if (read.messages === null) return [...lines, el("p", { class: "word", text: "Your key may not read their texts: this needs the scope read." })];
  const rows = read.messages.map((each) => el("li", {}, el("span", { class: "line-seq", text: `#${each.seq}` }), el("span", { class: "line-role", text: each.message.role ?? "" }), el("span", { class: "copy-text", dir: "auto", text: textOf(each.message).slice(0, 400) })));
  return [...lines, el("ol", { class: "copy-lines" }, ...rows)];
}

async function restore(entry) {
  const read = await partsOf(entry).catch((error) => ({ error }));
  if (read.error) return tellOnly(`Restore ${entry.id}?`, describeError(read.error));
  if (!read.is_readable) return tellOnly(`Nothing of ${entry.id} can be restored`, `No part of it can be read: ${read.faults.join("; ")}.`);
  const what = entry.kind === "record" ? "The record comes back with what can be read." : `${plural(read.messages_count, "message")} and ${plural(read.summaries_count, "summary", "summaries")} come back.`;
  const lines = [what];
  if (read.faults.length) lines.push(`It has faults: ${read.faults.join("; ")}. Only the readable part comes back; the rest stays in quarantine.`);
  if (read.is_live) lines.push(`A live ${entry.kind} has this id: it goes into quarantine instead.`);
  if (read.has_lost_owner) lines.push("Its owner is unknown: forgetting a person will not find it.");
  const body = { ...named(entry), salvage: read.faults.length > 0, swap: read.is_live };
  return act(`Restore ${entry.id}?`, lines, "Restore it", "/v1/quarantine/restore", body, `${entry.id} is restored.`);
}

const drop = (entry) =>
  act(`Drop ${entry.id} from quarantine?`, [`${capitalize(holds(entry))} will be deleted for good. This cannot be undone.`], "Drop it", "/v1/quarantine/drop", named(entry), `${entry.id} is dropped.`);

async function act(title, lines, yes, path, body, done) {
  if (!(await confirmAndAct(title, lines, yes, () => ask("POST", path, { body }), "Leave it there"))) return;
  announce(done);
  byId("quarantine-title").tabIndex = -1;
  byId("quarantine-title").focus();
  await check({ again: true });
}

// Says why there is nothing to confirm.
const tellOnly = (title, why) => confirmAndAct(title, [why], "Look again", () => check({ again: true }), "Leave it");
