// A stored conversation. Watches it and reads it again after every change, by any tab or server.

import { ask, sessionPath } from "./api.js";
import { follow } from "./streams.js";
import { dayOf } from "./words.js";

const PAGE_COUNT = 200;
const LOAD_COUNT = 1_000;
const LOADS_COUNT = 10;
const DAY_LOADS_COUNT = 4;
const AGAIN_MS = 2_000;

export class Conversation {
  // Calls `tell()` after every change, and `tellHealth(state)` when the memory fails or recovers.
  constructor(sessionId, tell, tellHealth) {
    this.sessionId = sessionId;
    this.context = null;
    this.numbers = null;
    this.messages = new Map();
    this._ordered = null;
    this.earlier = null;
    this.isLoaded = false;
    this.fault = null;
    this._tell = tell;
    this._tellHealth = tellHealth;
    this._reading = null;
    this._isStale = false;
    this._isClosed = false;
    this._again = 0;
  }

  open() {
    const stop = follow(
      sessionPath(this.sessionId, "/events"),
      (event) => this._onEvent(event),
      (error) => this._onLost(error),
    );
    this._stop = stop;
    return this;
  }

  close() {
    this._isClosed = true;
    this._stop?.();
  }

  get exists() {
    return this.context !== null;
  }

  // Returns the messages, oldest first.
  inOrder() {
    this._ordered ??= [...this.messages.values()].sort((a, b) => a.seq - b.seq);
    return this._ordered;
  }

  // Adds messages. One that has not changed stays the same object, so that it is not drawn again.
  _add(messages) {
    for (const message of messages) {
      const old = this.messages.get(message.seq);
      if (!old || JSON.stringify(old) !== JSON.stringify(message)) this.messages.set(message.seq, message);
    }
    this._ordered = null;
  }

  _onEvent({ event, document }) {
    if (event === "degraded") this._tellHealth("away");
    if (event !== "changed") return;
    this._tellHealth("well");
    this.numbers = document.exists ? document : null;
    this.refresh();
  }

  _onLost(error) {
    if (error.status === 400) this.fault = error; // no more attempts follow
    const isServing = error.status !== undefined && error.status < 500;
    this._tellHealth(error.code === "store_unavailable" ? "away" : isServing ? "well" : "lost");
    this._tell();
  }

  // Reads the conversation again, after a running read if there is one. Resolves once the data is newer than the call.
  refresh() {
    this._isStale = true;
    this._reading ??= this._readAll();
    return this._reading;
  }

  async _readAll() {
    try {
      while (this._isStale && !this._isClosed) {
        this._isStale = false;
        await this._read();
      }
    } catch (error) {
      if (error.code === "session_not_found") this._forget();
      else if (error.code === "unreadable") await this._readParts(error);
      else if (error.code === "store_unavailable" || error.code === "too_late") this._tellHealth("away");
      else if (error.status !== undefined) this.fault = error;
      // The stream of events reports all other errors. It may miss a short outage, so the read is retried here.
      if (error.status === 503 || error.status === 429) this._readAgain();
    } finally {
      this._reading = null;
    }
    if (!this._isClosed) this._tell();
  }

  // Schedules one retry, no matter how many reads have failed.
  _readAgain() {
    clearTimeout(this._again);
    this._again = setTimeout(() => this._isClosed || this.refresh(), AGAIN_MS);
  }

  async _read() {
    const context = await ask("GET", sessionPath(this.sessionId, "/context/parts"));
    if (!context.epoch) return this._forget();
    const page = await ask("GET", sessionPath(this.sessionId, `/messages?include_originals=true&limit=${PAGE_COUNT}`));
    if (this._isClosed) return;
    if (this.context && this.context.epoch !== context.epoch) this._forget();
    const first = page.messages.length ? page.messages[0].seq : Infinity;
    const seqs = new Set(page.messages.map((message) => message.seq));
    for (const seq of this.messages.keys()) {
      // Messages that a summary covers stay on the page; popped ones do not.
      if (seq >= first && seq >= context.first_seq && !seqs.has(seq)) this.messages.delete(seq);
    }
    this._ordered = null;
    if (!this.isLoaded) this.earlier = page.before;
    this._add(page.messages);
    this.context = context;
    this.isLoaded = true;
    this.fault = null;
    this._tellHealth("well");
    this._tell();
  }

  // Reads what can be read of a damaged conversation, and says the fault.
  async _readParts(error) {
    const parts = await ask("GET", sessionPath(this.sessionId, "/readable")).catch(() => ({ messages: [] }));
    if (this._isClosed) return;
    this.messages.clear();
    this._add(parts.messages);
    this.fault = error;
  }

  // Reads earlier messages until this one is read; at most the last ten thousand.
  async loadUntil(seq) {
    for (let read = 0; read < LOADS_COUNT && this.earlier !== null && this.earlier > seq; read += 1) await this._loadEarlier(LOAD_COUNT);
  }

  // Reads the day of the message before the first one, as a whole; at most some thousand messages of it.
  async loadDay() {
    let limit = PAGE_COUNT;
    let day = null;
    for (let read = 0; read < DAY_LOADS_COUNT && this.earlier !== null; read += 1) {
      const messages = await this._loadEarlier(limit);
      if (messages.length === 0) return;
      day ??= dayOf(messages.at(-1).stored_ms);
      if (dayOf(messages[0].stored_ms) !== day) return;
      limit = LOAD_COUNT;
    }
  }

  // Returns the seq of the first message of a day, or of the first one after it; null if there is none.
  async firstOfDay(startMs) {
    const before = `limit=1&before=${encodeURIComponent(new Date(startMs).toISOString())}`;
    const { messages } = await ask("GET", sessionPath(this.sessionId, `/messages?include_originals=true&${before}`));
    const last = messages.length ? messages[0].seq : 0;
    await this.loadUntil(last + 1);
    return this.inOrder().find(({ seq }) => seq > last)?.seq ?? null;
  }

  async _loadEarlier(limit) {
    const query = `/messages?include_originals=true&limit=${limit}&before=${this.earlier}`;
    const page = await ask("GET", sessionPath(this.sessionId, query));
    this._add(page.messages);
    this.earlier = page.before;
    this._tell();
    return page.messages;
  }

  _forget() {
    this.context = null;
    this.messages.clear();
    this._ordered = null;
    this.earlier = null;
    this.isLoaded = true;
    this.fault = null;
  }
}
