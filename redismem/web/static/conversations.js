// The list of conversations: sorted by last activity, in pages, with a search by id, words, time and failing summaries.

import { ask } from "./api.js";
import { onChecked } from "./checkup.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { go, hrefOf } from "./place.js";
import { wordOfRow } from "./sick.js";
import { ago, describeError, plural, shortId } from "./words.js";

const PAGE_COUNT = 30;
const LOOK_MS = 5_000;
const TYPING_MS = 250;

const HOUR_MS = 3_600_000;
// The choices of time, as conditions of a search at a given moment.
const TIMES = {
  hour: (nowMs) => ({ active_since: timeAt(nowMs - HOUR_MS) }),
  day: (nowMs) => ({ active_since: timeAt(nowMs - 24 * HOUR_MS) }),
  week: (nowMs) => ({ active_since: timeAt(nowMs - 7 * 24 * HOUR_MS) }),
  older: (nowMs) => ({ active_before: timeAt(nowMs - 24 * HOUR_MS) }),
};

const timeAt = (ms) => new Date(ms).toISOString();

export class Conversations {
  constructor() {
    this._current = null;
    this._rows = [];
    this._cursor = null;
    this._shownCount = PAGE_COUNT;
    // The conditions of a search; null for the plain list, which is read again and again.
    this._conditions = null;
    this._fault = "";
    this._isRead = false;
    this._turn = 0;
  }

  begin() {
    const field = byId("search-text");
    let typing = 0;
    field.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._search(), TYPING_MS);
    });
    byId("filters").addEventListener("change", () => this._search());
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      const id = field.value.trim();
      if (id && this._rows.length === 1) go(this._rows[0].session_id, { seq: this._rows[0].match?.seq });
      else if (id && byId("search-in").value === "ids") go(id);
    });
    byId("more").addEventListener("click", () => {
      this._shownCount += PAGE_COUNT;
      if (this._conditions) this._searchOn();
      else this.look();
    });
    setInterval(() => document.hidden || this._conditions || this.look(), LOOK_MS);
    onChecked(() => this._draw());
    return this.look();
  }

  setCurrent(sessionId) {
    this._current = sessionId;
    this._draw();
  }

  // Drops the row of a conversation that was cleared, with its text.
  forget(sessionId) {
    this._rows = this._rows.filter((row) => row.session_id !== sessionId);
    this._draw();
  }

  async _search() {
    const text = byId("search-text").value.trim();
    const isInTexts = byId("search-in").value === "texts";
    const times = TIMES[byId("search-time").value]?.(Date.now()) ?? {};
    const conditions = { ...(text && { [isInTexts ? "text" : "contains"]: text }), ...times, ...(byId("search-failing").checked && { failing: true }) };
    setText(byId("search-label"), isInTexts ? "Search conversations by words in their messages" : "Search conversations by id");
    byId("search-text").placeholder = isInTexts ? "Search words" : "Search by id";
    this._conditions = Object.keys(conditions).length ? conditions : null;
    this._shownCount = PAGE_COUNT;
    if (!this._conditions) return this.look();
    this._rows = [];
    this._cursor = null;
    return this._searchOn();
  }

  // Adds the next matches of the search.
  _searchOn() {
    const body = { ...this._conditions, limit: PAGE_COUNT, newest: true, ...(this._cursor && { cursor: this._cursor }) };
    const before = this._rows;
    return this._read(ask("POST", "/v1/search", { body }), (rows) => [...before, ...rows]);
  }

  // Reads the list again.
  look() {
    if (this._conditions) return null;
    const query = new URLSearchParams({ limit: Math.min(this._shownCount, 1000), newest: true });
    return this._read(ask("GET", `/v1/sessions?${query}`), (rows) => rows);
  }

  // Shows what a request answers. If several requests overlap, only the newest one counts.
  async _read(asked, merge) {
    const turn = ++this._turn;
    byId("conversation-nav").setAttribute("aria-busy", String(!this._rows.length));
    try {
      const page = await asked;
      if (turn !== this._turn) return;
      this._rows = merge(page.sessions);
      this._cursor = page.cursor;
      this._fault = "";
      this._isRead = true;
    } catch (error) {
      if (turn !== this._turn) return;
      this._fault = describeError(error);
    }
    this._draw();
  }

  _draw() {
    byId("conversation-nav").setAttribute("aria-busy", String(!this._isRead && !this._fault));
    reconcile(byId("conversation-list"), this._rows, (row) => row.session_id, make, (node, row) => update(node, row, this._current));
    show(byId("more"), this._cursor !== null && (this._conditions !== null || this._rows.length >= this._shownCount));
    setText(byId("more"), this._conditions ? "Search older conversations" : "Show more");
    const word = byId("conversations-word");
    setText(word, this._fault || (this._isRead ? this._wordOfRows() : ""));
    show(word, word.textContent !== "");
  }

  _wordOfRows() {
    const { length } = this._rows;
    if (!this._conditions) return length ? "" : "No conversations yet. Send a message to begin one.";
    if (length) return `${plural(length, "conversation")} found${this._cursor === null ? "." : " so far."}`;
    if (this._cursor !== null) return "Nothing found in the newest conversations.";
    const isById = this._conditions.contains !== undefined;
    return isById ? "No conversation has a matching id. Press Enter to open one with exactly this id." : "No conversation matches.";
  }
}

function make(row) {
  return el(
    "li",
    {},
    el(
      "a",
      { href: hrefOf(row.session_id), class: "conversation" },
      el("span", { class: "conversation-text", dir: "auto" }),
      el("span", { class: "conversation-failing", hidden: true }),
      el("span", { class: "conversation-more" }, el("span", { class: "conversation-id" }), el("time")),
    ),
  );
}

function update(node, row, current) {
  const link = node.firstElementChild;
  if (row.session_id === current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  const preview = row.match ?? row.newest;
  link.href = hrefOf(row.session_id, row.match?.seq);
  setText(link.querySelector(".conversation-text"), preview?.text || "No text");
  link.querySelector(".conversation-text").classList.toggle("none", !preview?.text);
  setText(link.querySelector(".conversation-failing"), wordOfRow(row));
  show(link.querySelector(".conversation-failing"), wordOfRow(row) !== "");
  setText(link.querySelector(".conversation-id"), shortId(row.session_id));
  link.title = row.session_id;
  const time = link.querySelector("time");
  time.dateTime = new Date(row.active_ms).toISOString();
  setText(time, ago(row.active_ms));
}
