"""Memories that are never closed, or closed elsewhere: no socket stays open, and forks have room for calls."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import pytest
import redis
from support.checks import until
from support.lanes import SilentServer
from support.redis_server import RedisServer

import redismem
from redismem import Settings
from redismem.blocking import memory as blocking
from redismem.store.store import Store
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.url import Address

ROOMY = Settings(deadline_s=60, reply_timeout_s=20)


def connections(server: RedisServer, name: str) -> int:
    with redis.Redis(port=server.port) as raw:
        clients: Any = raw.client_list()
        return sum(each["name"] == name for each in clients)


async def test_a_collected_memory_is_closed_with_a_warning(redis_server: RedisServer, namespace: str) -> None:
    memory = redismem.Memory.connect(f"{redis_server.url}?client_name={namespace}", settings=ROOMY)
    await memory.session("s").exists()
    assert connections(redis_server, namespace) == 1
    del memory
    with pytest.warns(ResourceWarning, match="a memory was not closed"):
        gc.collect()

    async def is_gone() -> bool:
        return connections(redis_server, namespace) == 0

    await until(is_gone)


async def test_a_handle_keeps_its_memory_open(redis_server: RedisServer, namespace: str) -> None:
    memory = redismem.Memory.connect(f"{redis_server.url}?client_name={namespace}", settings=ROOMY)
    session = memory.session("s")
    await session.exists()
    store = memory.store
    del memory
    gc.collect()
    assert await session.exists() is False
    await store.aclose()
    assert connections(redis_server, namespace) == 0
    del session, store
    gc.collect()


def test_a_memory_closed_on_another_loop_closes_its_socket(redis_server: RedisServer, namespace: str) -> None:
    """The event loop that used it still runs, in another thread."""
    memory = redismem.Memory.connect(f"{redis_server.url}?client_name={namespace}", settings=ROOMY)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(memory.session("s").exists(), loop).result(60)
        assert connections(redis_server, namespace) == 1
        asyncio.run(memory.aclose())

        async def is_gone() -> bool:
            return connections(redis_server, namespace) == 0

        asyncio.run(until(is_gone))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def test_calls_of_a_memory_closed_on_another_loop_raise() -> None:
    async with SilentServer() as server:
        memory = redismem.Memory.connect(f"redis://:secret@127.0.0.1:{server.port}", settings=ROOMY)
        call = asyncio.ensure_future(memory.session("s").exists())
        await until(lambda: b"AUTH" in server.received)
        await asyncio.to_thread(asyncio.run, memory.aclose())
        with pytest.raises(RuntimeError, match="this memory is closed"):
            await asyncio.wait_for(call, 60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_during_calls_has_all_connections_free(redis_server: RedisServer, namespace: str) -> None:
    lane = BlockingLane(Address("127.0.0.1", redis_server.port), max_connections=2)
    memory = blocking.Memory(redismem.Memory(Store(lane, namespace, ROOMY)))
    memory.ping()
    for _ in range(2):  # two other threads are in a call
        assert lane._room.acquire(timeout=0)
    child = os.fork()
    if not child:
        try:
            os._exit(0 if memory.ping() and memory.session("s").append({"role": "user"}).created else 2)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    for _ in range(2):
        lane._room.release()
    assert memory.session("s").exists()
    memory.close()
