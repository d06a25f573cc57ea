"""What is written within a turn of the event loop goes out at once, in its order, and before the connection closes."""

from __future__ import annotations

import asyncio
import socket

import pytest
from support.http_service import Served

from redismem.web.writing import HELD_BYTES, Gathered


class Wire(asyncio.Transport):
    """Notes what a transport is told."""

    def __init__(self) -> None:
        super().__init__({"name": "wire"})
        self.told: list[bytes | str] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        assert not self.is_closing()
        self.told.append(data)

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.told))

    def close(self) -> None:
        self.told.append("close")

    def abort(self) -> None:
        self.told.append("abort")


@pytest.fixture
async def wire() -> Wire:
    return Wire()


@pytest.fixture
async def gathered(wire: Wire) -> Gathered:
    return Gathered(wire, asyncio.get_running_loop())


async def turn() -> None:
    await asyncio.sleep(0)


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
