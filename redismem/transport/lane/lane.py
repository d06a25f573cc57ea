"""The lane: all calls of a process to one node share one connection, except large ones, which have a second one.

Calls of one event-loop iteration leave together, in few writes. Replies come in the order of the calls, so a reply
belongs to the oldest pending call. A call stays in this order until its replies have come, even if its caller was
cancelled. Calls have no task and no timer of their own.
"""

from __future__ import annotations

import asyncio
import math
import threading
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import partial
from itertools import chain
from typing import Any

from redismem.concurrency import forks
from redismem.concurrency.loops import at_loop_end
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.admission import Admission, Reason
from redismem.transport.base import reason_of
from redismem.transport.lane.alarm import Alarm
from redismem.transport.lane.attempts import Attempts
from redismem.transport.lane.connection import LARGE_BYTES, RECONNECTING, Connection, PendingCall, end_late
from redismem.transport.lane.large import LargeCalls
from redismem.transport.lane.opening import connect
from redismem.transport.replicas import Confirming, Line, Wanted
from redismem.transport.url import Address

_LINE_COUNT = 8_192
_PING: Command = ("PING",)


class Lane:
    """A transport to one node. Connects on demand, with a connection for each event loop that uses it.

    The lane itself serves the first loop. Each further loop that runs at the same time gets a twin. When a loop shuts
    down, its connection is closed, and the next new loop takes its place.

    At most `max_calls_count` calls with `max_bytes` bytes are sent and pending. Thousands more wait in line, each until
    its own deadline. Further calls are refused at once, because they would only delay the others. If no reply comes for
    `stall_s`, the lane closes the connection. An attempt to connect may take as long, and each further one twice as
    long as the one before, up to `connect_s` if that is longer.
    """

    repeats = False
    blocks = False
    nodes = None

    def __init__(
        self,
        address: Address,
        *,
        stall_s: float = 1,
        connect_s: float = 0,
        max_calls_count: int = 4096,
        max_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._address = address
        self.place = address.place
        self._stall_s, self._connect_s = stall_s, max(stall_s, connect_s)
        self._max_calls_count, self._max_bytes = max_calls_count, max_bytes
        self._is_closed = False
        self._admission = Admission(self.place, stall_s)
        self._forget_end: Callable[[], None] = lambda: None
        self.reset()
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Begin without connections in a forked process. The old ones belong to the event loops of the parent."""
        self._forget_end()
        self._lock = threading.Lock()
        self._twins: dict[asyncio.AbstractEventLoop, Lane] = {}
        self._start_over()

    def _start_over(self) -> None:
        self._admission.end()
        self._admission = Admission(self.place, self._stall_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._confirming: Confirming | None = None
        self._large = LargeCalls()
        self._second: Lane | None = None
        self._connection: Connection | None = None
        self._connector: asyncio.Task[None] | None = None
        self._line: deque[PendingCall] = deque()
        self._attempts = Attempts(self._stall_s, self._connect_s)
        self._alarm = Alarm(self._end_late, self._stall_s)

    def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> Awaitable[list[Any]]:
        if len(commands) == 1:
            return self._start(resp.encode(commands[0]), 1, False, script, timeout_s, commands, subject)
        content = resp.encode_transaction(commands)
        return self._start(content, len(commands) + 2, True, script, timeout_s, commands, subject)

    def run_confirmed(
        self,
        commands: Sequence[Command],
        timeout_s: float,
        script: Script | None,
        wanted: Wanted,
        asking: bool = False,
    ) -> Awaitable[list[Any]]:
        """Return the replies of `run`, then the number of replicas that have the write, over a second connection."""
        loop = asyncio.get_running_loop()
        if (loop is not self._loop or self._is_closed) and (lane := self._enter(loop)) is not self:
            return lane.run_confirmed(commands, timeout_s, script, wanted, asking)
        if self._confirming is None:
            self._confirming = Confirming(self._new_lane(self._stall_s + wanted.wait_s))
        return self._confirming.run(commands, timeout_s, script, wanted, asking)

    def _new_lane(self, stall_s: float) -> Lane:
        return Lane(self._address, stall_s=stall_s, connect_s=self._connect_s)

    def send(self, content: bytes, reply_count: int, timeout_s: float) -> Awaitable[list[Any]]:
        """Send encoded commands, and return their replies."""
        return self._start(content, reply_count, False, None, timeout_s)

    def reconnect(self) -> None:
        """Close the connections, because the address may now lead to another node."""
        for lane in (self, self._second):
            if lane is not None and lane._connection is not None:
                lane._connection.lose(RECONNECTING)

    def run_independent(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        if not commands:
            return _nothing()
        return self._start(resp.encode_independent(commands), len(commands), False, None, timeout_s)

    def run_if_up(self, commands: Sequence[Command], timeout_s: float) -> Awaitable[list[Any]]:
        """Run commands as `run_independent` does, but fail as soon as an attempt to connect fails."""
        loop = asyncio.get_running_loop()
        lane = self if loop is self._loop else self._enter(loop)
        attempts, is_failing = lane._attempts, lane._attempts.is_failing
        sent = [_PING] if is_failing else commands  # further attempts need a call that waits for them
        reply = lane._start(resp.encode_independent(sent), len(sent), False, None, timeout_s)
        if is_failing:
            raise attempts.failure()
        if lane._connection is None:
            attempts.end_if_failed(reply)
        return reply

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far: pending, in line, or to be confirmed."""
        counts = [twin.calls_count for twin in tuple(self._twins.values())]
        counts += [part.calls_count for part in (self._confirming, self._second) if part is not None]
        return len(self._line) + (0 if self._connection is None else len(self._connection.sent)) + sum(counts)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        """End all pending calls. Nothing can be called afterwards."""
        self._is_closed = True
        others, connection, connector = self._others(), self._connection, self._connector
        is_here = self._loop is asyncio.get_running_loop()
        (self._end if is_here else self._end_from_outside)()
        for lane in others:
            await lane.aclose()
        if is_here and connector is not None:
            await asyncio.wait([connector])
        if is_here and connection is not None:
            await connection.closed

    def drop(self) -> None:
        """Close open connections with a warning, if `aclose` was never called."""
        for lane in self._others():
            lane.drop()
        if self._is_closed:
            return
        if self._connection is not None:
            warnings.warn("a memory was not closed: use `async with`, or `aclose()`", ResourceWarning, stacklevel=2)
        self._is_closed = True
        self._end_from_outside()

    def _others(self) -> list[Line]:
        """Return the other lanes that belong to this one: of other event loops, for confirmed and for large calls."""
        confirming: list[Line] = [] if self._confirming is None else [self._confirming.line]
        second: list[Line] = [] if self._second is None else [self._second]
        return [*self._twins.values(), *confirming, *second]

    def _end_from_outside(self) -> None:
        """End all calls from outside the event loop.

        Only the loop itself may complete the futures of the calls.
        """
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._end)
            except RuntimeError:  # a closed loop has no waiting calls
                self._abandon()

    def _abandon(self) -> None:
        """Close the connection of an event loop that was closed without a shutdown."""
        connection, confirming, second = self._connection, self._confirming, self._second
        self._forget_end()
        self._start_over()
        if connection is not None:
            connection.abandon()
        if confirming is not None:
            confirming.line.drop()
        if second is not None:
            second._abandon()

    def _end(self) -> None:
        """End all calls, and begin to close the connection. Another event loop may use the lane from then on."""
        with self._lock:
            connection, connector, alarm = self._connection, self._connector, self._alarm
            confirming, line = self._confirming, self._line
            self._forget_end()
            self._start_over()
        for call in line:
            call.end(ConnectionLost("closed", sent=False))
        if confirming is not None:
            confirming.close()
        alarm.cancel()
        if connector is not None:
            connector.cancel()
        if connection is not None:
            connection.lose("closed")

    def _start(
        self,
        content: bytes,
        reply_count: int,
        is_transaction: bool,
        script: Script | None,
        timeout_s: float,
        commands: Sequence[Command] = (),
        subject: Subject = None,
    ) -> asyncio.Future[list[Any]]:
        """Send the call, or put it in line. The future is done after `timeout_s` at the latest."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop and (lane := self._enter(loop)) is not self:
            return lane._start(content, reply_count, is_transaction, script, timeout_s, commands, subject)
        now = loop.time()
        until, reply = now + timeout_s, loop.create_future()
        call = PendingCall(content, reply_count, is_transaction, reply, now, until, script, commands, subject)
        large = self._large
        lane = self._lane_of(call) if len(content) > LARGE_BYTES or large.windows or large.pending else self
        connection = lane._connection
        if connection is not None and connection.sent and not lane._admission.is_marked:
            lane._admission.mark(loop, connection)
        if connection is not None and not lane._line and (not connection.sent or lane._has_room(connection, call)):
            connection.send(call, now)
        elif len(lane._line) >= _LINE_COUNT:
            crowd = f"{len(lane._line)} calls of this process are already waiting for it"
            raise ConnectionLost(Reason.CROWD, sent=False, text=crowd, lasts=True, crowded=True)
        else:
            lane._line.append(call)
            lane._want_connection()
        wake_at = now + min(timeout_s, lane._stall_s)
        if wake_at < lane._alarm.at:
            lane._alarm.set(loop, wake_at)
        return call.future

    def _lane_of(self, call: PendingCall) -> Lane:
        """Return this lane, or the second one for a call that is large or follows a large one of its session."""
        sent = () if self._connection is None else self._connection.sent
        if not self._large.take(call, chain(sent, self._line)):
            return self
        if self._second is None:
            self._second = self._new_lane(self._stall_s)
            self._second._large = self._large  # it knows which replies are large
            self._second._enter(asyncio.get_running_loop())
        return self._second

    def _enter(self, loop: asyncio.AbstractEventLoop) -> Lane:
        """Return the lane for calls from this event loop: this lane if no other loop uses it, or else a twin."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this memory is closed")
            if loop in self._twins:
                return self._twins[loop]
            for ended in [each for each in self._twins if each.is_closed()]:
                self._twins.pop(ended)._end_from_outside()
            if self._loop is not None and self._loop.is_closed():
                self._abandon()
            lane = self
            if self._loop is not None:
                lane = self._twins[loop] = self._new_lane(self._stall_s)
            lane._loop, lane._forget_end = loop, at_loop_end(lane._end)
            return lane

    def _has_room(self, connection: Connection, call: PendingCall) -> bool:
        """True if the call may be sent beside those without a reply. An idle connection has room for any call."""
        fits = connection.sent_bytes + len(call.content) <= self._max_bytes
        is_free = not connection.is_paused and fits and len(connection.sent) < self._max_calls_count
        return is_free or not connection.sent

    def _admit(self) -> None:
        """Send calls from the head of the line, as long as there is room. Late ones end without being sent."""
        connection, line = self._connection, self._line
        if not line or connection is None or self._loop is None:
            return
        now = self._loop.time()
        while line and (line[0].future.done() or line[0].deadline <= now or self._has_room(connection, line[0])):
            call = line.popleft()
            if call.deadline <= now:
                end_late([call], now, connection.answered_at, "TimeoutError", sent=False)
            elif not call.future.done():
                connection.send(call, now)

    def _forget(self, connection: Connection) -> None:
        """Drop a lost connection, and connect again if calls wait."""
        if connection is self._connection:
            self._connection = None
            # A reconnect by this lane itself does not explain later timeouts.
            self._attempts.note_lost("" if connection.lost_reason == RECONNECTING else connection.lost_reason)
            self._want_connection()

    def _end_line(self, outcome: Callable[[], ServerError | ConnectionLost]) -> None:
        while self._line:
            self._line.popleft().end(outcome())

    def _end_late(self, now: float) -> float:
        """End the calls whose deadline has passed, and return the time of the next deadline.

        A call that was sent stays in the queue of expected replies, so that its replies are recognised and dropped.
        """
        connection = self._connection
        answered_at = -math.inf if connection is None else connection.answered_at
        attempts = self._attempts
        wake_at = end_late(self._line, now, answered_at, attempts.reason or "TimeoutError", attempts.text, sent=False)
        self._line = deque(call for call in self._line if not call.future.done())
        if connection is not None and connection.sent:
            wake_at = min(wake_at, end_late(connection.sent, now, answered_at, "TimeoutError", sent=True))
            stalled_at = connection.advanced_at + self._stall_s
            if stalled_at <= now:
                connection.lose("StalledConnection")
            else:
                wake_at = min(wake_at, stalled_at)
        return wake_at

    async def channel_addresses(self, channels: Sequence[bytes], timeout_s: float) -> Sequence[Address | None]:
        """Return the address of the only node for each channel."""
        del timeout_s
        return [self._address] * len(channels)

    def note_channel_trouble(self, trouble: ServerError | ConnectionLost, place: str) -> None:
        """Do nothing: the address stays."""

    async def _find_address(self) -> Address:
        """Return the address to connect to.

        Raises:
            ServerError: A sentinel refused to return it.
            ConnectionLost: No sentinel replied.
        """
        return self._address

    def _want_connection(self) -> None:
        """Start to connect if calls wait and there is no connection."""
        is_connecting = self._connector is not None and not self._connector.done()
        if self._line and self._connection is None and not is_connecting and self._loop is not None:
            self._connector = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Connect, and retry as long as a call waits."""
        while any(not call.future.done() for call in self._line):
            pause_s, attempt_s = self._attempts.begin()
            await asyncio.sleep(pause_s)
            try:
                address = await self._find_address()
                loop, on_large = asyncio.get_running_loop(), self._large.note_reply
                connection = Connection(loop, self._admit, self._forget, on_large)
                self._connection = await connect(connection, address, attempt_s)
            except ServerError as refused:
                self._end_line(partial(ServerError, refused.word, refused.text))
            except ConnectionLost as failure:
                self._attempts.fail(failure.reason, failure.text)
                if failure.lasts:
                    self._end_line(partial(copy, failure))
            except (OSError, UnicodeError) as failure:
                self._attempts.fail(reason_of(failure))
            else:
                self._attempts.succeed()
                self._admit()
                return


async def _nothing() -> list[Any]:
    return []
