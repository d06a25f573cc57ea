"""Several memories of one process write one session or record: each lost reply leaves one copy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.conversations import contents, user_message
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Memory
from redismem.blocking import Memory as BlockingMemory
from redismem.record import Change
from redismem.transport.lane.lane import Lane

_MORE = 40
"""More than the append ids that a session keeps."""


@pytest.fixture
def before_retry(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Awaitable[object]]]:
    """The work that is done once while a call with a lost reply waits for its retry."""
    work, sleep = list[Callable[[], Awaitable[object]]](), Lane.sleep

    async def do_work(self: Lane, seconds: float) -> None:
        while work:
            await work.pop()()
        await sleep(self, seconds)

    monkeypatch.setattr(Lane, "sleep", do_work)
    return work


@pytest.mark.parametrize("kind", ["async", "blocking"])
async def test_appends_of_another_memory_push_out_no_id_that_is_needed(
    proxy: Proxy, redis_server: RedisServer, namespace: str, before_retry: list[Any], kind: str
) -> None:
    more = [f"more {number}" for number in range(_MORE)]
    async with (
        Memory.connect(proxy.url, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as near,
    ):

        async def append_more() -> None:
            for text in more:
                await near.session("s").append(user_message(text))

        def block() -> None:
            with BlockingMemory.connect(redis_server.url, namespace=namespace) as blocking:
                for text in more:
                    blocking.session("s").append(user_message(text))

        await memory.session("s").append(user_message("first"))
        proxy.break_next("reset", to=b"EVALSHA")
        before_retry.append(append_more if kind == "async" else lambda: asyncio.to_thread(block))
        receipt = await memory.session("s").append(user_message("lost"))
        assert (receipt.first_seq, receipt.duplicate) == (2, False)
        assert not before_retry
        assert contents((await near.session("s").read()).messages) == ["first", "lost", *more]


async def test_writes_of_another_memory_push_out_no_write_that_is_needed(
    proxy: Proxy, redis_server: RedisServer, namespace: str, before_retry: list[Any]
) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as near,
    ):

        async def write_more() -> None:
            for number in range(1, _MORE):
                (value,) = await near.record("r").get(b"n")
                assert value is not None
                await near.record("r").write(Change(equals={b"n": value}, sets={b"n": b"%d" % (number + 1)}))

        await memory.record("r").write(Change(sets={b"n": b"0"}))
        proxy.break_next("reset", to=b"EVALSHA")
        before_retry.append(write_more)
        await memory.record("r").write(Change(equals={b"n": b"0"}, sets={b"n": b"1"}))
        assert not before_retry
        assert await near.record("r").get(b"n") == [b"%d" % _MORE]
