// The turns of this tab: sent messages and their answers in progress. Session storage holds them until the memory has
// stored them, so they survive a reload.

import { Unreachable, ask, open } from "./api.js";
import { eventsOf } from "./streams.js";

const KEY = "redismem.turns";
const GIVE_UP_MS = 120_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// crypto.randomUUID does not exist on pages without TLS.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Turns {
  // Calls `tell(turn, event)`; the event is "start", "text", "notice" or "end".
  constructor(tell) {
    this._tell = tell;
    this._turns = new Map();
    this._skippedIds = new Set();
  }

  of(sessionId) {
    return [...this._turns.values()].filter((turn) => turn.sessionId === sessionId);
  }

  get(id) {
    return this._turns.get(id);
  }

  isLive(sessionId) {
    return this.of(sessionId).some((turn) => turn.phase !== "ended");
  }

  // `shown` replaces a sensitive text on the page.
  send(sessionId, text, shown = null) {
    return this._begin({ id: newId(), sessionId, text, shown, sentMs: Date.now() });
  }

  // Sends a turn again under its id, so that the memory stores it once.
  again(turn) {
    return this._begin({ id: turn.id, sessionId: turn.sessionId, text: turn.text, shown: turn.shown, sentMs: Date.now() });
  }

  // Listens to the answer to another user's message, or to a message sent before a reload.
  join(sessionId, id, text, sentMs, saved = null) {
    if (this._turns.has(id) || this._skippedIds.has(id)) return;
    const turn = this._new({ id, sessionId, text, shown: saved?.shown ?? null, sentMs, isOwn: saved !== null });
    this._run(turn, `${id}.0`);
  }

  // Joins the turns that were in progress in this tab before a reload.
  resume(sessionId) {
    for (const saved of this._load()) {
      if (saved.sessionId === sessionId) this.join(sessionId, saved.id, saved.text, saved.sentMs, saved);
    }
  }

  async stop(sessionId) {
    const live = this.of(sessionId).filter((turn) => turn.phase !== "ended");
    const { stopped_count: count } = await ask("POST", "/api/chat/stop", { body: { session_id: sessionId } });
    // The answer comes from another server or has not begun: this tab stops listening.
    if (count === 0) live.forEach((turn) => turn.leaving.abort());
  }

  forget(id) {
    this._turns.get(id)?.leaving.abort();
    this._turns.delete(id);
    this._save();
  }

  forgetAll(sessionId) {
    this.of(sessionId).forEach((turn) => this.forget(turn.id));
  }

  _new(given) {
    const turn = { isOwn: true, ...given, reply: "", notices: [], phase: "sending", end: null, error: null };
    turn.leaving = new AbortController();
    this._turns.set(turn.id, turn);
    this._save();
    return turn;
  }

  _begin(given) {
    const turn = this._new(given);
    this._run(turn, null);
    return turn;
  }

  async _run(turn, from) {
    const untilMs = Date.now() + GIVE_UP_MS;
    let last = from;
    for (let tried = 0; ; tried += 1) {
      try {
        const headers = last ? { "last-event-id": last } : { "idempotency-key": turn.id };
        // A request that resumes a stream needs no message.
        const { timeZone: zone } = Intl.DateTimeFormat().resolvedOptions();
        const body = { session_id: turn.sessionId, zone, message: last ? "…" : turn.text || turn.shown };
        const response = await open("POST", "/api/chat", { body, headers, signal: turn.leaving.signal });
        for await (const event of eventsOf(response)) {
          if (event.id) last = event.id;
          this._onEvent(turn, event);
          if (turn.phase === "ended") return;
        }
        last ??= `${turn.id}.0`;
      } catch (error) {
        const isOver = error.name === "AbortError" || !(error instanceof Unreachable || error.status === 503);
        if (isOver) return this._fail(turn, error);
        // Retry: send the message again under its id, or resume the answer where it stopped.
      }
      if (Date.now() > untilMs) return this._fail(turn, new Unreachable("/api/chat"));
      await pause(Math.min(300 * 2 ** tried, 3000));
    }
  }

  _onEvent(turn, { event, document }) {
    if (event === "start") turn.phase = "streaming";
    if (event === "text") turn.reply += document.text;
    if (event === "notice" && !turn.notices.some((notice) => notice.code === document.code)) turn.notices.push(document);
    if (event === "end") this._end(turn, document);
    else this._tell(turn, event);
  }

  _end(turn, document) {
    turn.phase = "ended";
    turn.end = document;
    this._save();
    this._tell(turn, "end");
  }

  _fail(turn, error) {
    if (!turn.isOwn) {
      // Another user's answer: this tab shows it once it is stored.
      this._skippedIds.add(turn.id);
      this.forget(turn.id);
      return this._tell(turn, "notice");
    }
    const isStopped = error.name === "AbortError";
    turn.error = isStopped || error.code === "not_found" ? null : error;
    const reason = isStopped ? "stopped" : error.code === "not_found" ? "the message was not sent" : "the server did not answer";
    return this._end(turn, { complete: false, reason, seq: null, waiting_for: null });
  }

  // Saves the turns that the memory has not stored. A sensitive text is left out.
  _save() {
    const unstored = [...this._turns.values()].filter((turn) => turn.isOwn && !(turn.end && turn.end.seq));
    const saved = unstored.map(({ id, sessionId, text, shown, sentMs }) => ({
      id,
      sessionId,
      text: shown === null ? text : "",
      shown,
      sentMs,
    }));
    if (saved.length) sessionStorage.setItem(KEY, JSON.stringify(saved));
    else sessionStorage.removeItem(KEY);
  }

  _load() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY)) ?? [];
    } catch {
      return [];
    }
  }
}
