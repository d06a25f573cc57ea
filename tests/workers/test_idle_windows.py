"""The window of an idle session is found from other sessions of the owner, and leaves the index with its messages."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis.asyncio
from support.clock import Clock
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Policy, Settings
from redismem.protocol.owner.calls import owner_keys
from redismem.workers import idle_windows
from redismem.workers.idle_windows import IDLE_MS, IdleWindows
from redismem.workers.owner_indexes import OwnerChecks
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=8, recent_limit=4)
LATER_MS = IDLE_MS + 2_000


async def find(memory: Memory, word: str) -> list[tuple[str | None, int]]:
    found = await memory.session("new", owner="ann").recall(word, 1, scope="owner")
    return [(message.session_id, message.seq) for message in found if word in str(message.content)]


@pytest.fixture
def shift() -> list[int]:
    return [0]


@pytest.fixture
async def late(store: Store, namespace: str, shift: list[int]) -> Any:
    """A memory whose clock is `shift[0]` ms ahead of the server's."""
    client = store.client()
    memory = Memory.connect(
        client=client, namespace=namespace, settings=SETTINGS, clock=lambda: int(time.time() * 1000) + shift[0]
    )
    async with client, memory:
        yield memory


async def test_the_window_of_an_idle_session_is_found_and_goes_as_its_messages_go(
    late: Memory, shift: list[int], raw: Any
) -> None:
    windows = IdleWindows(late.store)
    for session_id, owner, exempt in (
        ("a", "ann", False),
        ("b:2", "ann", True),
        ("c", "bob", False),
        ("d", None, False),
    ):
        session = late.session(session_id, owner=owner, policy=Policy(exempt=exempt))
        await session.append({"role": "system", "content": "A zebra."}, *map(chat_message, range(20)))
        await session.append(chat_message(1, "walrus"), chat_message(2), chat_message(3, "ferret"))
    await Worker(late.store, Echo()).drain()
    assert await windows.index() == 0
    assert await find(late, "walrus") == [], "in the window, which is not idle yet"
    shift[0] = LATER_MS
    assert await windows.index() == 3
    assert await windows.index() == 0, "they are not looked at again"
    found = await find(late, "walrus")
    assert [name for name, _ in found] in (["a"], ["b:2"])
    assert await find(late, "zebra") == [], "pinned messages are left out"
    before = await raw.hgetall(owner_keys(late.store.keys, "ann").index)
    assert await IdleWindows(late.store).index() == 3, "another worker looks back"
    assert await raw.hgetall(owner_keys(late.store.keys, "ann").index) == before
    for session_id in ("a", "b:2"):
        await late.session(session_id).forget(22)
    assert await find(late, "walrus") == []
    assert await find(late, "ferret") != []
    for session_id in ("a", "b:2"):
        await late.session(session_id).pop(1)
    assert await find(late, "ferret") == []


async def test_a_summary_moves_the_window_and_the_index_stays_right(late: Memory, shift: list[int]) -> None:
    session = late.session("a", owner="ann")
    await session.append(*map(chat_message, range(6)), chat_message(7, "walrus"))
    shift[0] = LATER_MS
    await IdleWindows(late.store).index()
    assert await find(late, "walrus") == [("a", 7)]
    assert await session.recall("walrus", scope="owner") == [], "in the window of the asking session itself"
    await session.append(*map(chat_message, range(30)))
    await Worker(late.store, Echo()).drain()
    assert await find(late, "walrus") == [("a", 7)]
    assert [message.seq for message in await session.recall("walrus", 1, scope="owner")] == [6, 7, 8]


async def test_a_full_page_leaves_no_session_out(
    late: Memory, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_windows, "_PAGE_COUNT", 2)
    for number in range(9):
        shift[0] = number * 1_000
        await late.session(f"s{number}", owner="ann").append(chat_message(1, f"walrus{number}"))
    shift[0] = LATER_MS + 10_000
    windows = IdleWindows(late.store)
    while await windows.index():
        pass
    for number in range(9):
        assert await find(late, f"walrus{number}") == [(f"s{number}", 1)]


async def test_the_oldest_sessions_leave_an_index_that_is_full(
    late: Memory, shift: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.workers.owner_indexes.BLOCKS_LIMIT", 3)
    for number in range(5):
        shift[0] = number * 1_000
        await late.session(f"s{number}", owner="ann").append(chat_message(1, f"walrus{number}"))
    shift[0] = LATER_MS + 10_000
    await IdleWindows(late.store).index()
    shift[0] += 61_000
    assert await OwnerChecks(late.store).check_due() == 1
    assert [bool(await find(late, f"walrus{number}")) for number in range(5)] == [False, False, True, True, True]


async def test_a_window_that_a_full_redis_refuses_is_indexed_a_minute_later(
    redis_server: RedisServer, namespace: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        redis.asyncio.Redis(port=redis_server.port) as admin,
        Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS, clock=clock) as memory,
    ):
        for number in range(3):
            clock.now_ms += 1_000
            await memory.session(f"s{number}", owner="ann").append(chat_message(1, f"walrus{number}"))
        clock.now_ms += LATER_MS
        windows = IdleWindows(memory.store)
        await admin.config_set("maxmemory", 1)
        try:
            for _ in range(2):
                await windows.index()
                assert await windows.index() == 0, "Redis is left alone for a minute"
                clock.now_ms += 61_000
        finally:
            await admin.config_set("maxmemory", 0)
        (first, _) = [record for record in caplog.records if "not in the indexes of their owners yet" in record.message]
        assert first.message.startswith("the windows of 3 idle sessions")
        assert await windows.index() == 3
        assert await windows.index() == 0
        for number in range(3):
            assert await find(memory, f"walrus{number}") == [(f"s{number}", 1)]
