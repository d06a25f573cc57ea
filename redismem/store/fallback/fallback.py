"""Serve turns from this process while Redis is down, and replay them afterwards.

While a session has entries to replay, its new appends queue behind them, so no append overtakes another.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, TypeVar, cast

from redismem.concurrency import forks
from redismem.concurrency.background import Background
from redismem.context.context import Context
from redismem.context.info import Health, SessionInfo
from redismem.context.results import Receipt, State
from redismem.errors import StoreUnavailable
from redismem.events import Op, Outage, facts
from redismem.protocol import layout
from redismem.protocol.call import Call
from redismem.protocol.ids import now_ms
from redismem.protocol.namespace import calls as namespace_calls
from redismem.store.breaker import Breaker
from redismem.store.fallback.backlog import Backlog, Entry, Held
from redismem.store.fallback.clearing import clear_beside
from redismem.store.fallback.contexts import SeenContexts
from redismem.store.fallback.replay import Replay
from redismem.store.store import Store

log = logging.getLogger("redismem")

T = TypeVar("T")

_LOOK_S = 0.002
_LONGEST_LOOK_S = 0.1
_ON_ALL_MESSAGES = frozenset((Op.POP, Op.REWRITE, Op.FORGET))
"""The edits that must not be made while messages of the session wait for replay."""


class Fallback:
    """Serves appends and reads from this process while Redis is down, and replays the appends afterwards."""

    def __init__(self, store: Store, background: Background) -> None:
        """Create the fallback, without I/O. The replay runs in `background`."""
        self._store = store
        self._settings = store.settings
        self._availability, self._agreement = store.availability, store.agreement
        self._patience_s = min(self._settings.fallback_after_s, self._settings.deadline_s)
        self._begin(background)
        forks.reset_after_fork(self)

    def _begin(self, background: Background) -> None:
        self._lock = threading.Lock()
        self._seen = SeenContexts(self._settings)
        self._background = background
        self._backlog = Backlog(self._settings)
        self._unclosed = weakref.finalize(self, _log_lost, self._backlog, self._store.keys.namespace)
        self._replay = Replay(self._store, self._backlog, background, self._lock, self._finish_session)

    def reset(self) -> None:
        """Start with an empty backlog in a forked process: each process replays only what it accepted itself."""
        self._unclosed.detach()
        self._begin(type(self._background)())

    def begin_without_redis(self) -> None:
        """Log that this process begins while Redis is down."""
        log_fields = facts(op="breaker", outcome="degraded", namespace=self._store.keys.namespace)
        log.warning("Redis is down: this process starts without it, and serves what it receives", extra=log_fields)

    async def aclose(self) -> None:
        """Replay the backlog, within `deadline_s`, and log what is lost."""
        try:
            await self._replay.end(self._settings.deadline_s)
        finally:
            self._unclosed()
            self._seen.clear()

    def start_probing(self) -> None:
        """Start to probe Redis, because a breaker has opened."""
        self._replay.start()

    @property
    def is_away(self) -> bool:
        """True if Redis is known to be down. The background task then probes it."""
        breakers = self._availability.breakers
        return not self._availability.breaker.is_closed if breakers is None else breakers.is_all_away()

    def health(self, of_redis: Health) -> Health:
        """Return this health with the numbers of the backlog filled in."""
        backlog = self._backlog
        return replace(
            of_redis,
            fallback=True,
            backlog_session_count=len(backlog.held),
            backlog_message_count=backlog.message_count,
            backlog_bytes=backlog.size_bytes,
            refused_session_count=backlog.refused_count,
        )

    def forget(self, is_wanted: Callable[[str, bytes | None], bool]) -> list[str]:
        """Drop the cached contexts of the wanted sessions, and return those with a backlog."""
        with self._lock:
            for session_id, owner in self._seen.owners().items():
                if is_wanted(session_id, owner):
                    self._seen.forget(session_id)
            held = [(each.session_id, each.view.fields.get(layout.OWNER)) for each in self._backlog]
        return [session_id for session_id, owner in held if is_wanted(session_id, owner)]

    async def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> T:
        """Send a call to Redis; while Redis is down, serve it from this process.

        Raises:
            FallbackFull: The backlog is full.
            RedismemError: Any error of `Store.send`.
        """
        session_id = call.session_id
        if call.confirm:
            return await self._run_confirmed(call, quarantine=quarantine, begun_s=begun_s)
        if session_id is None or call.op.outage not in (Outage.ACCEPTED, Outage.SERVED):
            return await self._run_beside(call, quarantine=quarantine, begun_s=begun_s)
        known_seq, decode, sent_s = self._seen.last_seq(session_id), call.decode, None
        breaker = self._availability.breaker_of(call)
        is_there = (breaker.is_closed and self._agreement.is_agreed) or await self._is_there(breaker)
        if is_there and (not self._backlog.held or await self._may_overtake(session_id, breaker)):
            call.decode, tried_s = partial(self._decode_and_cache, call, decode), monotonic()
            try:
                return await self._store.send(call, quarantine=quarantine, begun_s=begun_s)
            except StoreUnavailable as refused:
                # The node that is down may be the node that was asked, the session's new owner, or the node with the
                # record.
                if breaker.is_closed and self._availability.breaker_of(call).is_closed and not self._cannot_agree():
                    raise
                # A client that the caller provided may have retried by itself.
                sent_s = tried_s if refused.may_be_done or self._store.transport.repeats else None
        self._replay.start()
        await self._store.transport.sleep(0)  # a caller in a tight loop must not starve the replay
        try:
            with self._lock:
                return self._serve(replace(call, decode=decode), session_id, known_seq, sent_s)
        except StoreUnavailable as refused:
            refused.may_be_done = sent_s is not None
            raise

    async def _is_there(self, breaker: Breaker) -> bool:
        return await self._replay.look(breaker) and not self._cannot_agree()

    def _cannot_agree(self) -> bool:
        """True if this process started while the node with the namespace's record was down."""
        read = namespace_calls.read_record(self._store.keys)
        return not (self._agreement.is_agreed or self._availability.breaker_of(read).is_closed)

    async def _run_confirmed(self, call: Call[T], *, quarantine: bool, begun_s: float | None) -> T:
        """Run an append with `confirm`. The fallback cannot accept it, because only replicas can confirm it."""
        assert call.session_id is not None
        breaker = self._availability.breaker_of(call)
        if not breaker.is_closed and not await self._replay.look(breaker):
            await self._store.transport.sleep(0)
            raise self._refusal(call, "an append with confirm cannot be accepted without it")
        if self._backlog.held and not await self._may_overtake(call.session_id, breaker):
            raise self._refusal(call, "an append with confirm must wait for the replay")
        call.decode = partial(self._decode_and_cache, call, call.decode)
        return await self._store.send(call, quarantine=quarantine, begun_s=begun_s)

    async def _run_beside(self, call: Call[T], *, quarantine: bool, begun_s: float | None) -> T:
        """Run a call that the fallback cannot serve, beside the backlog."""
        session_id = call.session_id
        breaker = self._availability.breaker_of(call)
        if not breaker.is_closed and not await self._replay.look(breaker):
            await self._store.transport.sleep(0)
            name = call.op.method or "this call"
            raise self._refusal(call, f"{name} cannot be served without it")
        if session_id is not None and self._backlog.held:
            if call.op.outage is Outage.WAITS:
                await self._may_overtake(session_id, breaker)
            elif call.op in _ON_ALL_MESSAGES and session_id in self._backlog.held:
                raise self._refusal(call, "the newest message must be replayed first")
        if call.append is not None:  # of a turn
            call.decode = partial(self._decode_and_cache, call, call.decode)
        send = partial(self._store.send, call, quarantine=quarantine, begun_s=begun_s)
        if session_id is not None and call.op is Op.CLEAR:
            sleep = self._store.transport.sleep
            value = await clear_beside(self._backlog, self._lock, session_id, sleep, self._patience_s, send)
        else:
            value = await send()
        if session_id is not None and call.op.removes:
            self._seen.forget(session_id)
        return value

    def _refusal(self, call: Call[Any], why: str) -> StoreUnavailable:
        self._replay.start()
        held, breaker = self._backlog.held.get(call.session_id or ""), self._availability.breaker_of(call)
        if held is not None and breaker.is_closed:
            text = "Redis answers, but the session's backlog is not replayed yet"
            return StoreUnavailable(f"{text}; {why}", call.session_id, held.refused)
        text = self._availability.away_error(breaker, None).text
        return StoreUnavailable(f"{text}; {why}", call.session_id, breaker.reason)

    async def _may_overtake(self, session_id: str, breaker: Breaker) -> bool:
        """Wait until the session's backlog is replayed.

        Return False if this takes too long, if Redis refuses an entry, or if Redis is down again.
        """
        self._replay.start()
        until_s, look_s = monotonic() + self._patience_s, _LOOK_S
        while (held := self._backlog.held.get(session_id)) is not None or self._replay.depends_on_calls():
            if (held is not None and held.refused) or not breaker.is_closed or monotonic() >= until_s:
                return held is None
            await self._store.transport.sleep(look_s)
            look_s = min(_LONGEST_LOOK_S, look_s * 2)
        return True

    def _decode_and_cache(self, call: Call[Any], decode: Any, *answers: Any) -> Any:
        """Decode the replies of Redis to a call, and update the session's cached context."""
        value, op, session_id = decode(*answers), call.op, call.session_id
        assert session_id is not None
        if op in (Op.APPEND_AND_READ, Op.BEGIN_TURN):
            self._seen.note(session_id, answers[1], answers[2], getattr(value, "context", value))
        elif call.append is not None:
            self._seen.extend(session_id, call.append, getattr(value, "receipt", value))
        elif op is Op.READ and call.named is None:  # the whole window
            self._seen.note(session_id, answers[0], answers[1], value)
        return value

    def _serve(self, call: Call[T], session_id: str, known_seq: int | None, sent_s: float | None) -> T:
        """Return the value of a call without Redis.

        Raises:
            StoreUnavailable: The call cannot be served without Redis.
            FallbackFull: The backlog is full.
            TooLarge: The append exceeds a limit.
            OwnerMismatch: As far as this process knows, the session has another owner than the call names.
        """
        held = self._backlog.held.get(session_id)
        if call.op.outage is Outage.ACCEPTED:
            if held is None:
                held = Held(session_id, self._seen.view(session_id), last_seq=known_seq)
            return self._accept(call, held, known_seq, sent_s)
        view = self._seen.view(session_id) if held is None else held.view
        named = call.named or {}
        match call.op:
            case Op.READ:
                return _mark_degraded(call.decode(*view.read(named.get("limit"))))
            case Op.STATE:
                return _mark_degraded(call.decode(view.fields if layout.COUNTERS in view.fields else {}))
            case Op.INFO if layout.COUNTERS in view.fields:
                return _mark_degraded(call.decode(view.fields))
            case Op.MESSAGES if layout.COUNTERS in view.fields:
                view.check_owner(named["owner"], session_id)
                if not named["include_originals"]:
                    return cast(T, view.page(session_id, named["limit"], named["before_seq"]))
        raise self._refusal(call, f"this {call.op} cannot be served without it")

    def _accept(self, call: Call[T], held: Held, known_seq: int | None, sent_s: float | None) -> T:
        append = call.append
        assert append is not None
        held.view.check_owner(append.head.keys.owner, held.session_id)
        if append.has_expect:
            raise self._refusal(call, "only Redis can check `expect`")
        before = held.find_seqs(append)
        if before is not None:
            reply: Any = held.view.duplicate(*before)
        else:
            self._backlog.check_room(append, held.session_id)
            refused = held.view.refusal(append, self._settings, held.session_id)
            if refused is not None:
                raise refused
            reply = held.view.append(append, now_ms())
            last_seq = held.view.last_seq
            first_seq = last_seq - len(append.elements) + 1
            self._backlog.add(held, Entry(append, first_seq, last_seq, sent_s, None if sent_s is None else known_seq))
            self._replay.start()
        return _mark_degraded(call.decode(*((reply, *held.view.read(None)) if len(call.commands) > 1 else (reply,))))

    def _finish_session(self, held: Held) -> None:
        if held.last_seq is not None and held.last_seq >= held.view.seqs_count:
            held.view.move_on(held.last_seq)
            self._seen.put_back(held.session_id, held.view)
        else:
            self._seen.forget(held.session_id)


def _log_lost(backlog: Backlog, namespace: str) -> None:
    """Log the entries that are lost when the memory is closed or collected, or when the process exits."""
    if backlog.held:
        log_fields = facts(op="replay", outcome="lost", namespace=namespace)
        log_fields["message_count"], log_fields["session_count"] = backlog.message_count, len(backlog.held)
        text = "ended with %d messages of %d sessions that Redis has not taken: they are lost"
        log.error(text, backlog.message_count, len(backlog.held), extra=log_fields)


def _mark_degraded(value: T) -> T:
    """Return the value with `degraded` set to True."""
    match value:
        case Context():
            value.degraded = value.state.degraded = True
            if value.receipt is not None:
                value.receipt.degraded = True
        case Receipt() | State():
            value.degraded = True
        case SessionInfo():
            return replace(value, degraded=True)
    return value
