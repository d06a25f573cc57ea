// The list of conversations: sorted by last activity, in pages, with a search by name, owner, words, time and failing
// summaries.

import { ask } from "./api.js";
import { onChecked } from "./checkup.js";
import { byId, setText, show } from "./dom.js";
import { drawRows, offerOwners, wordOfRows } from "./listing.js";
import { go } from "./place.js";
import { describeError } from "./words.js";

const PAGE_COUNT = 30;
const MORE_COUNT = 100;
const NAME_READS_COUNT = 5;
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

// True if a row comes before another in the list.
const isBefore = (row, other) => row.active_ms > other.active_ms || (row.active_ms === other.active_ms && row.session_id > other.session_id);

export class Conversations {
  // Calls `tell()` when the row of the open conversation has changed.
  constructor(tell) {
    this._tell = tell;
    this._current = null;
    this._told = undefined;
    this._rows = [];
    this._cursor = null;
    // The conditions of a search; null for the plain list, which is read again and again.
    this._conditions = null;
    // The owner whose conversations alone are listed; "" for those of all.
    this._owner = "";
    this._fault = "";
    this._isRead = false;
    this._turn = this._typing = 0;
    this._isReadingOn = false;
    // Behind the first page, one page at a time is read again: its cursor and its last row.
    this._again = null;
  }

  // `owner` is that of the key, which reaches no other owner's conversations; null if it has none.
  begin(owner) {
    for (const name of ["search-text", "search-owner"]) {
      byId(name).addEventListener("input", () => {
        clearTimeout(this._typing);
        this._typing = setTimeout(() => this._search(), TYPING_MS);
      });
    }
    show(byId("search-owner"), owner === null);
    byId("filters").addEventListener("change", ({ target }) => target.id === "search-owner" || this._search());
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this._open(byId("search-text").value.trim());
    });
    byId("more").addEventListener("click", () => this._readOn());
    const nav = byId("conversation-nav");
    nav.addEventListener("scroll", () => {
      const isNearEnd = nav.scrollTop > 0 && nav.scrollHeight - nav.scrollTop - nav.clientHeight < 400;
      if (isNearEnd && !this._conditions && this._cursor !== null) this._readOn();
    });
    setInterval(() => document.hidden || this._conditions || this.look(), LOOK_MS);
    onChecked(() => this._draw());
    return this.look();
  }

  setCurrent(sessionId) {
    this._current = sessionId;
    this._draw();
  }

  // Returns the row of a conversation, or undefined if the list does not show it.
  row(sessionId) {
    return this._rows.find((row) => row.session_id === sessionId);
  }

  // Drops the row of a conversation that was cleared, with its text.
  forget(sessionId) {
    this._rows = this._rows.filter((row) => row.session_id !== sessionId);
    this._draw();
  }

  // Opens the conversation with this id, or else the first that is found.
  async _open(text) {
    if (text === "") return;
    if (this._typing) await this._search();
    const row = this.row(text) ?? this._rows[0];
    if (row) go(row.session_id, { seq: row.match?.seq });
    else if (!this._fault && byId("search-in").value === "names") go(text);
  }

  async _search() {
    clearTimeout(this._typing);
    this._typing = 0;
    const text = byId("search-text").value.trim();
    const isInTexts = byId("search-in").value === "texts";
    const times = TIMES[byId("search-time").value]?.(Date.now()) ?? {};
    const conditions = {
      ...(text && { [isInTexts ? "text" : "name"]: text }),
      ...times,
      ...(byId("search-failing").checked && { failing: true }),
    };
    setText(byId("search-label"), isInTexts ? "Search conversations by words in their messages" : "Search conversations by title, owner or id");
    byId("search-text").placeholder = isInTexts ? "Search words" : "Search title, owner or id";
    this._conditions = Object.keys(conditions).length ? conditions : null;
    this._owner = byId("search-owner").value.trim();
    this._rows = [];
    this._cursor = this._again = null;
    this._isRead = this._isReadingOn = false;
    return this._conditions ? this._readOn() : this.look();
  }

  // Adds the next page.
  async _readOn() {
    if (this._isReadingOn) return;
    this._isReadingOn = true;
    const { _conditions: conditions, _owner: owner } = this;
    const isCurrent = () => conditions === this._conditions && owner === this._owner;
    const limit = this._cursor === null || conditions ? PAGE_COUNT : MORE_COUNT;
    const wantedCount = this._rows.length + 1;
    // A search by name goes on until it has found one: it looks at some thousand conversations in a second.
    for (let asked = 0; asked === 0 || (conditions?.name && asked < NAME_READS_COUNT && this._cursor !== null && this._rows.length < wantedCount); asked += 1) {
      await this._read({ limit, cursor: this._cursor }, (page) => this._append(page));
      if (!isCurrent()) return;
      if (this._fault) break;
    }
    this._isReadingOn = false;
  }

  _append(page) {
    const known = new Set(this._rows.map((row) => row.session_id));
    this._rows = [...this._rows, ...page.sessions.filter((row) => !known.has(row.session_id))];
    this._cursor = page.cursor;
  }

  // Reads the first page of the list again, and one of the pages behind it.
  async look() {
    if (this._conditions || this._isReadingOn) return;
    const isFirst = !this._isRead;
    await this._read({ limit: PAGE_COUNT, cursor: null }, (page) => {
      this._replace(page, null);
      if (isFirst || page.cursor === null || this._rows.length <= PAGE_COUNT) this._cursor = page.cursor;
      this._again ??= page.cursor && { cursor: page.cursor, last: page.sessions.at(-1) };
    });
    if (this._conditions || this._isReadingOn || !this._again || this._rows.length <= PAGE_COUNT) return;
    const { cursor, last } = this._again;
    await this._read({ limit: MORE_COUNT, cursor }, (page) => {
      this._replace(page, last);
      const end = page.sessions.at(-1);
      const isOver = !end || page.cursor === null || !this._rows.some((row) => isBefore(end, row));
      this._again = isOver ? null : { cursor: page.cursor, last: end };
    });
  }

  // Replaces the rows between `after`, null for the beginning, and the end of a page by those of the page.
  _replace(page, after) {
    const end = page.cursor === null ? null : page.sessions.at(-1);
    const fresh = new Set(page.sessions.map((row) => row.session_id));
    const isInside = (row) => (after === null || isBefore(after, row)) && (end === null || !isBefore(end, row));
    const kept = this._rows.filter((row) => !fresh.has(row.session_id) && !isInside(row));
    const known = new Map(this._rows.map((row) => [row.session_id, row]));
    // A row that is the same stays the same object, so that it is not drawn again.
    const rows = page.sessions.map((row) => (isSame(known.get(row.session_id), row) ? known.get(row.session_id) : row));
    this._rows = [...kept, ...rows].sort((a, b) => (isBefore(a, b) ? -1 : 1));
  }

  // Reads a page. If several reads overlap, only the newest one counts.
  async _read({ limit, cursor }, merge) {
    const turn = ++this._turn;
    byId("conversation-nav").setAttribute("aria-busy", String(!this._rows.length));
    try {
      const page = await this._ask(limit, cursor);
      if (turn !== this._turn) return;
      merge(page);
      this._fault = "";
      this._isRead = true;
    } catch (error) {
      if (turn !== this._turn) return;
      this._fault = describeError(error);
    }
    this._draw();
  }

  // Conditions are sent in a body, because servers on the way log addresses.
  _ask(limit, cursor) {
    const options = { limit, newest: true, ...(cursor && { cursor }) };
    const conditions = { ...this._conditions, ...(this._owner && { owner: this._owner }) };
    if (Object.keys(conditions).length) return ask("POST", "/v1/search", { body: { ...conditions, ...options } });
    return ask("GET", `/v1/sessions?${new URLSearchParams(options)}`);
  }

  _draw() {
    byId("conversation-nav").setAttribute("aria-busy", String(!this._isRead && !this._fault));
    drawRows(this._rows, this._current);
    const row = this.row(this._current);
    if (row !== this._told) this._tell();
    this._told = row;
    if (!this._owner) offerOwners(this._rows);
    show(byId("more"), this._cursor !== null);
    setText(byId("more"), this._conditions ? "Search older conversations" : "Show more");
    const word = byId("conversations-word");
    const conditions = this._conditions ?? (this._owner ? {} : null);
    setText(word, this._fault || (this._isRead ? wordOfRows(this._rows, conditions, this._cursor === null) : ""));
    show(word, word.textContent !== "");
  }
}

const isSame = (row, other) => row !== undefined && JSON.stringify(row) === JSON.stringify(other);
