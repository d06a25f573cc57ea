// The turns that this tab shows: the messages that it sends, and the running answer, whichever tab or server began it.
// The server knows every turn; session storage holds only the messages that it has not stored.

import { Unreachable, ask, open, sessionPath } from "./api.js";
import { eventsOf } from "./streams.js";

const KEY = "redismem.turns";
const GIVE_UP_MS = 120_000;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const isAway = (error) => error instanceof Unreachable || error.status === 503;

// crypto.randomUUID does not exist on pages without TLS.
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The phases of a turn: "accepting" while the server has not accepted its message, "sending" while the server is away,
// "asking" until the server tells what it knows of the turn, "running", "ended".
export class Turns {
  // Calls `tell(turn, event)`; the event is "told", "stored" or "end".
  constructor(tell) {
    this._tell = tell;
    this._turns = new Map();
    this._unknownIds = new Set();
  }

  // Returns the turns to show.
  of(sessionId) {
    return this._of(sessionId).filter((turn) => turn.phase !== "accepting");
  }

  get(id) {
    return this._turns.get(id);
  }

  // True if the server has told this tab how the turn goes, or that it does not know the turn.
  knows(id) {
    return this._turns.has(id) || this._unknownIds.has(id);
  }

  // Returns the turn that may be stopped, or null.
  running(sessionId) {
    return this._of(sessionId).find((turn) => turn.phase === "running" || turn.phase === "sending") ?? null;
  }

  // True while no message should be sent: a turn begins or runs, or the page has not yet read how the last one ended.
  isBusy(sessionId) {
    const isOpen = (turn) => (turn.phase === "ended" ? turn.isStored && !turn.isRead : turn.phase !== "asking");
    return this._of(sessionId).some(isOpen);
  }

  isAccepting(sessionId) {
    return this._of(sessionId).some((turn) => turn.phase === "accepting");
  }

  // Sends a message. `shown` replaces a sensitive text on the page. Resolves once the message is accepted, or once the
  // server turns out to be away, so that the tab sends it again until it is back. Throws the server's refusal.
  async send(sessionId, text, shown = null) {
    const turn = this._add({ id: newId(), sessionId, text, shown, isOwn: true, mustSend: true, phase: "accepting" });
    let response = null;
    try {
      response = await this._open(turn);
    } catch (error) {
      if (!isAway(error)) {
        this.forget(turn);
        throw error;
      }
    }
    turn.phase = response ? "running" : "sending";
    this._run(turn, response);
  }

  // Sends a turn again under its id. The server repeats its answer, or begins it again.
  again({ id, sessionId, text, shown, isStored, firstSeq }) {
    this._run(this._add({ id, sessionId, text, shown, isStored, firstSeq, isOwn: true, mustSend: true, phase: "running" }), null);
  }

  // Follows the running turn, or asks how the turn of an unanswered message ended. `question` is {id, text, ms}, or
  // null if only the server knows which turn runs.
  follow(sessionId, question, isRunning) {
    const given = { id: question?.id ?? null, text: question?.text ?? "", sentMs: question?.ms };
    this._run(this._add({ ...given, sessionId, isStored: true, isPast: !isRunning, phase: "asking" }), null);
  }

  // Asks for the messages that this tab had sent before a reload, and that it did not see stored.
  resume(sessionId) {
    for (const saved of this._load()) {
      if (saved.sessionId !== sessionId || this.get(saved.id)) continue;
      this._run(this._add({ ...saved, isOwn: true, phase: "asking" }), null);
    }
  }

  async stop(sessionId) {
    const turn = this.running(sessionId);
    if (turn === null) return;
    let isStopped = false;
    try {
      if (turn.phase === "running") {
        const body = { turn: turn.id };
        isStopped = (await ask("POST", sessionPath(sessionId, "/turns/current/stop"), { body })).stopped;
      }
    } finally {
      // The server does not know the turn: this tab alone sends it, or listens to it.
      if (!isStopped && !turn.isStored) turn.leaving.abort();
    }
  }

  // Follows the stored turns of a conversation no longer. The server tells them again.
  leave(sessionId) {
    for (const turn of this._of(sessionId)) if (turn.isStored && turn.phase !== "ended") this.forget(turn);
  }

  forget(turn) {
    if (!turn || this._turns.get(turn.key) !== turn) return;
    this._turns.delete(turn.key);
    turn.leaving.abort();
    this._save();
  }

  forgetAll(sessionId) {
    this._of(sessionId).forEach((turn) => this.forget(turn));
  }

  _of(sessionId) {
    return [...this._turns.values()].filter((turn) => turn.sessionId === sessionId);
  }

  _add(given) {
    const turn = { text: "", shown: null, isOwn: false, mustSend: false, isStored: false, isPast: false, firstSeq: 0, ...given };
    Object.assign(turn, { key: turn.id ?? `running:${turn.sessionId}`, end: null, error: null, isRead: false });
    turn.sentMs ??= Date.now();
    turn.leaving = new AbortController();
    beginAnew(turn);
    this.forget(this._turns.get(turn.key));
    this._turns.set(turn.key, turn);
    this._save();
    return turn;
  }

  _open(turn) {
    const { signal } = turn.leaving;
    if (!turn.mustSend) {
      const query = turn.id === null ? "" : `?turn=${encodeURIComponent(turn.id)}`;
      return open("GET", sessionPath(turn.sessionId, `/turns/current${query}`), { signal });
    }
    const { timeZone: zone } = Intl.DateTimeFormat().resolvedOptions();
    const body = { session_id: turn.sessionId, zone, message: turn.text || turn.shown, when_busy: "refuse" };
    return open("POST", "/api/chat?format=events", { body, headers: { "idempotency-key": turn.id }, signal });
  }

  // Reads the events of a turn to its end. Connects again if the server is away or a stream breaks off.
  async _run(turn, response) {
    let untilMs = Date.now() + GIVE_UP_MS;
    for (let tried = 0; ; tried += 1) {
      try {
        response ??= await this._open(turn);
        if (response.status === 204) return this.forget(turn);
        if (await this._read(turn, response)) return;
        untilMs = Date.now() + GIVE_UP_MS;
      } catch (error) {
        if (!isAway(error)) return this._fail(turn, error);
        if (turn.mustSend) turn.phase = "sending";
        this._tell(turn, "told");
      }
      response = null;
      if (Date.now() > untilMs) return this._fail(turn, new Unreachable("/api/chat"));
      await pause(Math.min(300 * 2 ** tried, 3000));
    }
  }

  // Reads one stream, which tells the turn from its beginning. Returns true at the end of the turn.
  async _read(turn, response) {
    let isFirst = true;
    if (!turn.mustSend) turn.isStored = true;
    try {
      for await (const event of eventsOf(response)) {
        if (isFirst) beginAnew(turn);
        isFirst = false;
        this._onEvent(turn, event);
        if (turn.phase === "ended") return true;
      }
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
    return false;
  }

  _onEvent(turn, { event, document }) {
    turn.phase = "running";
    if (event === "end") return this._onEnd(turn, document);
    if (event === "message") this._onStored(turn, document);
    if (event === "reset") beginAnew(turn);
    if (event === "text") {
      turn.reply = (turn.isReplaced ? "" : turn.reply) + document.delta;
      turn.isReplaced = false;
    }
    if (event === "data" && document.name === "recalled") turn.recalled = document.data;
    if (event === "notice" && !turn.notices.some((notice) => notice.code === document.code)) turn.notices.push(document);
    return this._tell(turn, event === "message" ? "stored" : "told");
  }

  // The first messages of a turn are its question. Later ones replace the text before them.
  _onStored(turn, { first_seq: firstSeq, last_seq: lastSeq }) {
    if (turn.lastSeq) turn.isReplaced = true;
    else {
      turn.firstSeq = firstSeq;
      turn.isStored = firstSeq > 0;
      turn.mustSend &&= !turn.isStored;
      const isOld = (other) => other !== turn && other.phase === "ended" && other.firstSeq === firstSeq;
      this._of(turn.sessionId).filter(isOld).forEach((other) => this.forget(other));
      this._save();
    }
    turn.lastSeq = lastSeq;
  }

  _onEnd(turn, { outcome, reason, seq }) {
    if (seq) turn.isStored = true;
    if (reason === "cleared") turn.isStored = false;
    if (reason === "cleared" && !turn.isOwn) {
      this.forget(turn);
      return this._tell(turn, "told");
    }
    return this._end(turn, { outcome, reason: reason || outcome, seq });
  }

  _end(turn, end) {
    turn.phase = "ended";
    turn.end = end;
    this._save();
    this._tell(turn, "end");
  }

  _fail(turn, error) {
    if (this._turns.get(turn.key) !== turn) return null;
    if (turn.isStored && !turn.mustSend) {
      // The server does not tell this turn (any more). What is stored of it shows all the same.
      if (error.code === "not_found" && turn.id !== null) this._unknownIds.add(turn.id);
      this.forget(turn);
      return this._tell(turn, "told");
    }
    const isStopped = error.name === "AbortError";
    const isUnknown = error.code === "not_found";
    turn.error = isStopped || isUnknown ? null : error;
    const reason = isStopped ? "stopped" : isUnknown ? "the message was not sent" : "the server did not answer";
    return this._end(turn, { outcome: isStopped ? "stopped" : "failed", reason, seq: null });
  }

  // Saves the messages that the memory has not stored. A sensitive text is left out.
  _save() {
    const unstored = [...this._turns.values()].filter((turn) => turn.isOwn && !turn.isStored);
    const saved = unstored.map(({ id, sessionId, text, shown, sentMs }) => ({ id, sessionId, text: shown === null ? text : "", shown, sentMs }));
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

// Drops what was told of a turn, which is told from its beginning.
function beginAnew(turn) {
  Object.assign(turn, { reply: "", notices: [], recalled: null, lastSeq: 0, isReplaced: false });
}
