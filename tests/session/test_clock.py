"""The clock of a memory: every call uses it, and an invalid time is refused before anything is written."""

from __future__ import annotations

from typing import Any

import fakeredis
import pytest
from support.clock import T0, Clock
from support.conversations import user_message
from support.stored import read_namespace
from support.stores import Store
from support.writers import Echo, fill

from redismem import InvalidTime, Memory, Session, Settings
from redismem.blocking import memory as blocking
from redismem.protocol.namespace import calls as namespace_calls
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

NO_TIMES: list[Any] = [
    1_700_000_000,  # seconds
    1_700_000_000_000_000,  # microseconds
    1_700_000_000_000.0,
    True,
    None,
    "1700000000000",
    0,
    -1,
    10**30,
]


async def writes(session: Session) -> list[Any]:
    return [session.append, session.append_and_read, lambda _: session.touch(), lambda _: session.merge({"a": 1})]


@pytest.mark.parametrize("no_time", NO_TIMES, ids=repr)
async def test_what_cannot_be_the_time_is_refused_and_nothing_is_written(
    memory: Memory, session: Session, raw: Any, namespace: str, clock: Clock, no_time: Any
) -> None:
    await session.append(user_message("a"))
    before = await read_namespace(raw, namespace)
    clock.now_ms = no_time
    for write in await writes(session):
        with pytest.raises(InvalidTime, match="a clock must return milliseconds"):
            await write(user_message("b"))
    for ask in (memory.count, memory.sessions, memory.server_time_ms, Eviction(memory.store).enforce):
        with pytest.raises(InvalidTime):
            await ask()
    with pytest.raises(InvalidTime):
        await Worker(memory.store, Echo()).drain()
    assert await read_namespace(raw, namespace) == before


async def test_a_clock_far_behind_the_servers_is_refused(
    memory: Memory, session: Session, raw: Any, namespace: str, clock: Clock
) -> None:
    """The session would expire at once, although the receipt says that it was created."""
    server_ms = await memory.store.run(namespace_calls.server_time_ms())
    clock.now_ms = server_ms - memory.settings.kept_ms - 1_000
    with pytest.raises(InvalidTime, match="by the server's clock") as refused:
        await session.append(user_message("a"))
    assert refused.value.session_id == session.id
    assert not await session.exists()
    clock.now_ms = server_ms
    assert (await session.append(user_message("a"))).created
    before = await read_namespace(raw, namespace)
    clock.now_ms = server_ms - memory.settings.kept_ms - 1_000
    for write in await writes(session):
        with pytest.raises(InvalidTime):
            await write(user_message("b"))
    assert await read_namespace(raw, namespace) == before


async def test_the_clock_counts_in_every_call(memory: Memory, session: Session, clock: Clock) -> None:
    await fill(session, 11)
    assert (await session.info()).active_ms == T0
    assert {message.stored_ms for message in await session.messages()} == {T0}
    clock.now_ms += 5_000
    await session.touch()
    assert (await session.info()).active_ms == T0 + 5_000
    assert await memory.server_time_ms() == T0 + 5_000
    assert await Worker(memory.store, Echo()).drain() == 1
    assert [summary.created_ms for summary in (await session.read()).summaries] == [T0 + 5_000]
    clock.now_ms += memory.settings.idle_timeout_ms
    assert (await memory.count(), (await memory.sessions()).sessions) == (0, [])
    clock.now_ms += 1
    assert await Eviction(memory.store).enforce() == 1


def test_the_blocking_memory_takes_a_clock(namespace: str) -> None:
    clock = Clock()
    with (
        fakeredis.FakeRedis() as client,
        blocking.Memory.connect(client=client, namespace=namespace, clock=clock) as memory,
    ):
        memory.session("s").append(user_message("a"))
        assert memory.session("s").info().active_ms == T0
        clock.now_ms = 7
        with pytest.raises(InvalidTime):
            memory.session("s").append(user_message("a"))


async def test_without_a_clock_the_servers_counts(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=1)) as memory:
        before_ms = await memory.store.run(namespace_calls.server_time_ms())
        await memory.session("s").append(user_message("a"))
        assert before_ms <= (await memory.session("s").info()).active_ms <= await memory.server_time_ms()


async def test_no_call_takes_a_time_of_its_own(session: Session) -> None:
    options: dict[str, Any] = {"now_ms": T0}
    for call in (session.append, session.append_and_read):
        with pytest.raises(TypeError, match="now_ms"):
            await call(user_message("a"), **options)
    assert not await session.exists()
