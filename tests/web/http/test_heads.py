"""A head that is too large or too slow is refused; a head within the limits is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.http_connection import ANSWER, REQUEST, Protocol, answer_whole, turn

from redismem.web.http.protocol import HEAD_BYTES

OPEN = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def feed(protocol: Protocol, part: bytes, size_bytes: int) -> None:
    """Send `part` repeatedly, up to `size_bytes` or until the connection closes."""
    for _ in range(0, size_bytes, len(part)):
        if protocol.wire.is_closing():
            return
        protocol.data_received(part)


@pytest.mark.parametrize("part", [b"a" * 1_000, b"x-a: y\r\n" * 100], ids=["one header", "many headers"])
@pytest.mark.parametrize("begin", [OPEN + b"x: ", b"GET /"], ids=["headers", "line"])
async def test_a_head_without_an_end_is_refused(begin: bytes, part: bytes) -> None:
    protocol = Protocol(answer_whole)
    protocol.data_received(begin)
    feed(protocol, part, 10 * HEAD_BYTES)
    answer, last = protocol.wire.sent
    assert isinstance(answer, bytes)
    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert last == "close"
    assert sum(len(value) for _, value in protocol.headers) <= HEAD_BYTES
    protocol.connection_lost(None)


async def test_a_large_head_within_the_limit_is_answered() -> None:
    protocol = Protocol(answer_whole)
    protocol.data_received(OPEN)
    feed(protocol, b"x-a: %s\r\n" % (b"y" * 1_000), HEAD_BYTES - 4_000)
    await protocol.ask(b"\r\n")
    assert protocol.wire.sent == [ANSWER]
    protocol.connection_lost(None)


async def test_trailers_count_as_head_and_the_body_does_not() -> None:
    is_complete = asyncio.Event()

    async def waiting(scope: Any, send: Any) -> None:
        del scope, send
        await is_complete.wait()

    protocol = Protocol(waiting)
    protocol.data_received(CHUNKED)
    feed(protocol, b"400\r\n" + bytes(1_024) + b"\r\n", 10 * HEAD_BYTES)
    assert protocol.wire.sent == []
    protocol.data_received(b"0\r\n")
    feed(protocol, b"x-a: y\r\n" * 100, 10 * HEAD_BYTES)
    assert protocol.wire.sent[-1] == "close"
    protocol.connection_lost(None)
    is_complete.set()
    while protocol.tasks:
        await turn()


async def test_more_bytes_of_a_head_do_not_extend_its_time() -> None:
    protocol = Protocol(answer_whole)
    protocol.pass_time(4)
    protocol.data_received(OPEN)
    protocol.pass_time(4)
    protocol.data_received(b"x-a: y\r\n")
    assert protocol.wire.sent == []
    protocol.pass_time(1)
    assert protocol.wire.sent == ["close"]
    protocol.connection_lost(None)


async def test_a_connection_without_a_request_is_closed() -> None:
    protocol = Protocol(answer_whole)
    protocol.pass_time(5)
    assert protocol.wire.sent == ["close"]
    protocol.connection_lost(None)


async def test_half_a_head_behind_a_request_does_not_end_its_response() -> None:
    may_end = asyncio.Event()

    async def slowly(scope: Any, send: Any) -> None:
        await may_end.wait()
        await answer_whole(scope, send)

    protocol = Protocol(slowly)
    protocol.data_received(REQUEST + OPEN)
    protocol.pass_time(60)
    assert protocol.wire.sent == []
    may_end.set()
    await protocol.ask(b"\r\n")
    assert b"".join(part for part in protocol.wire.sent if isinstance(part, bytes)).count(b"HTTP/1.1 201") == 2
    protocol.connection_lost(None)
