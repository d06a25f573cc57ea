"""Appends to one session of Google ADK at once: the events that wait in a process are one write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from adapters.test_google_adk import make_event
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from support.redis_server import RedisServer

from redismem import InvalidMessage, Memory, TooLarge
from redismem.adapters.google_adk import SessionService
from redismem.events import Event
from redismem.record import Record

PLACE: Any = {"app_name": "shop", "user_id": "anna", "session_id": "s"}


class Counted:
    """Two memories, as of two processes, and the calls that both have made."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.memories: list[Memory] = []

    def note(self, event: Event) -> None:
        self.calls.append(event.op)


@asynccontextmanager
async def two_memories(redis_server: RedisServer, namespace: str) -> AsyncIterator[Counted]:
    counted = Counted()
    async with (
        Memory.connect(redis_server.url, namespace=namespace, on_event=counted.note) as one,
        Memory.connect(redis_server.url, namespace=namespace, on_event=counted.note) as two,
    ):
        counted.memories = [one, two]
        yield counted


async def test_events_that_wait_in_two_processes_are_a_few_writes_and_all_are_kept_in_one_order(
    redis_server: RedisServer, namespace: str
) -> None:
    async with two_memories(redis_server, namespace) as counted:
        services = [SessionService(memory=memory) for memory in counted.memories]
        await services[0].create_session(**PLACE)
        held: list[Any] = [await services[0].get_session(**PLACE) for _ in range(200)]
        counted.calls.clear()

        async def append(number: int) -> None:
            delta = {"last": number, "user:last": number, f"app:{number}": number}
            await services[number % 2].append_event(held[number], make_event(number, delta, at_s=float(number)))
            assert held[number].state["last"] == number
            assert held[number].last_update_time == number

        await asyncio.gather(*map(append, range(200)))
        assert counted.calls.count("record_write") <= 16
        read = await services[1].get_session(**PLACE)
        assert read is not None
        assert sorted(event.id for event in read.events) == sorted(f"id-{number}" for number in range(200))
        last = int(read.events[-1].id[3:])
        assert (read.state["last"], read.state["user:last"], read.last_update_time) == (last, last, last)
        assert all(read.state[f"app:{number}"] == number for number in range(200))
        # Alone, and with the session as it is, an append is one call.
        counted.calls.clear()
        await services[0].append_event(read, make_event(200))
        assert counted.calls == ["record_write"]


async def test_an_event_that_waits_twice_is_stored_once(redis_server: RedisServer, namespace: str) -> None:
    async with two_memories(redis_server, namespace) as counted:
        services = [SessionService(memory=memory) for memory in counted.memories]
        await services[0].create_session(**PLACE)
        held: list[Any] = [await services[0].get_session(**PLACE) for _ in range(12)]
        appends = [services[at % 2].append_event(held[at], make_event(at % 3)) for at in range(12)]
        await asyncio.gather(*appends)
        read = await services[0].get_session(**PLACE)
        assert read is not None
        assert sorted(event.id for event in read.events) == ["id-0", "id-1", "id-2"]
        assert [len(session.events) for session in held] == [1] * 12


async def test_one_event_that_is_refused_or_whose_caller_is_cancelled_holds_no_other_back(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.protocol.record.changes.CHANGE_BYTES", 20_000)
    monkeypatch.setattr("redismem.adapters.google_adk.appends._TOGETHER_BYTES", 2_000)
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        service = SessionService(memory=memory)
        await service.create_session(**PLACE)
        held: list[Any] = [await service.get_session(**PLACE) for _ in range(20)]
        is_writing, real = asyncio.Event(), Record.write

        async def write(*arguments: Any) -> bool:
            is_writing.set()
            return await real(*arguments)

        monkeypatch.setattr(Record, "write", write)
        deltas = [{"text": "x" * (30_000 if number == 9 else 9)} for number in range(20)]
        appends = [
            asyncio.ensure_future(service.append_event(held[number], make_event(number, deltas[number])))
            for number in range(20)
        ]
        await is_writing.wait()
        for number in (0, 5):  # the first one is being written, so it is stored; the other waits
            appends[number].cancel()
        results = await asyncio.gather(*appends, return_exceptions=True)
        failed = {number: type(each) for number, each in enumerate(results) if isinstance(each, BaseException)}
        assert failed == {0: asyncio.CancelledError, 5: asyncio.CancelledError, 9: TooLarge}
        read = await service.get_session(**PLACE)
        assert read is not None
        assert [event.id for event in read.events] == [f"id-{number}" for number in range(20) if number not in (5, 9)]
        await service.delete_session(**PLACE)
        late = [service.append_event(each, make_event(99, {"app:a": 1})) for each in held[:3]]
        gone = await asyncio.gather(*late, return_exceptions=True)
        assert [type(each) for each in gone] == [SessionNotFoundError] * 3
        assert (await memory.records()).records == []


async def test_with_a_single_writer_one_of_the_sessions_that_wait_is_stored_and_the_stale_ones_are_refused(
    redis_server: RedisServer, namespace: str
) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        service = SessionService(memory=memory, single_writer=True)
        await service.create_session(**PLACE)
        held: list[Any] = [await service.get_session(**PLACE) for _ in range(5)]
        appends = [service.append_event(session, make_event(number)) for number, session in enumerate(held)]
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(each) for each in results[1:]] == [StaleSessionError] * 4
        await asyncio.gather(*(service.append_event(held[0], make_event(number)) for number in range(5, 9)))
        read = await service.get_session(**PLACE)
        assert read is not None
        assert [event.id for event in read.events] == ["id-0", "id-5", "id-6", "id-7", "id-8"]


async def test_an_event_that_could_not_be_read_again_is_refused(memory: Memory) -> None:
    service = SessionService(memory=memory)
    session = await service.create_session(**PLACE)
    for at_s in (float("nan"), float("inf")):
        with pytest.raises(InvalidMessage):
            await service.append_event(session, make_event(1, {"app:a": 1}, at_s=at_s))
    read = await service.get_session(**PLACE)
    assert read is not None
    assert (read.events, read.state, session.events) == ([], {}, [])
