"""Probe Redis while it is down, and replay the backlog once it is back, in order per session.

An entry whose reply was lost is first searched in Redis. The token makes sure that Redis makes each entry once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import monotonic
from typing import Any

from redismem.concurrency.background import Background, Ongoing
from redismem.errors import CorruptSession, RedismemError, StoreUnavailable
from redismem.events import facts, unquoted
from redismem.protocol import replies
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session.append import replay_call
from redismem.store.breaker import Breaker
from redismem.store.fallback.backlog import Backlog, Entry, Held
from redismem.store.fallback.lost_replies import find_lost_append
from redismem.store.store import Store

log = logging.getLogger("redismem")

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 5.0
_PROGRESS_S = 5.0


class Replay:
    """The replay of one store: a background task that runs while Redis is down and until the backlog is empty."""

    def __init__(
        self,
        store: Store,
        backlog: Backlog,
        background: Background,
        lock: AbstractContextManager[Any],
        on_caught_up: Callable[[Held], None],
    ) -> None:
        """Create the replay, without I/O.

        `lock` guards the backlog. `on_caught_up` is called under the lock once all entries of a session are replayed.
        """
        self._store = store
        self._availability, self._agreement = store.availability, store.agreement
        self._backlog = backlog
        self._background = background
        self._lock = lock
        self._on_caught_up = on_caught_up
        self._ongoing = Ongoing(background, self._work)
        self._is_hurried = self._is_ending = self._is_hindered = False
        self._replayed_count = 0
        self._progress_at_s = 0.0

    def start(self) -> None:
        """Start to probe Redis, unless the task is running.

        A failure to start is logged, and the next call tries again.
        """
        if self._is_ending:
            return
        try:
            self._ongoing.start()
        except RuntimeError as refused:  # the system refuses another thread
            if not self._is_hindered:
                log_fields = facts(
                    op="replay", outcome="failed", namespace=self._store.keys.namespace, error="RuntimeError"
                )
                text = "the replay could not start, and the next call tries again: %s"
                log.error(text, "RuntimeError", exc_info=unquoted(refused), extra=log_fields)
            self._is_hindered = True
        else:
            self._is_hindered = False

    async def look(self, breaker: Breaker) -> bool:
        """Return True if this breaker is closed.

        If the background task only lives as long as the call, this call itself probes Redis.
        """
        if away := self._availability.away():
            self.start()
            if self._ongoing.is_cut_off:
                await self._probe(away)
                self._background.wake()
        return breaker.is_closed

    def depends_on_calls(self) -> bool:
        """True if there are entries to replay, but the background task only lives as long as a call."""
        return self._ongoing.is_cut_off and bool(self._reachable())

    async def end(self, timeout_s: float) -> None:
        """Replay the backlog for at most `timeout_s`, then stop the task for good. A cancellation stops it at once."""
        until_s = monotonic() + timeout_s
        self._is_hurried = True
        if self._backlog.held:
            self.start()
        self._background.wake()
        try:
            while self._backlog.held and not self._is_ending and monotonic() < until_s:
                await self._store.transport.sleep(0.01)
        finally:
            self._is_ending = True
            self._background.wake()
            await self._background.end(0.0 if self._backlog.held else 1.0)

    async def _work(self) -> None:
        try:
            await self._look_and_replay()
        except Exception as failure:
            if not self._is_ending:  # a thread may still be probing when its transport is closed
                kind = type(failure).__name__
                log_fields = facts(op="replay", outcome="failed", namespace=self._store.keys.namespace, error=kind)
                text = "the replay failed, and resumes with the next append: %s"
                log.error(text, kind, exc_info=unquoted(failure), extra=log_fields)

    def _is_done(self) -> bool:
        """True if nothing is left to do. The next outage starts the replay again."""
        return self._is_ending or not (self._backlog.held or self._availability.away())

    async def _look_and_replay(self) -> None:
        pause_s, begun_s = _FIRST_PAUSE_S, None
        while not self._ongoing.end_if(self._is_done):
            if away := self._availability.away():
                await self._background.pause(max(_FIRST_PAUSE_S, min(breaker.probe_in_s() for breaker in away)))
                await self._probe(away)
                self._ongoing.is_cut_off = False
                if self._availability.breakers is None or not self._reachable():
                    pause_s, begun_s = _FIRST_PAUSE_S, None
                    continue
            if begun_s is None:
                begun_s, self._replayed_count = monotonic(), 0
                self._progress_at_s = begun_s + _PROGRESS_S
            replayed_before = self._replayed_count
            await self._replay_round()
            self._ongoing.is_cut_off = False
            if self._backlog.held:
                is_moving = self._replayed_count > replayed_before
                pause_s = _FIRST_PAUSE_S if is_moving else min(_LONGEST_PAUSE_S, pause_s * 2)
                await self._background.pause(pause_s)
        if begun_s is not None:
            self._log_progress("replayed", logging.WARNING, monotonic() - begun_s)

    def _log_progress(self, what: str, level: int, took_s: float = 0.0) -> None:
        self._progress_at_s = monotonic() + _PROGRESS_S
        backlog, namespace = self._backlog, self._store.keys.namespace
        log_fields = facts(op="replay", outcome=what, namespace=namespace, duration_ms=int(took_s * 1000))
        log_fields["message_count"] = backlog.message_count
        log_fields["session_count"] = len(backlog.held)
        text = "%s: %d done in %.2f s, %d messages of %d sessions to go"
        left = (backlog.message_count, len(backlog.held))
        log.log(level, text, what, self._replayed_count, took_s, *left, extra=log_fields)

    async def _probe(self, away: Sequence[Breaker]) -> None:
        probe = partial(self._availability.probe, at_once=self._is_hurried)
        await self._background.run_all([partial(probe, breaker) for breaker in away])

    def _reachable(self) -> list[Held]:
        """Return the sessions with entries to replay whose node answers."""
        return [held for held in self._backlog if self._availability.breaker_of(self._any_call(held)).is_closed]

    def _any_call(self, held: Held) -> Call[Any]:
        return self._store.session_calls(held.session_id).exists()

    async def _replay_round(self) -> None:
        """Replay each session as far as possible."""
        try:
            await self._agreement.agree()  # Redis may have returned empty, or another Redis in its place
        except RedismemError as refused:
            kind = type(refused).__name__
            # The node with the record may be down while other nodes, which hold sessions, are back.
            is_away = isinstance(refused, StoreUnavailable) and self._availability.breakers
            if not is_away:
                log_fields = facts(op="replay", outcome="refused", namespace=self._store.keys.namespace, error=kind)
                log.error("the replay cannot begin, and is retried: %s: %s", kind, refused.text, extra=log_fields)
            if not (is_away and self._agreement.is_agreed):
                return
        await self._background.run_all([partial(self._replay_session, held) for held in self._reachable()])

    def _is_due(self, held: Held) -> bool:
        """True if the session may be replayed: it was not cleared, and no clear is under way."""
        backlog, session_id = self._backlog, held.session_id
        return backlog.held.get(session_id) is held and not backlog.is_clearing(session_id) and not self._is_ending

    def _begin_entry(self, held: Held) -> bool:
        """Mark the session's first entry as being sent, for a clear to wait for it. False means that none may be sent.

        Under the lock: a clear of another thread that began in between would be sent first, and the entry bring the
        session back.
        """
        with self._lock:
            held.is_replaying = bool(held.entries) and self._is_due(held)
            return held.is_replaying

    async def _replay_session(self, held: Held) -> None:
        while self._begin_entry(held):
            begun_s = monotonic()
            try:
                made = await self._replay_entry(held, held.entries[0])
            except ConnectionLost as lost:
                self._availability.note_unanswered(begun_s, lost)
                return
            except (ServerError, RedismemError) as failure:
                if not await self._recover(held, failure):
                    return
                continue
            except Exception as defect:  # this session only; the other sessions continue
                self._refuse(held, type(defect).__name__, "a defect", exc_info=unquoted(defect))
                return
            finally:
                held.is_replaying = False
            with self._lock:
                if self._backlog.held.get(held.session_id) is held:  # otherwise a clear has removed it meanwhile
                    held.last_seq = made[1]
                    held.taken.update(made[0])
                    self._backlog.remove_first(held)
                    self._replayed_count += 1
                    if not held.entries:
                        self._on_caught_up(held)
            if monotonic() >= self._progress_at_s:
                self._log_progress("replaying", logging.INFO)

    async def _recover(self, held: Held, failure: ServerError | RedismemError) -> bool:
        """Handle an error reply to an entry. Return True if the session's replay can continue at once."""
        refused = replies.refusal(failure, held.session_id) if isinstance(failure, ServerError) else failure
        if isinstance(refused, CorruptSession):
            try:
                await self._store.quarantine(refused)
            except RedismemError as error:
                refused = error
            else:
                return True
        if refused is not None:
            self._refuse(held, type(refused).__name__, refused.text)
        return False

    def _refuse(self, held: Held, kind: str, why: str, exc_info: Exception | None = None) -> None:
        """Log once why a session is not replayed. The next round retries it."""
        if held.refused == kind:
            return
        held.refused = kind
        log_fields = facts(op="replay", outcome="refused", namespace=self._store.keys.namespace, error=kind)
        log_fields["session"] = session_hash(held.session_id)
        log_fields["message_count"] = sum(entry.count for entry in held.entries)
        text = "session %s: its replay is refused, and retried; %d messages wait: %s: %s"
        log.error(
            text, log_fields["session"], log_fields["message_count"], kind, why, exc_info=exc_info, extra=log_fields
        )

    async def _replay_entry(self, held: Held, entry: Entry) -> tuple[Sequence[int], int]:
        """Replay an entry, unless Redis made it before. Return its seqs and the session's last seq.

        Raises:
            ServerError: Redis replied with an error.
            ConnectionLost: Redis did not reply.
            RedismemError: The reply cannot be read.
        """
        last_seq = held.last_seq
        # A client that the caller provided may retry by itself.
        may_be_there = entry.sent_s is not None or self._store.transport.repeats
        if entry.sent_s is not None and entry.append.elements:
            seqs, last_seq = await find_lost_append(self._store, entry, held)
            if seqs:
                return seqs, last_seq
        if entry.sent_s is None:
            entry.sent_s = monotonic()
        entry.known_seq = last_seq
        receipt = await self._store.once(replay_call(held.session_id, entry.append, may_be_there=may_be_there))
        return range(receipt.first_seq, receipt.last_seq + 1), receipt.last_seq
