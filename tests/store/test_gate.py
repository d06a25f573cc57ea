"""Appends of a session wait for earlier ones before Redis could forget these, so none is made twice."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks import catch_unavailable, until
from support.conversations import contents, user_message
from support.proxy import Proxy
from support.stores import short_deadlines

from redismem import Memory, Settings, StoreUnavailable
from redismem.blocking import Memory as BlockingMemory
from redismem.blocking import Session as BlockingSession
from redismem.protocol.session.append_ids import IDS_COUNT
from redismem.store.gate import Gate

_COUNT = 1_200
_PATIENT = Settings(strategy="none", max_window_count=_COUNT, deadline_s=60, reply_timeout_s=20)


def _numbers(proxy: Proxy) -> Iterator[int]:
    """Yield the numbers of messages. The proxy loses the reply to about every fiftieth."""
    for number in range(_COUNT):
        if number % 50 == 25:
            proxy.break_next("reset", to=b"EVALSHA")
        yield number


async def _check_made_once(memory: Memory, proxy: Proxy) -> None:
    assert proxy.broken_count >= _COUNT // 50
    assert sorted(map(int, contents((await memory.session("s").read()).messages))) == list(range(_COUNT))


@pytest.mark.parametrize("writers_count", [2, 20])
async def test_no_append_is_made_twice_when_connections_are_reset(
    writers_count: int, proxy: Proxy, namespace: str
) -> None:
    """The server makes each lost append. While it is resent, the other writers would make many more."""
    numbers = _numbers(proxy)
    async with Memory.connect(proxy.url, namespace=namespace, settings=_PATIENT) as memory:

        async def write() -> None:
            for number in numbers:
                await memory.session("s").append(user_message(number))

        await asyncio.gather(*(write() for _ in range(writers_count)))
        await _check_made_once(memory, proxy)


async def test_no_append_of_a_thread_is_made_twice_when_connections_are_reset(proxy: Proxy, namespace: str) -> None:
    """Each thread has a connection of its own, so the others go on while one waits for a lost reply."""

    numbers, lock = _numbers(proxy), threading.Lock()

    def write(session: BlockingSession) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            session.append(user_message(number))

    def write_all() -> None:
        with (
            BlockingMemory.connect(proxy.url, namespace=namespace, settings=_PATIENT) as blocking,
            ThreadPoolExecutor(4) as threads,
        ):
            list(threads.map(write, [blocking.session("s")] * 4))

    await asyncio.to_thread(write_all)
    async with Memory.connect(proxy.url, namespace=namespace, settings=_PATIENT) as memory:
        await _check_made_once(memory, proxy)


async def test_an_append_that_waits_too_long_was_not_sent(proxy: Proxy, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=_PATIENT) as memory:
        await memory.session("s").append(user_message("first"))
        gate, sent_count = memory.store._gate, proxy.count(b"EVALSHA")
        number = gate.begin("s")
        gate.resend("s")
        too_late = pytest.raises(StoreUnavailable, match="did not answer earlier changes of the session in time")
        with short_deadlines(memory), too_late as refused:
            await memory.session("s").append(user_message("second"))
        assert (refused.value.may_be_done, refused.value.session_id) == (False, "s")
        assert proxy.count(b"EVALSHA") == sent_count
        gate.end("s", number)
        assert (await memory.session("s").append(user_message("third"))).last_seq == 2


async def test_a_cancelled_append_leaves_its_place_to_the_next() -> None:
    gate = Gate(blocks=False)
    first = gate.begin("s")
    gate.resend("s")
    waiting = [asyncio.create_task(gate.wait("s", 60)) for _ in range(3)]
    await until(lambda: len(gate.waiting.get("s", ())) == 3)
    waiting[0].cancel()
    gate.end("s", first)
    waiting[1].cancel()  # it has begun by now
    number = await waiting[2]
    gate.end("s", number)
    assert (gate._begun, gate._resent, gate.waiting) == ({}, set(), {})


@given(st.lists(st.integers(0, 40), max_size=120), st.booleans())
def test_the_session_remembers_each_append_under_way(steps: list[int], resends: bool) -> None:
    """So few appends begin after one that has not ended that four more of other processes leave its id in the ring."""
    asyncio.run(_play(steps, resends=resends))


async def _play(steps: list[int], *, resends: bool) -> None:
    gate, begun = Gate(blocks=False), 0
    running: dict[int, int] = {}
    waiting: list[asyncio.Task[int]] = []

    def note(number: int) -> None:
        nonlocal begun
        begun += 1
        running[number] = begun
        assert begun - min(running.values()) < IDS_COUNT - 4

    async def settle() -> None:
        for _ in range(4):  # a future, its wait, and the task that awaits both
            await asyncio.sleep(0)
        while waiting and waiting[0].done():
            note(waiting.pop(0).result())
        assert not any(task.done() for task in waiting), "the first to wait is the first to begin"

    for step in [*steps, *itertools.repeat(0, 200)]:
        if step > 20:
            if number := gate.begin("s"):
                assert not waiting
                note(number)
            else:
                waiting.append(asyncio.create_task(gate.wait("s", 60)))
        elif running:
            if resends and step == 7:
                gate.resend("s")
            number = sorted(running)[step % len(running)]
            del running[number]
            gate.end("s", number)
        await settle()
    assert not waiting
    assert (gate._begun, gate._resent, gate.waiting) == ({}, set(), {})


async def test_edits_wait_for_an_append_that_is_resent(proxy: Proxy, namespace: str) -> None:
    """A session remembers edits as it remembers appends: sixteen of them would push out one that is resent."""
    async with Memory.connect(proxy.url, namespace=namespace, settings=_PATIENT) as memory:
        session = memory.session("s")
        await session.append(user_message("first"), user_message("second"))
        gate = memory.store._gate
        number = gate.begin("s")
        gate.resend("s")
        edits: list[Callable[[], Coroutine[Any, Any, object]]] = [
            lambda: session.replace(1, user_message("new")),
            lambda: session.forget(1),
            session.pop,
            lambda: session.rewrite(2, []),
        ]

        async def is_too_late(edit: Callable[[], Coroutine[Any, Any, object]]) -> bool:
            """An edit first reads the window, which a busy machine may not do in time either."""
            with short_deadlines(memory):
                error = await catch_unavailable(edit())
            return "did not answer earlier changes of the session in time" in error.text

        for edit in edits:
            await until(partial(is_too_late, edit))
        assert contents((await session.read()).messages) == ["first", "second"]
        gate.end("s", number)
        await session.forget(1)
        assert contents((await session.read()).messages) == ["second"]
