"""The store: one namespace in Redis. It retries each call until Redis answers or the call's deadline has passed."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from redismem.context.info import Health
from redismem.errors import CorruptSession, Overloaded, StoreUnavailable
from redismem.events import Op, facts
from redismem.originals.dictionaries import Dictionary
from redismem.protocol.call import Call
from redismem.protocol.clock import Clock, clock_ms
from redismem.protocol.ids import Sender, now_ms, session_hash
from redismem.protocol.keys import Keys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.quarantine import look, of_session, set_aside
from redismem.protocol.queue.calls import QueueCalls
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.quarantine import describe_damage
from redismem.settings.settings import Settings
from redismem.store.agreement import Agreement
from redismem.store.apart import ReadsApart, must_divide
from redismem.store.availability import Availability, log_change
from redismem.store.breaker import Breaker, BreakerState
from redismem.store.gate import Gate
from redismem.store.hook import Hook
from redismem.store.layer import Layer, LivePart
from redismem.store.overload import RETRIES_COUNT, RetryBudget, fail, refusal
from redismem.store.retries import Retries, Unsettled, redis_at
from redismem.store.side_work import SideWork
from redismem.transport.admission import behind
from redismem.transport.base import CLOSED, Transport, place_of
from redismem.transport.replicas import Wanted

if TYPE_CHECKING:
    from redismem.originals.vectors import Embeds

log = logging.getLogger("redismem")

T = TypeVar("T")
# A transport may give up slightly before its timeout.
_PATIENCE = 0.95


class Store:
    """One namespace over one transport. Any number of tasks may use it concurrently.

    Each call goes through `run`: through the hook and the fallback, if they exist, to `send`, which retries it until
    Redis answers.
    """

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        settings: Settings,
        clock: Clock | None = None,
        hook: Hook | None = None,
    ) -> None:
        """Create a store, without I/O. `clock` replaces the server's clock in all calls.

        Raises:
            InvalidSessionId: The namespace is not valid.
        """
        self.transport, self.settings, self.behind = transport, settings, behind
        self.keys = Keys(namespace, settings.shards)
        self.clock, self.hook, self.sender = clock, hook, Sender()
        reply_timeout_s = min(settings.reply_timeout_s, settings.deadline_s)
        self.availability = Availability(self, reply_timeout_s, self._tell_of_breaker)
        self.agreement = Agreement(self)
        self.fallback: Layer | None = None
        self.lives: dict[asyncio.AbstractEventLoop, LivePart] = {}
        """The parts for running and followed turns, by event loop."""
        self.embedder: Embeds | None = None
        """Embeds messages for recall; `None` means there is no embedder."""
        self.dictionaries: dict[int, Dictionary] = {}
        """The dictionaries of the namespace that this process has read, by version."""
        self.passed_over: set[str] = set()
        """The reasons why reads have left out blocks: one for each missing dictionary and each unreadable block."""
        self.reload_after_s = -math.inf
        """The monotonic time before which dictionaries are not reloaded."""
        self._patience_s, self._budget = settings.deadline_s, RetryBudget()
        self._gate, self.side_work = Gate(blocks=transport.blocks), SideWork(blocks=transport.blocks)
        self._apart, self._unsettled = ReadsApart(self._transmit, settings.deadline_s), Unsettled()

    def use_fallback(self, fallback: Layer, patience_s: float) -> None:
        """Let this fallback serve calls once Redis has not answered for `patience_s`."""
        self.fallback = fallback
        self._patience_s = patience_s
        self.availability.reply_timeout_s = min(self.availability.reply_timeout_s, patience_s)

    async def open(self) -> None:
        """Check that Redis answers and that the namespace's layout fits this release and the settings.

        With the fallback, a process may start while Redis is down. The first call about a session repeats the check.

        Raises:
            StoreUnavailable: Redis did not answer in time.
            WrongShards: The namespace was created with a different number of shards.
            UnsupportedFormat: A newer release wrote the namespace.
        """
        try:
            await self.agreement.agree()
        except StoreUnavailable:
            if self.fallback is None or not self.availability.away():
                raise
            self.fallback.begin_without_redis()

    async def aclose(self) -> None:
        """Close the connections, except a client that the caller provided. The store cannot be used afterwards.

        First stops the running turns, ends its side work and, with the fallback, replays its backlog, each within
        `deadline_s`.
        """
        try:
            if self.lives and (live := self.lives.get(asyncio.get_running_loop())) is not None:
                await live.aclose()
            await self.side_work.end(self.settings.deadline_s)
            if self.fallback is not None:
                await self.fallback.aclose()
        finally:
            self.agreement.on_first_call = None
            transport, self.transport = self.transport, CLOSED
            await transport.aclose()

    @property
    def is_away(self) -> bool:
        """True if Redis is known to be down, so that a call would not be sent now."""
        return self.availability.is_away if self.fallback is None else self.fallback.is_away

    def health(self) -> Health:
        """Return the health of Redis as this process knows it, and the backlog, without I/O."""
        health = self.availability.health()
        return health if self.fallback is None else self.fallback.health(health)

    def run(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> Coroutine[Any, Any, T]:
        """Return the value of a call as `send` does, but through the fallback and with an event for the hook."""
        if behind and (refused := refusal(call.op.patience, place_of(self.transport, call.commands), call.session_id)):
            value = fail(refused)
        else:
            send = self.send if self.fallback is None else self.fallback.run
            value = send(call, quarantine=quarantine, begun_s=begun_s)
        return value if self.hook is None else self.hook.run(value, call)

    def admit(self, op: Op, session_id: str) -> None:
        """Refuse a call before it is encoded, if this process could not make it in time. Raises Overloaded."""
        if refused := refusal(op.patience, self.transport.place, session_id):
            if self.hook is not None:
                self.hook.tell(op, Overloaded.__name__, monotonic(), session_id, None)
            raise refused

    async def send(self, call: Call[T], *, quarantine: bool = False, begun_s: float | None = None) -> T:
        """Send a call until Redis answers, and return its value.

        While Redis is known to be down, a call fails at once, except when it is time for a call to probe Redis.

        Args:
            call: The call to send.
            quarantine: Unless the call only reads, put an unreadable session into quarantine, and repeat the call.
            begun_s: The monotonic time from which the call's deadline counts, if other work came before the call.

        Raises:
            StoreUnavailable: Redis did not answer in time, or refused the call for a reason of its own.
            RedismemError: A script refused the call, or the reply cannot be read.
        """
        availability = self.availability
        breaker = availability.breaker if availability.breakers is None else availability.breakers.of(call)
        if not breaker.is_closed:
            await availability.await_probe(breaker, call.session_id)
        timeout_s = availability.reply_timeout_s
        if begun_s is not None:
            timeout_s = self._within_s(begun_s)
        else:
            begun_s = monotonic()
            if not self.agreement.has_begun and call.session_id is not None:
                await self.agreement.begin(begun_s)
                timeout_s = self._within_s(begun_s)
        number, gate, session_id = 0, self._gate, call.session_id
        is_clear = call.op is Op.CLEAR
        # `has_sending` costs two calls, so it is asked only where the answer counts.
        is_behind = call.append is not None or is_clear or (session_id and call.script and call.has_sending)
        begin = gate.begin_alone if is_clear else gate.begin
        if session_id and (is_behind or session_id in gate.waiting) and not (number := begin(session_id)):
            number = await self._wait_to_begin(call, breaker, begun_s)
            timeout_s = self._within_s(begun_s)
        try:
            if self._unsettled.keys or self.transport.repeats:
                call = self._unsettled.settle(call, may_repeat=self.transport.repeats)
            try:
                value = call.finish(await self._transmit(call, timeout_s))
                breaker.answered_s = begun_s
                if self._budget.left < RETRIES_COUNT:
                    self._budget.earn()
                return value
            except (ServerError, ConnectionLost, asyncio.CancelledError) as failure:
                return await self._retry(call, failure, begun_s)
        except CorruptSession as corrupt:
            await self._quarantine_unless(call.op.is_read or not quarantine, corrupt, begun_s)
        finally:
            if number:
                self._gate.end(call.session_id, number)
        return await self.send(call.again(), begun_s=begun_s)

    def once(self, call: Call[T], begun_s: float | None = None) -> Coroutine[Any, Any, T]:
        """Send a call once, without a retry, and return its value.

        Raises:
            ServerError: Redis replied with an error.
            ConnectionLost: Redis did not reply.
            RedismemError: The reply cannot be read.
        """
        sent = self._once(call, begun_s)
        return sent if self.hook is None else self.hook.run(sent, call)

    async def _once(self, call: Call[T], begun_s: float | None) -> T:
        timeout_s = self.availability.reply_timeout_s if begun_s is None else self._within_s(begun_s)
        begun_s = monotonic()
        breaker = self.availability.breaker_of(call)
        value = call.finish(await self._transmit(call, timeout_s))
        breaker.answered_s = begun_s
        return value

    def observe(self, op: Op, work: Coroutine[Any, Any, T], session_id: str | None = None) -> Coroutine[Any, Any, T]:
        """Return the work, extended by an event for the hook at its end."""
        return work if self.hook is None else self.hook.observe(op, work, session_id)

    def session_calls(self, session_id: str, owner: str | None = None) -> SessionCalls:
        """Return the calls about one session. `owner` is its owner, if these calls begin it.

        Raises:
            InvalidSessionId: The session id or the owner is not valid.
        """
        keys = self.keys.session(session_id)
        return SessionCalls(keys, self.settings, clock=self.clock, owner=owner, sender=self.sender)

    def queue_calls(self, session_id: str) -> QueueCalls:
        """Return the workers' calls about one session.

        Raises:
            InvalidSessionId: The session id is not valid.
        """
        return QueueCalls(self.keys.session(session_id), self.settings, self.clock)

    async def ping(self) -> bool:
        """Return True if Redis answers. A server that cannot save counts as up: it refuses PING, but serves reads.

        Raises:
            StoreUnavailable: Redis did not answer in time.
        """
        try:
            return await self.run(namespace_calls.ping())
        except StoreUnavailable as refused:
            if refused.reason != "MISCONF":
                raise
            return True

    async def server_time_ms(self) -> int:
        """Return the time of the server, or of the memory's `clock` if it has one, in milliseconds.

        Raises:
            StoreUnavailable: Redis did not answer in time.
            InvalidTime: The clock returned something that is not a time.
        """
        if self.clock is not None:
            return clock_ms(self.clock)
        return await self.run(namespace_calls.server_time_ms())

    def _within_s(self, begun_s: float) -> float:
        """Return the seconds to wait for a reply to a call that began at `begun_s`."""
        return max(0.001, min(self.availability.reply_timeout_s, self.settings.deadline_s - (monotonic() - begun_s)))

    async def _quarantine_unless(self, is_kept: bool, corrupt: CorruptSession, begun_s: float) -> None:
        if is_kept:
            raise corrupt
        await self.quarantine(corrupt, begun_s)

    async def quarantine(self, corrupt: CorruptSession, begun_s: float | None = None) -> None:
        """Put an unreadable session into quarantine.

        Raises:
            StoreUnavailable: Redis did not answer in time.
        """
        assert corrupt.session_id is not None
        place, settings = of_session(self.keys.session(corrupt.session_id)), self.settings
        seen = await self.send(look(place, place.live()), begun_s=begun_s)
        note = describe_damage(seen, corrupt.epoch, corrupt.session_id)
        if note is not None:
            await self.run(set_aside(place, now_ms(), seen, note, settings.idle_timeout_ms), begun_s=begun_s)
        session = session_hash(corrupt.session_id)
        log_fields = facts(
            op="quarantine", session=session, namespace=self.keys.namespace, error=type(corrupt).__name__
        )
        log.error("session %s: put into quarantine and started afresh: %s", session, corrupt.text, extra=log_fields)

    def _transmit(self, call: Call[Any], timeout_s: float) -> Awaitable[list[Any]]:
        if call.sends is not None:
            call.sends.append(timeout_s)
        if call.is_apart or (self._apart.ranges and call in self._apart):
            return self._apart.send(call, timeout_s)
        if call.is_independent:
            return self._gather(call, timeout_s)
        if call.confirm:
            wanted = Wanted(call.confirm, min(self.settings.confirm_timeout_s, self.settings.deadline_s))
            return self.transport.run_confirmed(call.commands, timeout_s, call.script, wanted)
        return self.transport.run(call.commands, timeout_s, call.script, call.session_id)

    async def _gather(self, call: Call[T], timeout_s: float) -> list[Any]:
        """Return the replies of all nodes. A missing reply is replaced by the call's `absent`, if it has one."""
        return call.fill_absent(await self.transport.run_independent(call.commands, timeout_s))

    async def _wait_to_begin(self, call: Call[Any], breaker: Breaker, begun_s: float) -> int:
        """Wait for earlier appends and edits of the session, and return this one's number. Raises StoreUnavailable."""
        left_s = self.settings.deadline_s - (monotonic() - begun_s)
        number = await self._gate.wait(call.session_id, left_s, is_alone=call.op is Op.CLEAR)
        if number and breaker.is_closed and monotonic() - begun_s < self.settings.deadline_s:
            return number
        if number:
            self._gate.end(call.session_id, number)
        if not breaker.is_closed:
            raise self.availability.away_error(breaker, call.session_id)
        redis = redis_at(place_of(self.transport, call.commands))
        text = f"{redis} did not answer earlier changes of the session in time, so this one was not sent"
        raise StoreUnavailable(text, call.session_id, "TimeoutError")

    async def _retry(
        self, call: Call[T], failure: ServerError | ConnectionLost | asyncio.CancelledError, begun_s: float
    ) -> T:
        if isinstance(failure, asyncio.CancelledError):
            self._unsettled.note(call)
            raise failure
        self._gate.resend(call.session_id)
        left_s = self.settings.deadline_s - (monotonic() - begun_s)
        place, budget = place_of(self.transport, call.commands), self._budget if call.op.patience else None
        timeout_s = self.availability.reply_timeout_s
        retries = Retries(call.session_id, left_s, timeout_s, place=place, budget=budget)
        try:
            return await self._resend(call, failure, retries, begun_s)
        except BaseException:
            if retries.may_be_done or call.was_sent:
                self._unsettled.note(call)
            raise

    async def _resend(
        self, call: Call[T], failure: ServerError | ConnectionLost, retries: Retries, begun_s: float
    ) -> T:
        while True:
            timeout_s = await self._wait_to_resend(call, failure, retries, begun_s)
            breaker = self.availability.breaker_of(call)
            self._raise_if_away(breaker, call, retries)
            call = self._apart.divide(call.again(), failure)
            try:
                value = call.finish(await self._transmit(call, timeout_s))
                breaker.answered_s = begun_s
                return value
            except (ServerError, ConnectionLost) as another:
                failure = another

    async def _wait_to_resend(
        self, call: Call[T], failure: ServerError | ConnectionLost, retries: Retries, begun_s: float
    ) -> float:
        """Wait until the next attempt, and return its timeout in seconds. May open the breaker.

        Raises the errors of `Retries`, and StoreUnavailable if Redis counts as down.
        """
        retries.note(failure)
        if isinstance(failure, ServerError):
            self.availability.breaker_of(call).answered_s = begun_s
            refused_for_now = call.needs_new_sending(failure) or must_divide(call, failure)
            await self.transport.sleep(0.0 if refused_for_now else retries.pause_s(failure))
            return retries.timeout_s()
        if monotonic() - begun_s >= self._patience_s * _PATIENCE:
            self.availability.note_unanswered(begun_s, failure)
        availability = self.availability
        at_fault = availability.breaker_at_fault(failure) if call.is_independent else availability.breaker_of(call)
        self._raise_if_away(at_fault, call, retries)
        try:
            await self.transport.sleep(retries.pause_s(failure))
            return retries.timeout_s()
        except StoreUnavailable:
            self.availability.note_unanswered(begun_s, failure)
            raise

    def _raise_if_away(self, breaker: Breaker, call: Call[T], retries: Retries) -> None:
        if not breaker.is_closed:
            raise self.availability.away_error(breaker, call.session_id, may_be_done=retries.may_be_done)

    def _tell_of_breaker(self, state: BreakerState, breaker: Breaker, away_s: float) -> None:
        # Before the first contact and without the fallback, the error of the first call already says this.
        is_news = self.agreement.is_agreed or self.fallback is not None
        log_change(state, breaker, away_s, self.keys.namespace, logging.ERROR if is_news else logging.DEBUG)
        if self.fallback is not None and state is BreakerState.OPEN:
            self.fallback.start_probing()
        if self.hook is not None:
            self.hook.tell(Op.BREAKER, state.value, monotonic() - away_s, None, None)
