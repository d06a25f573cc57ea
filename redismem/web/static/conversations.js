// The list of conversations: sorted by last activity, in pages, with a search by id.

import { ask } from "./api.js";
import { byId, el, reconcile, setText, show } from "./dom.js";
import { go, hrefOf } from "./place.js";
import { ago, describeError, plural, shortId } from "./words.js";

const PAGE_COUNT = 30;
const LOOK_MS = 5_000;
const TYPING_MS = 250;

export class Conversations {
  constructor() {
    this._current = null;
    this._rows = [];
    this._cursor = null;
    this._shownCount = PAGE_COUNT;
    this._searchText = "";
    this._fault = "";
    this._isRead = false;
    this._turn = 0;
  }

  begin() {
    const search = byId("search-text");
    let typing = 0;
    search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._search(search.value.trim()), TYPING_MS);
    });
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      const id = search.value.trim();
      if (id) go(this._rows.length === 1 ? this._rows[0].session_id : id);
    });
    byId("more").addEventListener("click", () => {
      this._shownCount += PAGE_COUNT;
      this.look();
    });
    setInterval(() => document.hidden || this.look(), LOOK_MS);
    return this.look();
  }

  setCurrent(sessionId) {
    this._current = sessionId;
    this._draw();
  }

  async _search(text) {
    this._searchText = text;
    this._shownCount = PAGE_COUNT;
    await this.look();
  }

  // Reads the list again. If several requests overlap, only the newest one counts.
  async look() {
    const turn = ++this._turn;
    const query = new URLSearchParams({ limit: Math.min(this._shownCount, 1000), newest: true });
    if (this._searchText) query.set("contains", this._searchText);
    try {
      const page = await ask("GET", `/v1/sessions?${query}`);
      if (turn !== this._turn) return;
      this._rows = page.sessions;
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
    show(byId("more"), this._cursor !== null && this._rows.length >= this._shownCount);
    const word = byId("conversations-word");
    setText(word, this._fault || this._emptyWord());
    show(word, word.textContent !== "");
  }

  _emptyWord() {
    if (this._rows.length) return this._searchText ? `${plural(this._rows.length, "conversation")} with a matching id.` : "";
    if (this._searchText) return "No conversation has a matching id. Press Enter to open one with exactly this id.";
    return "No conversations yet. Send a message to begin one.";
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
      el("span", { class: "conversation-more" }, el("span", { class: "conversation-id" }), el("time")),
    ),
  );
}

function update(node, row, current) {
  const link = node.firstElementChild;
  if (row.session_id === current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
  setText(link.querySelector(".conversation-text"), row.newest?.text || "No text");
  link.querySelector(".conversation-text").classList.toggle("none", !row.newest?.text);
  setText(link.querySelector(".conversation-id"), shortId(row.session_id));
  link.title = row.session_id;
  const time = link.querySelector("time");
  time.dateTime = new Date(row.active_ms).toISOString();
  setText(time, ago(row.active_ms));
}
