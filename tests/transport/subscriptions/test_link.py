"""A link to a server that says what no Redis would: it ends, and takes nothing with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from support.checks import until
from support.lanes import SilentServer
from support.subscribed import Hearer, subscribed

CONFIRMED = b"*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n"
ENDED = b"*3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n"


async def answered(adding: Coroutine[Any, Any, bool], server: SilentServer, words: bytes) -> bool:
    """Return the result of an `add` whose first subscription the server answers with these words."""
    task = asyncio.ensure_future(adding)
    await until(lambda: server.has_received(b"SSUBSCRIBE", 1))
    server.say(words)
    return await task


@pytest.mark.parametrize(
    "words",
    [
        b"+OK\r\n",
        b"+PONG\r\n",
        b"*0\r\n",
        b"*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n:1\r\n",
        CONFIRMED,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR max number of clients reached\r\n",
        b"-ERR any\r\n",
    ],
)
async def test_a_reply_to_no_command_ends_the_connection(words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    hearer = Hearer()
    async with SilentServer() as server, subscribed(f"redis://127.0.0.1:{server.port}") as (subscriptions, _):
        assert await answered(subscriptions.add(b"a", hearer), server, CONFIRMED)
        server.say(words)
        await until(lambda: len(server.connections) == 2 and server.has_received(b"SSUBSCRIBE", 2))
        assert not subscriptions.is_on(b"a")
        server.say(b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n" + CONFIRMED)  # of a push, nothing is known
        await until(lambda: hearer.gaps_count)
        assert (subscriptions.is_on(b"a"), subscriptions.refusal, hearer.payloads) == (True, "", [])
    assert not caplog.records


async def test_a_server_with_too_many_clients_refuses_nothing_for_long() -> None:
    async with SilentServer() as server, subscribed(f"redis://127.0.0.1:{server.port}") as (subscriptions, _):
        hearer = Hearer()
        crowded = b"-ERR max number of clients reached\r\n"
        assert not await answered(subscriptions.add(b"a", hearer), server, crowded)
        await until(lambda: server.has_received(b"SSUBSCRIBE", 2))
        assert subscriptions.refusal == ""


@pytest.mark.parametrize("words", [b"+PONG\r\n", CONFIRMED])
async def test_a_reply_to_another_command_ends_the_connection(words: bytes) -> None:
    async with SilentServer() as server, subscribed(f"redis://127.0.0.1:{server.port}") as (subscriptions, _):
        adding = asyncio.ensure_future(subscriptions.add(b"b", Hearer()))
        await until(lambda: server.has_received(b"SSUBSCRIBE", 1))
        server.say(words)
        assert not await adding
        await until(lambda: len(server.connections) == 2)


async def test_a_channel_that_is_left_and_taken_again_waits_for_its_own_confirmation() -> None:
    """The first confirmation belongs to the subscription that has ended."""
    first, second = Hearer(), Hearer()
    async with SilentServer() as server, subscribed(f"redis://127.0.0.1:{server.port}") as (subscriptions, _):
        leaving = asyncio.ensure_future(subscriptions.add(b"a", first))
        other = asyncio.ensure_future(subscriptions.add(b"b", first))
        await until(lambda: server.has_received(b"SSUBSCRIBE", 2))
        subscriptions.remove(b"a", first)
        adding = asyncio.ensure_future(subscriptions.add(b"a", second))
        await until(lambda: server.has_received(b"SSUBSCRIBE", 3))
        server.say(CONFIRMED + CONFIRMED.replace(b"\na\r", b"\nb\r"))
        assert await other
        assert not adding.done()
        server.say(ENDED + CONFIRMED)
        assert await adding
        assert not await leaving
