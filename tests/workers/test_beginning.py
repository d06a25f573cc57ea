"""Start and stop of a memory's workers: with `async with` or without it, async and blocking, on both stores."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import threading
from functools import partial
from typing import Any

import fakeredis
import pytest
import redis
from support.checks import until
from support.redis_server import RedisServer
from support.stores import Store, workers_of
from support.waiting import wait_until
from support.writers import Echo, chat_message

import redismem
from redismem import InvalidSettings, Memory, Settings, StoreUnavailable, WrongShards
from redismem.blocking import memory as blocking
from redismem.workers.scheduler import Scheduler

NEVER = Settings(shards=2, tick_s=3_600, deadline_s=60, reply_timeout_s=20)


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "redismem-workers"]


@pytest.fixture
def url(request: Any) -> str:
    return str(request.getfixturevalue("redis_server").url) if request.param == "real" else "memory://"


both = pytest.mark.parametrize("url", ["real", "embedded"], indirect=True)


@both
async def test_workers_begin_with_the_first_call(url: str, namespace: str) -> None:
    memory = redismem.Memory.connect(url, namespace=namespace, settings=NEVER, workers=True)
    session = memory.session("a")
    await session.append(*map(chat_message, range(1, 12)))

    async def summarised() -> bool:
        return len((await session.read()).summaries) == 1

    await until(summarised)
    assert isinstance(workers_of(memory), Scheduler)
    await memory.aclose()
    assert workers_of(memory)._ticker is None
    assert not workers_of(memory)._running


async def test_many_first_calls_begin_them_once(store: Store, namespace: str) -> None:
    class Counting(Scheduler):
        begun_count = 0

        async def start(self) -> None:
            self.begun_count += 1
            await super().start()

    async with store.client() as client:
        memory = redismem.Memory.connect(client=client, namespace=namespace, settings=NEVER, workers=Counting)
        await asyncio.gather(*(memory.session(f"s-{number}").append(chat_message(number)) for number in range(20)))
        assert isinstance(workers_of(memory), Counting)
        assert workers_of(memory).begun_count == 1
        async with memory:
            assert workers_of(memory).begun_count == 1, "entered later, they go on"


async def test_workers_that_do_not_begin_are_tried_again_by_the_next_call(store: Store, namespace: str) -> None:
    class Stubborn(Scheduler):
        failures_count = 1

        async def start(self) -> None:
            self.failures_count -= 1
            if self.failures_count >= 0:
                raise OSError("not yet")
            await super().start()

    async with store.client() as client:
        memory = redismem.Memory.connect(client=client, namespace=namespace, settings=NEVER, workers=Stubborn)
        with pytest.raises(OSError, match="not yet"):
            await memory.session("a").append(chat_message(1))
        assert (await memory.session("a").append(chat_message(1))).created
        assert isinstance(workers_of(memory), Stubborn)
        assert workers_of(memory)._ticker is not None
        await memory.aclose()


@both
@pytest.mark.parametrize("entered", [True, False])
def test_a_blocking_memory_has_workers_in_a_thread(url: str, namespace: str, entered: bool) -> None:
    echo = Echo()
    memory = blocking.Memory.connect(
        url, namespace=namespace, settings=NEVER, workers=partial(Scheduler, strategy=echo)
    )
    assert names() == [], "nothing begins before there is something to do"
    if entered:
        memory.__enter__()
        assert len(names()) == 1
    session = memory.session("a")
    for number in range(1, 12):
        session.append(chat_message(number))
    assert len(names()) == 1
    wait_until(lambda: len(session.read().summaries) == 1)
    assert [message.seq for message in session.read().messages] == list(range(6, 12))
    assert echo.seen == [[1, 2, 3, 4, 5]]
    memory.close()
    assert names() == [], "it has waited for the thread"
    memory.close()


@both
def test_closing_waits_for_what_is_in_hand(url: str, namespace: str) -> None:
    echo = Echo()
    echo.hanging = "message 1 "
    begun = threading.Event()

    class Telling(Echo):
        async def compact(self, messages: Any, previous: str | None) -> Any:
            begun.set()
            await asyncio.sleep(0)
            return await super().compact(messages, previous)

    memory = blocking.Memory.connect(
        url, namespace=namespace, settings=NEVER, workers=partial(Scheduler, strategy=Telling())
    )
    memory.session("a").append(*map(chat_message, range(1, 12)))
    assert begun.wait(60)
    memory.close()
    assert names() == []
    if url != "memory://":
        with blocking.Memory.connect(url, namespace=namespace, settings=NEVER) as after:
            assert [summary.first_seq for summary in after.session("a").read().summaries] == [1]


def test_what_keeps_the_thread_from_opening_is_raised(redis_server: RedisServer, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=NEVER) as first:
        first.session("a").append(chat_message(1))
    wrong = NEVER.model_copy(update={"shards": 4})
    memory = blocking.Memory.connect(redis_server.url, namespace=namespace, settings=wrong, workers=True)
    with pytest.raises(WrongShards):
        memory.session("a").append(chat_message(1))
    memory.close()
    assert names() == []


def test_workers_whose_connection_fails_once_begin_with_the_next_call(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed memory is closed; the workers get another one."""
    opened, refused = Memory.__aenter__, iter([StoreUnavailable("away")])

    async def opening(self: Memory) -> Memory:
        if self.workers is not None and (failure := next(refused, None)) is not None:
            await self.aclose()
            raise failure
        return await opened(self)

    monkeypatch.setattr(Memory, "__aenter__", opening)
    memory = blocking.Memory.connect(redis_server.url, namespace=namespace, settings=NEVER, workers=True)
    with pytest.raises(StoreUnavailable, match="away"):
        memory.session("a").append(chat_message(1))
    assert memory.session("a").append(chat_message(2)).last_seq == 1
    assert len(names()) == 1
    memory.close()
    assert names() == []


def test_closing_while_the_thread_still_opens_ends_it(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, is_opening, may_open = Memory.__aenter__, threading.Event(), threading.Event()

    async def opening(self: Memory) -> Memory:
        if self.workers is not None:
            is_opening.set()
            await asyncio.to_thread(may_open.wait, 60)
        return await opened(self)

    monkeypatch.setattr(Memory, "__aenter__", opening)
    memory = blocking.Memory.connect(redis_server.url, namespace=namespace, settings=NEVER, workers=True)

    def append() -> None:
        with contextlib.suppress(RuntimeError):  # closing may be faster: then this append is refused
            memory.session("a").append(chat_message(1))

    first, closing = threading.Thread(target=append), threading.Thread(target=memory.close)
    first.start()
    assert is_opening.wait(60)
    closing.start()
    closing.join(0.1)
    may_open.set()
    for thread in (closing, first):
        thread.join(60)
        assert not thread.is_alive()
    assert names() == []


@both
def test_a_memory_whose_workers_get_no_thread_can_be_closed(
    url: str, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        if thread.name == "redismem-workers":
            raise RuntimeError("can't start new thread")
        began(thread)

    memory = blocking.Memory.connect(url, namespace=namespace, settings=NEVER, workers=Scheduler)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", begin)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            memory.session("a").append(chat_message(1))
        memory.close()


@both
def test_appends_go_on_when_a_strategy_has_ended_the_thread(
    url: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Exiting(Echo):
        async def compact(self, messages: Any, previous: str | None) -> Any:
            raise SystemExit

    memory = blocking.Memory.connect(
        url, namespace=namespace, settings=NEVER, workers=partial(Scheduler, strategy=Exiting())
    )
    session = memory.session("a")
    session.append(*map(chat_message, range(1, 12)))
    wait_until(lambda: names() == [])
    assert session.append(chat_message(12)).last_seq == 12
    assert session.append_and_read(chat_message(13)).last_seq == 13
    assert [record.levelno for record in caplog.records if "thread ended" in record.message] == [logging.ERROR]
    memory.close()


@pytest.mark.parametrize("client", [redis.Redis(port=1), fakeredis.FakeRedis()])
def test_workers_over_a_client_of_ones_own_are_refused(client: Any) -> None:
    with pytest.raises(InvalidSettings, match="workers need a URL"):
        blocking.Memory.connect(client=client, workers=True)


def test_a_blocking_memory_that_nobody_has_any_more_ends_its_thread(namespace: str) -> None:
    memory = blocking.Memory.connect("memory://", namespace=namespace, settings=NEVER, workers=True)
    memory.session("a").append(chat_message(1))
    assert len(names()) == 1
    del memory

    def ended() -> bool:
        gc.collect()  # does nothing while another thread is at it
        return names() == []

    wait_until(ended)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_was_forked_off_leaves_the_thread_to_its_parent(redis_server: RedisServer, namespace: str) -> None:
    memory = blocking.Memory.connect(redis_server.url, namespace=namespace, settings=NEVER, workers=True)
    session = memory.session("a")
    session.append(*map(chat_message, range(1, 11)))
    child = os.fork()
    if not child:
        try:
            session.append(chat_message(11))
            memory.close()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(names()) == 1
    session.append(
        chat_message(12)
    )  # over the threshold, too, but not by itself: a tick or the next overflow takes it up
    memory.close()
