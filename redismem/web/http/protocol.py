"""A shortcut in uvicorn's protocol: fewer events and writes per request, and limits for the head of a request.

The ASGI extension `WHOLE` (https://asgi.readthedocs.io/en/stable/extensions.html) lets an application take a whole body
and send a whole response in one write. It saves three events per request, and uvicorn's check of headers that the
application itself has made.

docs/decisions/uvicorn-protocol.md contains the measurements, and says how to remove this shortcut.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from redismem.web.http.problems import Problem
from redismem.web.http.request_queue import Priority, RequestQueue

HEAD_BYTES = 64 * 1024
"""The limit of a request's head, trailers and chunk sizes together. The first read of a request does not count."""
WHOLE = "redismem.whole"
_BUFFER_BYTES = 64 * 1024


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as they are sent."""
    return b"".join([b"%s: %s\r\n" % header for header in headers])


class BufferedTransport:
    """A transport that writes at the end of the loop iteration, or once its buffer is full."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self.is_closing = transport.is_closing  # called per response: `__getattr__` is slower
        self._parts: list[bytes] = []
        self._parts_bytes = 0

    def write(self, part: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(part)
        self._parts_bytes += len(part)
        if self._parts_bytes > _BUFFER_BYTES:
            self._flush()

    def _flush(self) -> None:
        parts, self._parts, self._parts_bytes = self._parts, [], 0
        if parts and not self._transport.is_closing():  # the client may have disconnected
            self._transport.write(b"".join(parts))

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._parts.clear()
        self._transport.abort()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's protocol over a buffered transport, with limits for the size and time of a head, and `WHOLE`.

    A connection is idle while no response is due and no head is complete. One timer per connection watches for this.
    uvicorn arms and cancels a timer per response, which costs more than writing the response.
    """

    queue: RequestQueue | None = None
    """The queue of the server; without it each request is begun at once."""
    transport: BufferedTransport  # type: ignore[assignment]
    _idle_since_s = math.inf
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(BufferedTransport(transport, self.loop))  # type: ignore[arg-type]
        # One dict for all requests: a dict per scope would be cyclic garbage.
        self._extensions: Any = {WHOLE: {"body": self._take_body, "send": self._send_whole}}
        self._idle_since_s = self.loop.time()
        self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._idle_timer.cancel()

    def data_received(self, data: bytes) -> None:
        previous_scope = self.scope
        self._head_bytes += len(data)
        super().data_received(data)
        awaits_head = self.cycle is None or self.cycle.scope is not self.scope
        if self._head_bytes > HEAD_BYTES and (awaits_head or self.cycle.more_body):
            self._refuse(Problem("head_too_large", f"a head has at most {HEAD_BYTES} bytes"))
        elif not self._is_answered():
            self._idle_since_s = math.inf
        elif self.scope is not previous_scope:  # a head has begun; more bytes of it do not extend its time
            self._idle_since_s = self.loop.time()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._head_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._head_bytes -= len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.parser.should_upgrade():
            self.cycle.keep_alive = False  # the parser would read the body as the next request

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cycle = self.cycle
        cycle.more_body = False  # uvicorn leaves it if the request was answered before
        if cycle.response_complete and not cycle.keep_alive and not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, and close; only close if the client would read another answer in this."""
        cycle = self.cycle
        is_next = cycle is None or (cycle.response_complete and not cycle.more_body)
        is_body = cycle is not None and cycle.more_body and not cycle.response_started
        if not self.pipeline and (is_next or is_body):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """Let the queue begin a request by its priority, or refuse it."""
        if self.transport.is_closing():  # the request before this one was the last
            return
        begin, queue, scope = partial(super()._start_asgi_task, cycle, app), self.queue, cycle.scope
        if queue is None or (priority := queue.priority_of(scope)) is Priority.AT_ONCE:
            begin()
        elif queue.is_full(priority) and self._can_send_whole(scope):
            self._send_whole(scope, *queue.refuse(scope))
        else:
            queue.begin(self.loop, priority, scope, begin)

    def on_response_complete(self) -> None:
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since_s = self.loop.time()

    def _check_idle(self) -> None:
        """Close the connection if it has been idle for too long; else check again when it may have been."""
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0:
            self.timeout_keep_alive_handler()
        else:
            self._idle_timer = self.loop.call_later(min(left_s, self.timeout_keep_alive), self._check_idle)

    def _is_answered(self) -> bool:
        """True if no response is due."""
        return self.cycle is None or self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        """Close the connection, after a response with the problem unless another response is due."""
        if self.transport.is_closing():
            return
        self.logger.warning("A request was refused: %s.", problem.title)
        if self._is_answered():
            headers, body = problem.whole()
            lines = header_lines([*headers, (b"connection", b"close")])
            self.transport.write(b"%s%s\r\n%s" % (STATUS_LINE[problem.status], lines, body))
        self.transport.close()

    def _take_body(self, scope: Any) -> bytes | None:
        """Return the body of the request of this scope, and forget it; `None` if the body is not complete."""
        cycle = self.cycle
        if cycle.scope is not scope or cycle.more_body or cycle.waiting_for_100_continue or cycle.disconnected:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.message_event.clear()
        return body

    def _can_send_whole(self, scope: Any) -> bool:
        cycle = self.cycle
        is_latest = cycle.scope is scope and not cycle.response_started and not cycle.disconnected
        return is_latest and not self.flow.write_paused

    def _send_whole(self, scope: Any, status: int, lines: bytes, body: bytes) -> bool:
        """Send the response to the request of this scope. False means that nothing was sent: use ASGI events instead.

        `lines` are the headers, each with its line end, and include the length of the body.
        """
        if not self._can_send_whole(scope):
            return False
        cycle = self.cycle
        if cycle.waiting_for_100_continue:
            cycle.keep_alive = False  # the client may leave out the body, so where its next request begins is unknown
        closing = b"" if cycle.keep_alive else b"connection: close\r\n"
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if scope["method"] == "HEAD":
            body = b""
        self.transport.write(b"%s%s%s\r\n%s" % (STATUS_LINE[status], lines, closing, body))
        # With unread bytes of a body the kernel would reset the connection, and the client lose its answer.
        if closing and (cycle.waiting_for_100_continue or not cycle.more_body):
            self.transport.close()
        cycle.on_response()
        return True
