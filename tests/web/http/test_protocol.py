"""Responses leave in one write and in the order of their requests; idle connections are closed."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from support.http_connection import ANSWER, REQUEST, Protocol, Wire, answer_whole, turn
from support.http_service import RunningService

from redismem.web.http.protocol import _BUFFER_BYTES, WHOLE, BufferedTransport


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def buffered(wire: Wire) -> BufferedTransport:
    return BufferedTransport(wire, asyncio.get_running_loop())


async def test_writes_of_one_loop_iteration_leave_together(wire: Wire, buffered: BufferedTransport) -> None:
    buffered.write(b"head ")
    buffered.write(b"body")
    assert wire.sent == []
    await turn()
    buffered.write(b"next")
    await turn()
    assert wire.sent == [b"head body", b"next"]


async def test_a_full_buffer_is_written_at_once(wire: Wire, buffered: BufferedTransport) -> None:
    buffered.write(b"head")
    buffered.write(bytes(_BUFFER_BYTES))
    assert wire.sent == [b"head" + bytes(_BUFFER_BYTES)]
    buffered.write(b"tail")
    await turn()
    assert wire.sent[1:] == [b"tail"]


async def test_the_buffer_is_written_before_the_connection_closes(wire: Wire, buffered: BufferedTransport) -> None:
    buffered.write(b"last")
    buffered.close()
    await turn()
    assert wire.sent == [b"last", "close"]


async def test_nothing_is_written_to_an_aborted_connection(wire: Wire, buffered: BufferedTransport) -> None:
    buffered.write(b"lost")
    buffered.abort()
    await turn()
    assert wire.sent == ["abort"]
    buffered.write(b"late")
    await turn()
    assert wire.sent == ["abort"]


async def test_other_calls_reach_the_transport(buffered: BufferedTransport) -> None:
    assert buffered.get_extra_info("name") == "wire"
    assert not buffered.is_closing()


async def test_head_and_body_of_a_response_arrive_together(http: RunningService) -> None:
    with socket.create_connection((http.client.base_url.host, http.client.base_url.port or 0)) as asking:
        asking.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await asyncio.to_thread(asking.recv, 65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body


async def test_a_whole_response_is_one_write_and_the_next_request_is_served() -> None:
    protocol = Protocol(answer_whole)
    await protocol.ask(REQUEST)
    await protocol.ask(REQUEST)
    assert protocol.wire.sent == [ANSWER, ANSWER]
    assert protocol.server_state.total_requests == 2


async def test_a_response_to_head_has_no_body() -> None:
    protocol = Protocol(answer_whole)
    await protocol.ask(REQUEST.replace(b"GET", b"HEAD"))
    assert protocol.wire.sent == [ANSWER.removesuffix(b"ok")]


@pytest.mark.parametrize(
    ("ahead", "is_told"),
    [
        (REQUEST, True),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n", True),
        (REQUEST[:-2] + b"x-slow: 1\r\n\r\n", False),
        (REQUEST[:-2] + b"x-slow: 1\r\n\r\n" + REQUEST[:-2] + b"transfer-encoding: chunked\r\n\r\n", False),
    ],
    ids=["the next request", "a body", "behind a request under way", "a body behind a request under way"],
)
async def test_bytes_that_are_not_http_are_never_the_answer_to_another_request(ahead: bytes, is_told: bool) -> None:
    async def answer(scope: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        if not {b"x-slow", b"transfer-encoding"} & headers.keys():
            await answer_whole(scope, send)

    protocol = Protocol(answer)
    protocol.data_received(ahead)
    while protocol.tasks and ahead == REQUEST:
        await turn()
    protocol.data_received(b"no HTTP\r\n\r\n")
    told = b"".join(part for part in protocol.wire.sent if isinstance(part, bytes))
    assert (b"HTTP/1.1 400 " in told) is is_told
    assert protocol.wire.sent[-1] == "close"


async def test_a_body_behind_an_upgrade_is_no_request() -> None:
    asked: list[str] = []

    async def answer(scope: Any, send: Any) -> None:
        asked.append(scope["method"])
        await answer_whole(scope, send)

    protocol = Protocol(answer)
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: %d\r\n\r\n"
    protocol.data_received(head % len(REQUEST))
    await protocol.ask(REQUEST)
    assert (asked, protocol.wire.sent[-1]) == (["POST"], "close")


async def test_pipelined_requests_are_answered_in_order() -> None:
    numbers = iter(range(3))

    async def numbered(scope: Any, send: Any) -> None:
        body = b"%d%d" % (next(numbers), 0)
        if not scope["extensions"][WHOLE]["send"](scope, 200, b"content-length: 2\r\n", body):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": body})

    protocol = Protocol(numbered)
    await protocol.ask(REQUEST * 3)
    told = b"".join(part for part in protocol.wire.sent if isinstance(part, bytes))
    assert [part[-2:] for part in told.split(b"HTTP/1.1 200 OK\r\n")[1:]] == [b"00", b"10", b"20"]


async def test_connection_close_is_confirmed_and_obeyed() -> None:
    protocol = Protocol(answer_whole)
    await protocol.ask(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    told = b"".join(part for part in protocol.wire.sent if isinstance(part, bytes))
    assert b"connection: close\r\n" in told
    assert protocol.wire.sent[-1] == "close"


async def test_a_response_is_sent_once() -> None:
    results: list[bool] = []

    async def twice(scope: Any, send: Any) -> None:
        del send
        results.extend(
            scope["extensions"][WHOLE]["send"](scope, 201, b"content-length: 2\r\n", b"ok") for _ in range(2)
        )

    protocol = Protocol(twice)
    await protocol.ask(REQUEST)
    assert results == [True, False]
    assert protocol.wire.sent == [ANSWER]


async def test_a_connection_is_closed_once_it_is_idle_for_too_long() -> None:
    protocol = Protocol(answer_whole)
    for _ in range(3):
        protocol.pass_time(4)
        await protocol.ask(REQUEST)
    protocol.pass_time(4)
    assert protocol.wire.sent == [ANSWER] * 3
    protocol.pass_time(1)
    assert protocol.wire.sent == [ANSWER] * 3 + ["close"]
    protocol.connection_lost(None)


async def test_one_timer_per_connection_fires_when_it_may_be_idle() -> None:
    protocol = Protocol(answer_whole)
    timer = protocol._idle_timer
    await protocol.ask(REQUEST)
    assert protocol._idle_timer is timer
    assert protocol.timeout_keep_alive_task is None, "uvicorn armed its own"
    protocol.pass_time(4)
    assert 0 < protocol._idle_timer.when() - protocol.loop.time() <= 1
    protocol.connection_lost(None)
    assert protocol._idle_timer.cancelled()


async def test_bytes_between_requests_do_not_keep_a_connection_open() -> None:
    protocol = Protocol(answer_whole)
    for _ in range(2):
        protocol.pass_time(3)
        protocol.data_received(b"\r\n")
    assert protocol.wire.sent == ["close"]
    protocol.connection_lost(None)


async def test_a_body_is_taken_once_it_is_complete() -> None:
    bodies: list[bytes | None] = []

    async def reading(scope: Any, send: Any) -> None:
        while not bodies or bodies[-1] is None:
            bodies.append(scope["extensions"][WHOLE]["body"](scope))
            await turn()
        await answer_whole(scope, send)

    protocol = Protocol(reading)
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nab")
    await turn()
    await protocol.ask(b"cd")
    assert (bodies[0], bodies[-1]) == (None, b"abcd")
    assert protocol.wire.sent == [ANSWER]
