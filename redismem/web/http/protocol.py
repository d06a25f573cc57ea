"""Coalesce everything sent to a connection during one event-loop iteration into a single write: head and body together.

An application may take a body and send an answer as a whole by what stands at `scope["extensions"][WHOLE]`, an
extension of ASGI (https://asgi.readthedocs.io/en/stable/extensions.html): that saves three events for each request, and
a second reading of headers that it has made itself.

A request whose head does not end, or does not end in time, is refused here: nothing behind it has heard of it yet.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from redismem.web.http.problems import Problem

HELD_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""A request's head, its trailers and the sizes of its chunks, all together, beside what its first read brought."""
WHOLE = "redismem.whole"


class Gathered:
    """A transport that writes at the end of the turn; sooner, if more is there than a socket takes at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing  # asked after each answer
        self._held: list[bytes] = []
        self._held_bytes = 0

    def write(self, part: bytes) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(part)
        self._held_bytes += len(part)
        if self._held_bytes > HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        parts, self._held, self._held_bytes = self._held, [], 0
        if parts and not self._transport.is_closing():  # the other side may have gone meanwhile
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._held.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Gathering(HttpToolsProtocol):
    """uvicorn's protocol over such a transport, with one timer a connection for how long it may be idle.

    Idle is who has sent no request, or no whole head of one.
    """

    transport: Gathered  # type: ignore[assignment]
    _idle_since_s = math.inf
    _has_begun = False
    """A request has, and is not whole."""
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Gathered(transport, self.loop))  # type: ignore[arg-type]
        self._extensions: Any = {WHOLE: {"body": self._taken, "send": self._answer}}
        self._idle_since_s = self.loop.time()
        self._look_again(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        had_begun, since_s = self._has_begun, self._idle_since_s
        if had_begun:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._has_begun:
            return
        if self._head_bytes > HEAD_BYTES:
            self._refuse(Problem("head_too_large", f"a head has at most {HEAD_BYTES} bytes"))
        elif self._owes_nothing() and (self.cycle is None or self.cycle.scope is not self.scope):
            self._idle_since_s = since_s if had_begun else self.loop.time()  # of this request there is no whole head

    def _owes_nothing(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        """Ends the connection; says why, if no answer is on its way."""
        self.logger.warning("A request was refused: %s.", problem.title)
        if self._owes_nothing():
            body = problem.document()
            headers = [*problem.headers(), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
            lines = b"".join(b"%s: %s\r\n" % header for header in headers)
            self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[problem.status], lines, body))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = self._extensions  # the same for all: garbage that refers to itself costs a search
        self._has_begun, self._head_bytes = True, 0

    def on_body(self, body: bytes) -> None:
        self._head_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_begun = False
        super().on_message_complete()

    def _taken(self, scope: Any) -> bytes | None:
        """The body of the request of this scope, if all of it is there: nobody else receives it then."""
        cycle = self.cycle
        if cycle.scope is not scope or cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def _answer(self, scope: Any, status: int, lines: bytes, body: bytes) -> bool:
        """Sends the answer to the request of this scope; False: nothing was sent, and it has to be sent in parts.

        `lines`: the headers, each with its end of line; the length of the body among them.
        """
        cycle = self.cycle
        is_latest = cycle.scope is scope and not cycle.response_started and not cycle.disconnected
        if not is_latest or not cycle.keep_alive or self.flow.write_paused:
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[status], lines, body))
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        """Does what uvicorn's does, but arms no timer if one is: to arm and cancel one costs as much as a write."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._look_again(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since_s = math.inf

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that has been idle for too long; looks at another again when that may be so."""
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0:
            self.timeout_keep_alive_task = None
            super().timeout_keep_alive_handler()
        else:
            self._look_again(min(left_s, self.timeout_keep_alive))

    def _look_again(self, after_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(after_s, self.timeout_keep_alive_handler)
