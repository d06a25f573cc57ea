"""One connection of a lane, with its unanswered calls in order."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import hiredis

from redismem.concurrency import forks
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import discard_unsent, keep_alive, reason_of
from redismem.transport.resp import Outcome

# Half of the server's read buffer, so that the server runs the first calls of a burst while the client encodes the
# rest.
_WRITE_BYTES = 8 * 1024
# hiredis moves its unread bytes to the front after each reply, which is slow for a long buffer.
_FEED_BYTES = 16 * 1024
LARGE_BYTES = 32 * 1024
"""A call or a reply over this size is large: it takes more than a millisecond on a link of 200 Mbit/s."""


Failure = ServerError | ConnectionLost
RECONNECTING = "Reconnecting"
_CLOSED = "ConnectionClosed"


class PendingCall(resp.Pending):
    """A call that waits for its replies. If its caller was cancelled, its future is already done."""

    __slots__ = (
        *("__weakref__", "begun_at", "commands", "content", "deadline", "is_transaction", "reply_count"),
        *("script", "subject"),
    )

    def __init__(
        self,
        content: bytes,
        reply_count: int,
        is_transaction: bool,
        future: asyncio.Future[list[Any]],
        begun_at: float,
        deadline: float,
        script: Script | None = None,
        commands: Sequence[Command] = (),
        subject: Subject = None,
    ) -> None:
        self.subject = subject
        self.content = content
        self.commands = commands
        self.begun_at = begun_at
        self.reply_count = reply_count
        self.is_transaction = is_transaction
        self.script = script
        self.future = future
        self.deadline = deadline


def end_late(
    calls: Iterable[PendingCall], now: float, answered_at: float, reason: str, text: str = "", *, sent: bool
) -> float:
    """End calls whose deadline has passed, and return the earliest deadline of the other calls.

    `answered_at` is the time of the last reply to any call. If it falls into the second half of a late call's time, the
    server was not stalled: the call was late because there were too many calls.
    """
    earliest = math.inf
    for call in calls:
        if call.deadline <= now:
            crowded = answered_at > (call.begun_at + call.deadline) / 2
            call.end(ConnectionLost(reason, sent=sent, text=text, crowded=crowded))
        elif not call.future.done():
            earliest = min(earliest, call.deadline)
    return earliest


class Connection(asyncio.Protocol):
    """A connection that sends calls.

    It calls `on_room` when more calls may fit, `on_lost` once, when it is lost, and `on_large` for each call that had a
    large reply.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[], None],
        on_lost: Callable[[Connection], None],
        on_large: Callable[[PendingCall], None],
    ) -> None:
        self._loop = loop
        self._on_room = on_room
        self._on_lost = on_lost
        self._on_large = on_large
        self._unanswered_bytes = 0
        self._reader = resp.reader()
        self._replies: list[Any] = []
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._held = forks.NONE
        self.sent: deque[PendingCall] = deque()
        self.sent_bytes = 0
        self.is_paused = False
        self.advanced_at = 0.0
        """The time of the last reply, or of sending a call while no other call was pending, whichever is later."""
        self.answered_at = -math.inf
        self.lost_reason = ""
        """The reason why the connection is lost; "" while it is in use. Nothing can be sent over a lost connection."""
        self.error: Exception | None = None
        """The error that ended the connection, if any."""
        self.closed: asyncio.Future[None] = loop.create_future()

    @property
    def is_open(self) -> bool:
        """True once the connection is established, including the TLS handshake."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass
        raw = transport.get_extra_info("socket")
        if raw is not None:
            self._held = forks.hold(raw.fileno())
            keep_alive(raw)
        if self.lost_reason:
            self._transport.abort()

    def send(self, call: PendingCall, now: float) -> None:
        """Queue the call and write it in one step, so that replies come in the order of the queue.

        A call on an idle connection is written at once. Later calls of the same event-loop iteration leave together, in
        writes of about 8 KiB.
        """
        assert not self.lost_reason
        sent = self.sent
        if not sent:
            self.advanced_at = now
            if self._transport is not None:
                self._transport.write(call.content)
        else:
            if not self._unwritten:
                self._loop.call_soon(self._write)
            self._unwritten.append(call.content)
            self._unwritten_bytes += len(call.content)
            if self._unwritten_bytes >= _WRITE_BYTES:
                self._write()
        sent.append(call)
        self.sent_bytes += len(call.content)

    def _write(self) -> None:
        if self._unwritten and self._transport is not None:
            content = b"".join(self._unwritten)
            self._unwritten.clear()
            self._unwritten_bytes = 0
            self._transport.write(content)

    def data_received(self, data: bytes) -> None:
        if self.lost_reason:
            return
        try:
            for at in range(0, len(data), _FEED_BYTES):
                fed_bytes = min(_FEED_BYTES, len(data) - at)
                self._reader.feed(data, at, fed_bytes)
                self._unanswered_bytes += fed_bytes
                self._deliver_replies()
        except (resp.OutOfStep, hiredis.HiredisError) as broken:
            if self.answered_at == -math.inf and resp.is_foreign(data):
                while self.sent:
                    self.sent.popleft().end(resp.foreign_server())
            self.lose(type(broken).__name__)
            return
        self._on_room()

    def _deliver_replies(self) -> None:
        """Pass replies to each call that has all of them."""
        now = self._loop.time()
        next_reply, replies, sent, nothing = self._reader.gets, self._replies, self.sent, resp.NOTHING
        is_large = self._unanswered_bytes > LARGE_BYTES
        missing_count = sent[0].reply_count - len(replies) if sent else 0
        while (reply := next_reply()) is not nothing:
            replies.append(reply)
            missing_count -= 1
            if missing_count > 0:
                continue
            if not sent:
                raise resp.OutOfStep("a reply without a call")
            call = sent[0]
            outcome = resp.unpack_transaction(replies) if call.is_transaction else resp.check_replies(replies)
            self._replies = replies = []
            sent.popleft()
            self.sent_bytes -= len(call.content)
            self.advanced_at = self.answered_at = now
            self._unanswered_bytes = 0
            if is_large:
                is_large = False  # the other replies came with the last bytes
                self._on_large(call)
            if type(outcome) is list and type(outcome[0]) is not ServerError:
                call.end(outcome)
            else:
                self._handle_refusal(call, outcome)
            missing_count = sent[0].reply_count if sent else 0
        if not sent and self._reader.has_data():
            raise resp.OutOfStep("the beginning of a reply without a call")

    def _handle_refusal(self, call: PendingCall, outcome: Outcome) -> None:
        """React to an error reply before the caller gets it: load a missing script, or leave a replica."""
        refusal = resp.refusal(outcome)
        word = "" if refusal is None else refusal.word
        if word == "READONLY":
            # The former primary is a replica now. A new connection may lead to its successor.
            self._loop.call_soon(self.lose, RECONNECTING)
        if word == "NOSCRIPT" and call.script is not None:
            self._load(call, call.script)
        else:
            call.end(outcome)

    def _load(self, call: PendingCall, script: Script) -> None:
        """Load the script, then repeat the call. If loading is refused, repeat the call with the script's source.

        Only once per call, because another client may keep flushing scripts. If that has taken more than half of the
        call's time, the call ends with NOSCRIPT: the store sends it again, with a new timeout.
        """
        call.script = None

        def probed(failure: Failure | None) -> None:
            if resp.is_command_refused(failure):
                call.end(resp.may_not_load())
                return
            call.content = resp.encode_source(call.content, script)
            self._send_again(call, failure if isinstance(failure, ConnectionLost) else None)

        def loaded(failure: Failure | None) -> None:
            if resp.is_command_refused(failure) and not self.lost_reason:
                self._ask(call, resp.encode_independent([resp.EVAL_PROBE]), probed)
            elif failure is None and self._loop.time() > (call.begun_at + call.deadline) / 2:
                call.end(resp.loaded_late())
            else:
                self._send_again(call, failure)

        self._ask(call, resp.encode_load(script), loaded)

    def _ask(self, call: PendingCall, content: bytes, then: Callable[[Failure | None], None]) -> None:
        """Send a command on behalf of a call, and pass on its failure."""
        reply = self._loop.create_future()
        reply.add_done_callback(lambda _: then(cast(Failure | None, reply.exception()) or resp.refusal(reply.result())))
        self.send(PendingCall(content, 1, False, reply, call.begun_at, call.deadline), self._loop.time())

    def _send_again(self, call: PendingCall, failure: Failure | None) -> None:
        if failure is not None:
            call.end(failure)
        elif self.lost_reason:
            call.end(ConnectionLost(self.lost_reason, sent=False))
        elif not call.future.done():
            self.send(call, self._loop.time())

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False
        self._on_room()

    def lose(self, reason: str) -> None:
        """Close the connection at once. The outcome of all pending calls is unknown."""
        if not self.lost_reason:
            self.lost_reason = reason
            self._unwritten.clear()
            if self.sent:
                self._discard_unsent()
            while self.sent:
                self.sent.popleft().end(ConnectionLost(reason))
            self._on_lost(self)
        forks.drop(self._held)
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close the socket itself, because the event loop is closed and cannot."""
        self.lost_reason = self.lost_reason or _CLOSED
        forks.drop(self._held)
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        if (wrapped := getattr(raw, "_sock", None)) is not None:  # uvloop has none: it closes its sockets itself
            wrapped.close()

    def _discard_unsent(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            raw = self._transport.get_extra_info("socket")
            if raw is not None:
                discard_unsent(raw)

    def eof_received(self) -> None:
        self.lose(_CLOSED)  # before the transport closes itself, which would first send its buffer

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self.error = None, error
        self.lose(reason_of(error) if error else _CLOSED)
        if not self.closed.done():
            self.closed.set_result(None)

    async def greet(self, opening: tuple[Command, ...]) -> None:
        """Send the greeting, and check the replies.

        Raises:
            ServerError: The server refused the connection.
            ConnectionLost: No reply came.
        """
        if opening and not self.lost_reason:
            content, count = resp.encode_independent(opening), len(opening)
            call = PendingCall(content, count, False, self._loop.create_future(), 0.0, math.inf)
            self.send(call, self._loop.time())
            resp.check_greeting(await call.future, opening)
        if self.lost_reason:
            raise ConnectionLost(self.lost_reason, sent=False)
