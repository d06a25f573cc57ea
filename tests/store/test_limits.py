"""A default removes no session that an explicit setting keeps, on both stores."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Settings
from redismem.context.context import Context
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import Recorded
from redismem.store.agreement import limit_to_record, session_limit
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

DAY_S = 86_400
MONTH = Settings(idle_timeout_s=30 * DAY_S, max_sessions=5_000)


async def limit_in(raw: Any, namespace: str) -> bytes | None:
    limit: bytes | None = await raw.hget(Keys(namespace, 64).record, "max_sessions")
    return limit


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_worker_with_the_default_timeout_keeps_sessions_with_a_longer_one(
    store: Store, namespace: str, clock: Clock
) -> None:
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace) as memory:
        await pod.session("kept").append(chat_message(1))
        await memory.session("idle").append(chat_message(1))
        eviction = Eviction(memory.store)
        for evicted in (1, 0):
            assert await clock.run_at(T0 + 2 * DAY_S * 1_000, eviction.enforce()) == evicted
        assert await pod.session("kept").exists()


@pytest.mark.parametrize("days", [1, 7, 30])
async def test_a_worker_hands_sessions_over_before_they_expire(
    store: Store, raw: Any, namespace: str, clock: Clock, days: int
) -> None:
    given = Settings(idle_timeout_s=days * DAY_S)
    async with store.memory(namespace, given) as pod, store.memory(namespace) as memory:
        handed: list[str] = []

        async def on_evict(session_id: str, context: Context) -> None:
            handed.append(session_id)

        await pod.session("a").append(chat_message(1))
        eviction = Eviction(memory.store, on_evict)
        expires_ms = await raw.pexpiretime(memory.store.keys.session("a").state)
        assert expires_ms == T0 + days * DAY_S * 1_000
        for before_ms in (60_000, 0):
            assert await clock.run_at(expires_ms - before_ms, eviction.enforce()) == 0
        assert await raw.pexpiretime(memory.store.keys.session("a").state) > expires_ms, "queued, and kept until then"
        assert await clock.run_at(expires_ms + 1, eviction.enforce()) == 1
        assert handed == ["a"]


async def test_a_worker_without_a_limit_enforces_the_recorded_one(
    store: Store, namespace: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace) as memory:
        for at in range(0, 1_002, 6):
            await asyncio.gather(*(pod.session(f"s-{at + more}").append(chat_message(1)) for more in range(6)))
        eviction = Eviction(memory.store)
        for _ in range(2):
            assert await eviction.enforce() == 0
        assert await memory.count() == 1_002
    assert [
        warning
        for warning in warnings(caplog)
        if "a limit of 5000 sessions" in warning and "REDISMEM_MAX_SESSIONS" in warning
    ]


async def test_a_worker_with_lower_limits_enforces_the_recorded_ones_unless_it_overrides_them(
    store: Store, raw: Any, namespace: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    strict = Settings(idle_timeout_s=DAY_S, max_sessions=1, keep_originals=False)
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace, strict) as memory:
        (limit, originals, timeout) = warnings(caplog)
        assert "max_sessions is 1 here, the namespace records 5000" in limit
        assert "keep_originals is false here, the namespace records true" in originals
        assert "idle_timeout_s is 86400 here, the namespace records 2592000" in timeout
        assert all("redismem worker --override" in warning for warning in (limit, originals, timeout))
        for name in "abc":
            await pod.session(name).append(chat_message(1))
        eviction = Eviction(memory.store)
        assert await eviction.enforce_limit() == 0
        await memory.store.agreement.override_record()
        assert memory.store.agreement.keeps_originals is False
        record = await raw.hgetall(memory.store.keys.record)
        assert record[b"max_sessions"] == b"1"
        assert (record[b"keep_originals"], record[b"idle_timeout_ms"]) == (b"0", b"86400000")
        assert await eviction.enforce_limit() == 2
        assert await clock.run_at(T0 + DAY_S * 1_000 + 1, eviction.enforce()) == 0, "the timeout is the pod's"
        assert await clock.run_at(T0 + 30 * DAY_S * 1_000 + 1, eviction.enforce()) == 1


async def test_the_largest_explicit_limit_is_recorded(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace):
        assert await limit_in(raw, namespace) is None, "the default is nobody's wish"
    for settings in (Settings(max_sessions=10), MONTH, Settings(max_sessions=20)):
        async with store.memory(namespace, settings):
            pass
    assert await limit_in(raw, namespace) == b"5000"


async def test_a_worker_that_would_drop_originals_keeps_them_where_they_are_recorded(
    store: Store, namespace: str
) -> None:
    small = {"threshold": 4, "recent_limit": 2}
    async with store.memory(namespace, Settings(**small)) as pod:
        session = pod.session("a")
        await session.append(*map(chat_message, range(8)))
        async with store.memory(namespace, Settings(**small, keep_originals=False)) as memory:
            assert await Worker(memory.store, Echo()).drain() == 1
        assert len(await session.messages(include_originals=True)) == 8
    async with store.memory(f"{namespace}-2", Settings(**small, keep_originals=False)) as memory:
        await memory.session("a").append(*map(chat_message, range(8)))
        async with store.memory(f"{namespace}-2", Settings(**small)) as other:
            assert other.store.agreement.keeps_originals, "a process may keep more for itself"
        assert await Worker(memory.store, Echo()).drain() == 1
        assert len(await memory.session("a").messages(include_originals=True)) < 8


async def test_the_first_process_records_its_limit_at_once(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace, MONTH):
        assert await limit_in(raw, namespace) == b"5000"


async def test_the_limit_is_recorded_again_after_a_flush(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace, MONTH) as memory:
        await raw.delete(Keys(namespace, 64).record)
        await Eviction(memory.store).enforce()
        assert await limit_in(raw, namespace) == b"5000"


@pytest.mark.parametrize(
    ("given", "recorded", "enforced", "noted"),
    [
        ({}, 0, 1_000, 0),
        ({}, 10, 1_000, 0),
        ({}, 2_000, 2_000, 0),
        ({"idle_timeout_s": 60}, 2_000, 2_000, 0),
        ({"max_sessions": 1_000}, 0, 1_000, 1_000),
        ({"max_sessions": 1_000}, 2_000, 2_000, 0),
        ({"max_sessions": 3_000}, 2_000, 3_000, 3_000),
    ],
)
def test_the_enforced_and_the_recorded_limit(given: dict[str, Any], recorded: int, enforced: int, noted: int) -> None:
    settings = Settings(**given)
    assert session_limit(settings, Recorded(recorded)) == enforced
    assert limit_to_record(settings, recorded) == noted


async def test_a_process_that_may_not_record_its_limit_goes_on(
    redis_server: RedisServer, direct_memory: Memory, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It opens, takes turns, and logs that the limit could not be recorded."""
    await direct_memory.session("a").append(chat_message(1))
    async with redis.asyncio.Redis(port=redis_server.port) as admin:
        rules = ("on", ">word", "~*", "+@all", "-hsetnx")
        await admin.execute_command("ACL", "SETUSER", namespace, *rules)
        try:
            url = redis_server.url.replace("://", f"://{namespace}:word@")
            async with Memory.connect(url, namespace=namespace, settings=MONTH) as memory:
                assert (await memory.session("a").append_and_read(chat_message(2))).total_messages == 2
        finally:
            await admin.execute_command("ACL", "DELUSER", namespace)
    (warning,) = warnings(caplog)
    assert warning.startswith("max_sessions could not be recorded: ")
    assert "(NOPERM " in warning


async def test_a_reply_that_is_lost_fails_no_call(proxy: Proxy, direct_memory: Memory) -> None:
    namespace = direct_memory.store.keys.namespace
    await direct_memory.session("a").append(chat_message(1))
    settings = Settings(max_sessions=5_000, deadline_s=60, reply_timeout_s=0.15)
    memory = Memory.connect(proxy.url, namespace=namespace, settings=settings)
    proxy.break_next("swallow", to=b"HSETNX")
    await memory.session("a").append(chat_message(2))
    await memory.aclose()
    assert (await direct_memory.session("a").read()).total_messages == 2
