// The turns of this tab: a message on its way, and the answer while it comes. What is not stored yet stays in the
// tab's own memory, so that a reload goes on where it was.

import { Unreachable, ask, open } from "./api.js";
import { eventsOf } from "./streams.js";

const KEY = "redismem.turns";
const GIVE_UP_MS = 120_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// crypto.randomUUID is not there where a page came without TLS.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Turns {
  // `tell(turn, what)`: what is start, text, notice or end.
  constructor(tell) {
    this._tell = tell;
    this._turns = new Map();
    this._passedOver = new Set();
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

  // `shown`: what the page shows instead of the text, where the text is nobody's business.
  send(sessionId, text, shown = null) {
    return this._begin({ id: newId(), sessionId, text, shown, sentMs: Date.now() });
  }

  // Once more, under the same name: what is stored of it already is not stored twice.
  again(turn) {
    return this._begin({ id: turn.id, sessionId: turn.sessionId, text: turn.text, shown: turn.shown, sentMs: Date.now() });
  }

  // An answer to somebody else's message, or to one from before a reload.
  join(sessionId, id, text, sentMs, kept = null) {
    if (this._turns.has(id) || this._passedOver.has(id)) return;
    const turn = this._new({ id, sessionId, text, shown: kept?.shown ?? null, sentMs, isOwn: kept !== null });
    this._run(turn, `${id}.0`);
  }

  // What was on its way in this tab before a reload.
  resume(sessionId) {
    for (const kept of this._kept()) {
      if (kept.sessionId === sessionId) this.join(sessionId, kept.id, kept.text, kept.sentMs, kept);
    }
  }

  async stop(sessionId) {
    const live = this.of(sessionId).filter((turn) => turn.phase !== "ended");
    const { stopped_count: count } = await ask("POST", "/api/chat/stop", { body: { session_id: sessionId } });
    // The answer comes from another server, or has not begun: this tab listens no more.
    if (count === 0) live.forEach((turn) => turn.leaving.abort());
  }

  forget(id) {
    this._turns.get(id)?.leaving.abort();
    this._turns.delete(id);
    this._keep();
  }

  forgetAll(sessionId) {
    this.of(sessionId).forEach((turn) => this.forget(turn.id));
  }

  _new(given) {
    const turn = { isOwn: true, ...given, reply: "", notices: [], phase: "sending", end: null, error: null };
    turn.leaving = new AbortController();
    this._turns.set(turn.id, turn);
    this._keep();
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
        // Who listens again is told nothing anew by the message itself.
        const body = { session_id: turn.sessionId, message: last ? "…" : turn.text || turn.shown };
        const response = await open("POST", "/api/chat", { body, headers, signal: turn.leaving.signal });
        for await (const event of eventsOf(response)) {
          if (event.id) last = event.id;
          this._heard(turn, event);
          if (turn.phase === "ended") return;
        }
        last ??= `${turn.id}.0`;
      } catch (error) {
        const isOver = error.name === "AbortError" || !(error instanceof Unreachable || error.status === 503);
        if (isOver) return this._failed(turn, error);
        // A message that nobody has heard is sent again under its name; an answer is listened to from where it was.
      }
      if (Date.now() > untilMs) return this._failed(turn, new Unreachable("/api/chat"));
      await pause(Math.min(300 * 2 ** tried, 3000));
    }
  }

  _heard(turn, { event, document }) {
    if (event === "start") turn.phase = "streaming";
    if (event === "text") turn.reply += document.text;
    if (event === "notice" && !turn.notices.some((notice) => notice.code === document.code)) turn.notices.push(document);
    if (event === "end") this._end(turn, document);
    else this._tell(turn, event);
  }

  _end(turn, document) {
    turn.phase = "ended";
    turn.end = document;
    this._keep();
    this._tell(turn, "end");
  }

  _failed(turn, error) {
    if (!turn.isOwn) {
      // Nobody here has asked for it: what there is of it will be stored, and is shown then.
      this._passedOver.add(turn.id);
      this.forget(turn.id);
      return this._tell(turn, "notice");
    }
    const isStopped = error.name === "AbortError";
    turn.error = isStopped || error.code === "not_found" ? null : error;
    const reason = isStopped ? "stopped" : error.code === "not_found" ? "the message was not sent" : "it was not answered";
    return this._end(turn, { complete: false, reason, seq: null, waiting_for: null });
  }

  // Those that are on their way, or could not be kept. A text that is not shown is not kept here either.
  _keep() {
    const wanted = [...this._turns.values()].filter((turn) => turn.isOwn && !(turn.end && turn.end.seq));
    const kept = wanted.map(({ id, sessionId, text, shown, sentMs }) => ({
      id,
      sessionId,
      text: shown === null ? text : "",
      shown,
      sentMs,
    }));
    if (kept.length) sessionStorage.setItem(KEY, JSON.stringify(kept));
    else sessionStorage.removeItem(KEY);
  }

  _kept() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY)) ?? [];
    } catch {
      return [];
    }
  }
}
