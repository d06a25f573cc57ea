"""One transport, several event loops: one after the other, at once in threads, and in a forked process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.redis_server import RedisServer
from support.transports import url_of
from support.waiting import wait_until

from redismem import Memory, Settings

SETTINGS = Settings(shards=2, strategy="none", deadline_s=60, reply_timeout_s=20)
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": pytest.importorskip("uvloop").new_event_loop}


@pytest.fixture(params=["lane", "cluster", "sentinel", "embedded"])
def memory(request: pytest.FixtureRequest, namespace: str) -> Iterator[Memory]:
    url = "memory://" if request.param == "embedded" else url_of(request.param, request)
    memory = Memory.connect(url, namespace=namespace, settings=SETTINGS)
    yield memory
    asyncio.run(memory.aclose())


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Turn the garbage collector off, so that it closes nothing."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def connected_count(server: RedisServer, name: str) -> int:
    with redis.Redis(port=server.port) as raw:
        clients: Any = raw.client_list()
        return sum(each["name"] == name for each in clients)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_threads_with_an_event_loop_per_call_share_a_memory(memory: Memory) -> None:
    """Their loops begin and end at any moment, under load, and four threads append to the same session."""
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def call(thread: int) -> None:
        start.wait(60)
        for number in range(10):
            session = memory.session(f"s-{thread % 2}")
            appends = [session.append(user(f"{thread} {number} {part}")) for part in range(4)]

            async def turn(appends: Any = appends) -> None:
                await asyncio.gather(*appends)

            try:
                asyncio.run(turn())
            except BaseException as failure:
                failures.append(failure)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name in range(2):
        messages = asyncio.run(memory.session(f"s-{name}").read()).messages
        written = {f"{thread} {number} {part}" for thread in range(8) for number in range(10) for part in range(4)}
        assert len(messages) == 160
        assert {message.content for message in messages} == {text for text in written if int(text[0]) % 2 == name}


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)
def test_the_connection_of_an_event_loop_is_closed_with_it(
    redis_server: RedisServer, namespace: str, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    memory = Memory.connect(f"{redis_server.url}?client_name={namespace}", namespace=namespace, settings=SETTINGS)

    async def turn() -> int:
        await memory.session("a").append(user("hello"))
        return await asyncio.to_thread(connected_count, redis_server, namespace)

    for _ in range(3):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            assert runner.run(turn()) == 1
        wait_until(lambda: connected_count(redis_server, namespace) == 0)
    asyncio.run(memory.aclose())


@pytest.mark.usefixtures("without_collector")
def test_a_cancelled_call_leaves_no_connection_open(redis_server: RedisServer, namespace: str) -> None:
    memory = Memory.connect(f"{redis_server.url}?client_name={namespace}", namespace=namespace, settings=SETTINGS)

    async def cancelled_after(steps_count: int) -> None:
        call = asyncio.ensure_future(memory.session("a").exists())
        for _ in range(steps_count):
            await asyncio.sleep(0)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call

    for steps_count in range(25):
        asyncio.run(cancelled_after(steps_count))
    wait_until(lambda: connected_count(redis_server, namespace) == 0)
    asyncio.run(memory.aclose())


@pytest.mark.usefixtures("without_collector")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio does not know that its socket is closed
@pytest.mark.parametrize("make_loop", LOOPS.values(), ids=LOOPS)
def test_the_connection_of_a_loop_closed_without_a_shutdown_is_closed_by_the_next_one(
    redis_server: RedisServer, namespace: str, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    memory = Memory.connect(f"{redis_server.url}?client_name={namespace}", namespace=namespace, settings=SETTINGS)
    for _ in range(3):
        loop = make_loop()
        loop.run_until_complete(memory.session("a").append(user("hello")))
        loop.close()
        assert connected_count(redis_server, namespace) <= 1
    asyncio.run(memory.aclose())
    wait_until(lambda: connected_count(redis_server, namespace) == 0)
    gc.collect()


@pytest.mark.usefixtures("without_collector")
def test_a_close_closes_the_connections_of_all_event_loops(redis_server: RedisServer, namespace: str) -> None:
    memory = Memory.connect(f"{redis_server.url}?client_name={namespace}", namespace=namespace, settings=SETTINGS)
    loops = [asyncio.new_event_loop() for _ in range(3)]
    threads = [threading.Thread(target=loop.run_forever) for loop in loops]
    for thread, loop in zip(threads, loops, strict=True):
        thread.start()
        asyncio.run_coroutine_threadsafe(memory.session("a").append(user("hello")), loop).result(60)
    assert connected_count(redis_server, namespace) == 3
    asyncio.run(memory.aclose())
    wait_until(lambda: connected_count(redis_server, namespace) == 0)
    for thread, loop in zip(threads, loops, strict=True):
        with pytest.raises(RuntimeError, match="this memory is closed"):
            asyncio.run_coroutine_threadsafe(memory.ping(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_process_forked_inside_an_event_loop_has_connections_of_its_own(
    redis_server: RedisServer, namespace: str
) -> None:
    name = f"{redis_server.url}?client_name={namespace}"
    async with Memory.connect(name, namespace=namespace, settings=SETTINGS) as memory:
        await memory.session("a").append(user("parent"))
        child = os.fork()
        if not child:
            try:
                for _ in range(2):
                    asyncio.run(memory.session("a").append(user("child")))
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await memory.session("a").append(user("parent"))
        assert connected_count(redis_server, namespace) == 1, "the parent's went on"
        messages = (await memory.session("a").read()).messages
        assert [message.content for message in messages] == ["parent", "child", "child", "parent"]
