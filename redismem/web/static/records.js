// The conversations that agent frameworks keep in records: their list, and one of them in the thread, for reading.

import { ask } from "./api.js";
import { toolNames } from "./contents.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { tellHealth } from "./health.js";
import { makeRow } from "./listing.js";
import { hrefOfRecord } from "./place.js";
import { draw } from "./thread.js";
import { age, describeError, formatCount, shortId, textOf } from "./words.js";

const PAGE_COUNT = 30;
const MOST_PAGES = 10;
const HOUR_MS = 3_600_000;
const SPANS_MS = { hour: HOUR_MS, day: 24 * HOUR_MS, week: 7 * 24 * HOUR_MS };
const LIST_MS = 30_000;
const OPEN_MS = 10_000;
const FRAMEWORKS = {
  "claude-agent-sdk": "Claude Agent SDK", "google-adk": "Google ADK", langgraph: "LangGraph", "pydantic-ai": "Pydantic AI", strands: "Strands",
};
const WHO = { user: "User", assistant: "Assistant", system: "System", tool: "Tool" };

const nameOf = (kind) => FRAMEWORKS[kind] ?? "Unknown";

const keyOf = (row) => `${row.kind}/${row.id}`;

const pathOf = ({ kind, id }) => `/v1/records/${encodeURIComponent(kind)}/${encodeURIComponent(id)}`;

const askPage = (cursor, owner) => ask("GET", `/v1/records?${new URLSearchParams({ limit: PAGE_COUNT, ...(cursor && { cursor }), ...(owner && { owner }) })}`);

// Returns true if a row meets the filters of the list. Texts are not searched here.
function isWanted(row) {
  const isInTexts = byId("search-in").value === "texts";
  const words = byId("search-text").value.toLowerCase().split(/\s+/).filter(Boolean);
  const name = [row.title, row.name, row.id, row.owner].join(" ").toLowerCase();
  const spanMs = Date.now() - (row.updated_ms ?? 0);
  const time = byId("search-time").value;
  const isInTime = time === "older" ? spanMs > SPANS_MS.day : spanMs <= (SPANS_MS[time] ?? Infinity);
  return !(isInTexts && words.length) && words.every((word) => name.includes(word)) && isInTime && (!byId("search-failing").checked || row.fault !== null);
}

export class Records {
  // Calls `tell(name)` with the title of the open conversation, and `copy(text)` for a message.
  constructor(tell, copy) {
    this._tell = tell;
    this._copy = copy;
    this._rows = [];
    this._cursor = null;
    this._fault = this._owner = "";
    // The open conversation {kind, id}, what was read of it, and the error of its last read.
    this._current = null;
    this._document = null;
    this._error = null;
  }

  begin() {
    const details = byId("records");
    details.addEventListener("toggle", () => details.open && this.look());
    byId("more-records").addEventListener("click", () => this._read(this._cursor));
    // A folded list is read when it is unfolded; without rows there is nothing to unfold.
    setInterval(() => document.hidden || (!details.open && !details.hidden) || this.look(), LIST_MS);
    byId("filters").addEventListener("change", () => this._filter());
    byId("search-text").addEventListener("input", () => this._drawList());
    setInterval(() => document.hidden || this._current === null || this.refresh(), OPEN_MS);
    return this.look(byId("conversation-list").childElementCount === 0);
  }

  get current() {
    return this._current;
  }

  // The owner is a question to the server; all else is asked of the rows that were read.
  _filter() {
    const owner = byId("search-owner").value.trim();
    if (owner === this._owner) return this._drawList();
    this._owner = owner;
    this._rows = [];
    return this.look(owner !== "");
  }

  // Reads the list again, from its beginning. `opens` unfolds it if it has any row.
  async look(opens = false) {
    await this._read(null);
    if (opens && this._rows.length) byId("records").open = true;
  }

  async _read(cursor) {
    try {
      // Most records may be no conversations: then a page is empty, and has a cursor.
      const owner = this._owner;
      let page = await askPage(cursor, owner);
      for (let read = 1; read < MOST_PAGES && !page.records.length && page.cursor; read += 1) page = await askPage(page.cursor, owner);
      if (owner !== this._owner) return;
      const known = cursor ? this._rows : [];
      this._rows = [...known, ...page.records].sort((a, b) => (b.updated_ms ?? 0) - (a.updated_ms ?? 0));
      this._cursor = page.cursor;
      this._fault = "";
    } catch (error) {
      this._fault = describeError(error);
    }
    this._drawList();
  }

  _drawList() {
    const rows = this._rows.filter(isWanted);
    show(byId("records"), rows.length > 0 || this._cursor !== null);
    setText(byId("records-count"), `${formatCount(rows.length)}${this._cursor === null ? "" : " or more"}`);
    const current = this._current && keyOf(this._current);
    reconcile(byId("record-list"), rows, keyOf, () => makeRow(el("span", { class: "conversation-kind" })), (node, row) => updateRow(node.firstElementChild, row, keyOf(row) === current));
    show(byId("more-records"), this._cursor !== null);
    setText(byId("records-word"), this._fault);
    show(byId("records-word"), this._fault !== "");
  }

  // Opens a conversation in the thread.
  open(record) {
    const isOther = this._current === null || keyOf(this._current) !== keyOf(record);
    this._current = record;
    if (isOther) {
      this._document = this._error = null;
      byId("thread").replaceChildren();
    }
    byId("to-chat").href = hrefOfRecord(record);
    this._drawList();
    this._drawThread();
    return this.refresh();
  }

  // Leaves the thread to a conversation of the memory itself.
  close() {
    if (this._current === null) return;
    this._current = this._document = this._error = null;
    show(byId("record-word"), false);
    byId("thread").replaceChildren();
    this._drawList();
  }

  // Reads the open conversation again. What was removed is shown no more.
  async refresh() {
    const record = this._current;
    let found = null;
    let fault = null;
    try {
      found = await ask("GET", pathOf(record));
    } catch (error) {
      fault = error;
    }
    if (this._current !== record) return;
    const isAway = fault !== null && (fault.status === undefined || fault.status === 503 || fault.status === 429);
    tellHealth(!isAway ? "well" : fault.code === "store_unavailable" ? "away" : fault.status === undefined ? "lost" : "well");
    // While the memory does not answer, what was read stays.
    if (!isAway) this._document = found;
    this._error = isAway && this._document ? null : fault;
    this._drawThread();
  }

  _drawThread() {
    const found = this._document;
    const row = found ?? this._rows.find((each) => keyOf(each) === keyOf(this._current));
    const messages = found?.messages ?? [];
    const fault = this._error ? faultOf(this._error) : found && !messages.length ? { code: "record", title: found.fault ? capitalize(found.fault) : "It has no messages yet" } : null;
    const entries = messages.map(entryOf);
    if (found && messages.length && !found.is_whole) entries.unshift({ key: "earlier", kind: "divider", text: "Earlier messages are not shown here" });
    const act = (name, entry) => name === "copy" && this._copy(entry.text);
    draw(entries, { isLoaded: found !== null, fault, mayGoBack: false, act, names: toolNames(messages) });
    this._drawHead(row);
    this._tell(row?.title ?? row?.name ?? this._current.id);
  }

  // Says whose conversation it is, and why nobody can write in it here.
  _drawHead(row) {
    const { kind, id } = this._current;
    setText(byId("chat-title"), row?.title ?? row?.name ?? "Conversation");
    setText(byId("chat-owner"), row?.owner ?? "");
    show(byId("chat-owner"), Boolean(row?.owner));
    setText(byId("chat-id"), shortId(row?.name ?? id));
    byId("copy-id").title = id;
    show(byId("copy-id"), true);
    for (const name of ["rename", "clear", "show-request"]) byId(name).disabled = true;
    for (const name of ["given-body", "composer-row", "composer-word", "reading", "waiting", "stop"]) show(byId(name), false);
    setText(byId("record-word"), `A conversation of ${nameOf(kind)}, for reading: only the agent itself writes it, and would not know of a message from here.`);
    show(byId("record-word"), true);
  }
}

const capitalize = (text) => text[0].toUpperCase() + text.slice(1);

// The words for a damaged session say what its next message does; a record has none from here.
function faultOf(error) {
  if (error.code === "unreadable") return { code: "record", title: "The record is damaged. An operator finds more with redismem doctor --deep" };
  return error.code === "not_found" ? { code: "session_not_found" } : error;
}

const entryOf = ({ seq, time_ms: timeMs, message }) => ({
  key: `record:${seq}`,
  kind: "message",
  role: message.role,
  who: WHO[message.role] ?? "Message",
  text: textOf(message),
  message,
  timeMs,
  seq,
  isCovered: false,
  isPinned: false,
  state: "stored",
  turnId: null,
  notices: [],
  fault: "",
  again: "",
});

function updateRow(link, row, isCurrent) {
  const at = (name) => link.querySelector(`.conversation-${name}`);
  if (isCurrent) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  // Without a framework there is nothing to open.
  if (row.kind) link.href = hrefOfRecord(row);
  link.title = row.id;
  setText(at("title"), row.title ?? row.name);
  const fault = row.fault ? capitalize(row.fault) : "";
  const isDamaged = fault.startsWith("Damaged");
  const text = row.last_text === row.title ? "" : row.last_text;
  setText(at("text"), isDamaged ? "" : fault || text);
  show(at("text"), at("text").textContent !== "");
  setText(at("failing"), isDamaged ? fault : "");
  show(at("failing"), isDamaged);
  setText(at("kind"), nameOf(row.kind));
  setText(at("owner"), row.owner ?? "");
  show(at("owner"), row.owner !== null);
  setText(at("id"), shortId(row.name));
  const time = link.querySelector("time");
  if (row.updated_ms) time.dateTime = new Date(row.updated_ms).toISOString();
  setText(time, row.updated_ms ? age(row.updated_ms, Date.now()) : "");
}
