"""The fallback of a memory that uses one event loop per call: nothing runs between calls, and Redis is still found
again."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks import contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.faulty import wait_until_replayed
from support.redis_server import RedisServer
from support.waiting import wait_until

from redismem import Memory, Settings, StoreUnavailable
from redismem.store.fallback.fallback import Fallback

# The connection of an ended event loop is closed when it is collected: here, at the end of each test.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

HASTY = Settings(deadline_s=60, fallback_after_s=0.1)
PATIENT = Settings(deadline_s=60, reply_timeout_s=20)


def is_taken(memory: Memory, name: str, text: str) -> bool:
    """True if Redis itself has the append."""
    return not asyncio.run(memory.session(name).append(user(text), id=text)).degraded


def stored(memory: Memory, server: RedisServer, name: str) -> list[str]:
    """The contents that Redis itself has, however long it takes."""

    async def read() -> list[str]:
        async with Memory.connect(server.url, namespace=memory.store.keys.namespace, settings=PATIENT) as direct:
            return await contents(direct.session(name))

    return asyncio.run(read())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


@pytest.fixture
def memory(server: RedisServer, namespace: str) -> Iterator[Memory]:
    memory = Memory.connect(server.url, namespace=namespace, settings=HASTY, fallback=True)
    yield memory
    asyncio.run(memory.aclose())
    gc.collect()


def test_a_call_finds_a_redis_that_is_back(server: RedisServer, memory: Memory) -> None:
    wait_until(lambda: is_taken(memory, "a", "before"))
    server.kill()
    assert not is_taken(memory, "a", "away")
    with pytest.raises(StoreUnavailable):
        asyncio.run(memory.ping())
    server.start()
    wait_until(lambda: is_taken(memory, "a", "back"))
    assert memory.health().backlog_session_count == 0
    assert stored(memory, server, "a") == [user(text)["content"] for text in ("before", "away", "back")]


def test_a_call_that_needs_redis_finds_it_too(server: RedisServer, memory: Memory) -> None:
    server.kill()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            asyncio.run(memory.ping())
    server.start()

    def answers() -> bool:
        with contextlib.suppress(StoreUnavailable):
            return asyncio.run(memory.ping()) is not None
        return False

    wait_until(answers)


def test_calls_replay_the_backlog_of_other_sessions(server: RedisServer, memory: Memory) -> None:
    server.kill()
    for number in range(5):
        assert not is_taken(memory, f"away-{number}", "away")
    server.start()
    wait_until(lambda: is_taken(memory, "b", "back") and not memory.health().backlog_session_count)
    for number in range(5):
        assert stored(memory, server, f"away-{number}") == [user("away")["content"]]


def test_a_running_event_loop_probes_between_calls_again(server: RedisServer, memory: Memory) -> None:
    server.kill()
    assert not is_taken(memory, "a", "away")
    with pytest.raises(StoreUnavailable):
        asyncio.run(memory.ping())

    async def go_on() -> None:
        assert (await memory.session("a").read()).degraded
        store = memory.store
        fallback = store.fallback
        assert isinstance(fallback, Fallback)

        async def is_looked_for() -> bool:
            return not fallback._replay._ongoing.is_cut_off

        await until(is_looked_for)
        await asyncio.to_thread(server.start)
        await wait_until_replayed(memory)

    asyncio.run(go_on())
    assert stored(memory, server, "a") == [user("away")["content"]]


def test_a_memory_closed_in_another_loop_replays_its_backlog(
    server: RedisServer, namespace: str, memory: Memory
) -> None:
    closed = Memory.connect(server.url, namespace=namespace, settings=HASTY, fallback=True)
    server.kill()
    assert not is_taken(closed, "a", "away")
    server.start()
    asyncio.run(closed.aclose())
    assert stored(memory, server, "a") == [user("away")["content"]]


async def test_a_close_that_is_cancelled_stops_the_replay_and_logs_the_loss(
    server: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory.connect(server.url, namespace=namespace, settings=HASTY, fallback=True)
    server.kill()
    assert (await memory.session("a").append(user("away"))).degraded
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await memory.aclose()
    assert "ended with 1 messages of 1 sessions that Redis has not taken" in caplog.text
    assert len(asyncio.all_tasks()) == 1, "no task probes Redis any more"
    await memory.aclose()
    assert "the replay failed" not in caplog.text
