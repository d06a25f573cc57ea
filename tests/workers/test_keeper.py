"""Workers outlive the event loop and the process that started them: the next call starts them again where it runs."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checks import until, user
from support.redis_server import RedisServer
from support.stores import workers_of
from support.waiting import wait_until
from support.writers import chat_message

import redismem.blocking
from redismem import Memory, Settings
from redismem.protocol.namespace import holds
from redismem.workers.scheduler import Scheduler

OFTEN = Settings(shards=2, tick_s=0.02, deadline_s=60, reply_timeout_s=20)
OVERFLOWING = [chat_message(number) for number in range(1, 12)]


@pytest.fixture
def memory(redis_server: RedisServer, namespace: str) -> Iterator[Memory]:
    memory = Memory.connect(redis_server.url, namespace=namespace, settings=OFTEN, workers=True)
    yield memory
    asyncio.run(memory.aclose())


async def until_held(memory: Memory) -> None:
    await memory.session("a").append(chat_message(1))
    await until(lambda: asyncio.sleep(0, len(memory.health().holds) == 2))


async def until_summarised(memory: Memory, name: str) -> None:
    async def summarised() -> bool:
        return len((await memory.session(name).read()).summaries) == 1

    await until(summarised)


def exit_code_of_child(work: Callable[[], Any]) -> int:
    """Run the work in a forked process; 0 means that it did not raise."""
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except BaseException:
            logging.getLogger("test").exception("in the child")
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_workers_begin_again_in_the_next_event_loop(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(until_held(memory))
    first = workers_of(memory)
    assert memory.health().holds == (), "nothing ticks without an event loop"

    async def go_on() -> None:
        await until_held(memory)
        assert workers_of(memory) is not first
        await memory.store.server_time_ms()
        # An append of another process is found by a tick alone.
        async with Memory.connect(
            f"redis://{memory.store.transport.place}", namespace=memory.store.keys.namespace, settings=OFTEN
        ) as other:
            await other.session("b").append(*OVERFLOWING)
        await until_summarised(memory, "b")

    asyncio.run(go_on())
    assert "the event loop that ran the workers has ended" in caplog.text


def test_an_event_loop_per_call_starts_no_workers_that_have_no_time(
    redis_server: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    seldom = Settings(shards=2, tick_s=3_600, deadline_s=60, reply_timeout_s=20)
    memory = Memory.connect(redis_server.url, namespace=namespace, settings=seldom, workers=True)
    asyncio.run(until_held(memory))
    first = workers_of(memory)
    for number in range(20):
        asyncio.run(memory.session("a").append(chat_message(number)))
        assert memory.health().holds == ()
    assert workers_of(memory) is first
    asyncio.run(memory.aclose())
    assert caplog.text.count("the event loop that ran the workers has ended") == 1


@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")  # by asyncio, although its socket is closed
def test_workers_begin_again_after_a_loop_that_was_closed_without_a_shutdown(memory: Memory) -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(until_held(memory))
    while tasks := asyncio.all_tasks(loop):  # a tick that is due meanwhile starts further ones
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
    assert memory.health().holds == ()

    async def go_on() -> None:
        await memory.session("b").append(*OVERFLOWING)
        await until_held(memory)
        await until_summarised(memory, "b")

    asyncio.run(go_on())
    gc.collect()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_forked_process_has_workers_of_its_own(memory: Memory) -> None:
    await until_held(memory)

    def child() -> None:
        assert memory.health().holds == ()

        async def go_on() -> None:
            await memory.session("b").append(*OVERFLOWING)
            await until_summarised(memory, "b")
            started = workers_of(memory)
            assert isinstance(started, Scheduler)
            await until(lambda: asyncio.sleep(0, started._tick_count > 0))

        asyncio.run(go_on())

    assert exit_code_of_child(child) == 0
    await until(lambda: len(memory.health().holds) == 2)  # the child had them if the parent's ticks were late
    await memory.session("c").append(*OVERFLOWING)
    await until_summarised(memory, "c")
    await memory.aclose()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_has_a_thread_of_workers_of_its_own(redis_server: RedisServer, namespace: str) -> None:
    with redismem.blocking.Memory.connect(
        redis_server.url, namespace=namespace, settings=OFTEN, workers=True
    ) as memory:
        wait_until(lambda: len(memory.health().holds) == 2)

        def child() -> None:
            assert memory.health().holds == ()
            memory.session("b").append(*OVERFLOWING)
            wait_until(lambda: len(memory.session("b").read().summaries) == 1)
            assert any(thread.name == "redismem-workers" for thread in threading.enumerate())
            memory.close()

        assert exit_code_of_child(child) == 0
        wait_until(lambda: len(memory.health().holds) == 2)  # the child had them if the parent's ticks were late


def test_workers_stop_in_their_own_event_loop(redis_server: RedisServer, namespace: str) -> None:
    memory = Memory.connect(redis_server.url, namespace=namespace, settings=OFTEN, workers=True)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(until_held(memory), loop).result(60)
        scheduler = workers_of(memory)
        asyncio.run(memory.aclose())
        assert scheduler._ticker is None
        assert not scheduler._running
        assert scheduler.holds == (), "it gave its holds back, so that another pod takes over at once"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def test_closing_after_the_loop_of_the_workers_replays_what_was_accepted(tmp_path: Path, namespace: str) -> None:
    server = RedisServer(tmp_path / "redis").start()
    hasty = Settings(shards=2, deadline_s=20, reply_timeout_s=0.5, fallback_after_s=0.3)
    memory = Memory.connect(server.url, namespace=namespace, settings=hasty, workers=True, fallback=True)
    try:
        asyncio.run(until_held(memory))
        server.kill()
        assert asyncio.run(memory.session("a").append(user("away"))).degraded
        server.start()
        asyncio.run(memory.aclose())
        after = Memory.connect(server.url, namespace=namespace, settings=hasty)
        asyncio.run(after.session("a").exists())
        assert memory.health().backlog_message_count == 0
        asyncio.run(after.aclose())
    finally:
        server.stop()


async def test_each_step_of_a_close_happens_though_one_fails(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Scheduler):
        async def stop(self) -> None:
            await super().stop()
            raise OSError("of the workers")

    closed: list[str] = []

    async def embed(texts: list[str]) -> Any:
        raise AssertionError

    async def close_embedder() -> None:
        closed.append("closed")

    memory = Memory.connect(redis_server.url, namespace=namespace, settings=OFTEN, workers=Failing, embed=embed)
    assert memory.store.embedder is not None
    monkeypatch.setattr(memory.store.embedder, "aclose", close_embedder)
    await memory.ping()
    with pytest.raises(OSError, match="of the workers"):
        await memory.aclose()
    assert closed == ["closed"]
    with pytest.raises(RuntimeError, match="this memory is closed"):
        await memory.ping()


async def test_two_that_close_at_once_stop_the_workers_once(
    redis_server: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A signal handler and the end of an application may both close."""
    seldom = OFTEN.model_copy(update={"tick_s": 3_600})
    memory = Memory.connect(redis_server.url, namespace=namespace, settings=seldom, workers=True)
    await until_held(memory)
    await until(lambda: asyncio.sleep(0, not workers_of(memory)._running))
    await asyncio.gather(memory.aclose(), memory.aclose())
    assert len(asyncio.all_tasks()) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    async with Memory.connect(redis_server.url, namespace=namespace, settings=OFTEN) as other:
        now_ms = await other.store.server_time_ms()
        leaders = (await other.store.run(holds.ticking(other.store.keys))).holds
    assert len(leaders) == 2
    assert all(each.until_ms <= now_ms for each in leaders.values()), "another pod takes over at once"
