"""Writes of one event-loop iteration leave together, in order, and before the connection closes."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from support.http_connection import ANSWER, REQUEST, Protocol, Wire, turn, whole
from support.http_service import Served

from redismem.web.http.protocol import HELD_BYTES, WHOLE, Gathered


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def gathered(wire: Wire) -> Gathered:
    return Gathered(wire, asyncio.get_running_loop())


async def test_the_writes_of_a_turn_are_one(wire: Wire, gathered: Gathered) -> None:
    gathered.write(b"head ")
    gathered.write(b"body")
    assert wire.told == []
    await turn()
    gathered.write(b"next")
    await turn()
    assert wire.told == [b"head body", b"next"]


async def test_much_is_not_held(wire: Wire, gathered: Gathered) -> None:
    gathered.write(b"head")
    gathered.write(bytes(HELD_BYTES))
    assert wire.told == [b"head" + bytes(HELD_BYTES)]
    gathered.write(b"tail")
    await turn()
    assert wire.told[1:] == [b"tail"]


async def test_what_is_held_goes_out_before_the_connection_closes(wire: Wire, gathered: Gathered) -> None:
    gathered.write(b"last")
    gathered.close()
    await turn()
    assert wire.told == [b"last", "close"]


async def test_nothing_is_written_to_a_connection_that_is_gone(wire: Wire, gathered: Gathered) -> None:
    gathered.write(b"lost")
    gathered.abort()
    await turn()
    assert wire.told == ["abort"]
    gathered.write(b"late")
    await turn()
    assert wire.told == ["abort"]


async def test_the_rest_is_the_transports_own(gathered: Gathered) -> None:
    assert gathered.get_extra_info("name") == "wire"
    assert not gathered.is_closing()


async def test_an_answer_arrives_in_one_piece(http: Served) -> None:
    """Head and body: whoever reads once has both."""
    with socket.create_connection((http.client.base_url.host, http.client.base_url.port or 0)) as asking:
        asking.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = await asyncio.to_thread(asking.recv, 65_536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert body


async def test_a_whole_answer_is_one_write_and_the_next_request_is_served() -> None:
    protocol = Protocol(whole)
    await protocol.ask(REQUEST)
    await protocol.ask(REQUEST)
    assert protocol.wire.told == [ANSWER, ANSWER]
    assert protocol.server_state.total_requests == 2


async def test_requests_that_come_at_once_are_answered_in_their_order() -> None:
    numbers = iter(range(3))

    async def numbered(scope: Any, send: Any) -> None:
        body = b"%d%d" % (next(numbers), 0)
        if not scope["extensions"][WHOLE]["send"](scope, 200, b"content-length: 2\r\n", body):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": body})

    protocol = Protocol(numbered)
    await protocol.ask(REQUEST * 3)
    told = b"".join(part for part in protocol.wire.told if isinstance(part, bytes))
    assert [part[-2:] for part in told.split(b"HTTP/1.1 200 OK\r\n")[1:]] == [b"00", b"10", b"20"]


async def test_who_wants_no_more_is_told_so_and_the_connection_ends() -> None:
    protocol = Protocol(whole)
    await protocol.ask(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    told = b"".join(part for part in protocol.wire.told if isinstance(part, bytes))
    assert b"connection: close\r\n" in told
    assert protocol.wire.told[-1] == "close"


async def test_an_answer_is_sent_once() -> None:
    taken: list[bool] = []

    async def twice(scope: Any, send: Any) -> None:
        del send
        taken.extend(scope["extensions"][WHOLE]["send"](scope, 201, b"content-length: 2\r\n", b"ok") for _ in range(2))

    protocol = Protocol(twice)
    await protocol.ask(REQUEST)
    assert taken == [True, False]
    assert protocol.wire.told == [ANSWER]


async def test_an_idle_connection_is_closed_and_one_in_use_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = Protocol(whole)
    now_s = protocol.loop.time()
    monkeypatch.setattr(protocol.loop, "time", lambda: now_s)
    await protocol.ask(REQUEST)
    first = protocol.timeout_keep_alive_task
    assert first is not None
    now_s += 4
    await protocol.ask(REQUEST)
    assert protocol.timeout_keep_alive_task is first, "one timer for all of its requests"
    now_s += 4
    protocol.timeout_keep_alive_handler()
    assert "close" not in protocol.wire.told
    again = protocol.timeout_keep_alive_task
    assert again is not None
    assert again.when() == now_s + 1
    now_s += 1
    protocol.timeout_keep_alive_handler()
    assert protocol.wire.told[-1] == "close"
    for timer in (first, again):
        timer.cancel()


async def test_a_connection_that_is_gone_leaves_no_timer() -> None:
    protocol = Protocol(whole)
    await protocol.ask(REQUEST)
    timer = protocol.timeout_keep_alive_task
    assert timer is not None
    protocol.connection_lost(None)
    assert timer.cancelled()


async def test_a_body_is_taken_when_all_of_it_is_there() -> None:
    taken: list[bytes | None] = []

    async def reading(scope: Any, send: Any) -> None:
        while not taken or taken[-1] is None:
            taken.append(scope["extensions"][WHOLE]["body"](scope))
            await turn()
        await whole(scope, send)

    protocol = Protocol(reading)
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n\r\nab")
    await turn()
    await protocol.ask(b"cd")
    assert (taken[0], taken[-1]) == (None, b"abcd")
    assert protocol.wire.told == [ANSWER]
