"""A default removes nothing that others were told to keep: the limits in the namespace's record, on both stores."""

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
from support.writers import said

from redismem import Memory, Settings
from redismem.environment import LONGEST_S, MOST_SESSIONS
from redismem.protocol.keys import Keys
from redismem.protocol.namespace_calls import Recorded
from redismem.store.limits import Limits, to_record
from redismem.workers.eviction import Eviction

DAY_S = 86_400
MONTH = Settings(idle_timeout_s=30 * DAY_S, max_sessions=5_000)


async def limits_in(raw: Any, namespace: str) -> dict[bytes, bytes]:
    record: dict[bytes, bytes] = await raw.hgetall(Keys(namespace, 64).record)
    return {name: value for name, value in record.items() if name not in (b"layout", b"shards")}


async def test_a_worker_without_a_timeout_keeps_to_that_of_the_pods(
    store: Store, namespace: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace) as memory:
        await pod.session("a").append(said(1))
        eviction = Eviction(memory.store)
        for _ in range(2):
            assert await clock.at(T0 + 2 * DAY_S * 1_000, eviction.enforce()) == 0
        assert await memory.count() == 1
        (told,) = [record.getMessage() for record in caplog.records if record.name == "redismem.worker"]
        assert "keeps 5000 sessions for 2.592e+06 s each" in told
        assert "REDISMEM_IDLE_TIMEOUT_S" in told
        assert await clock.at(T0 + 30 * DAY_S * 1_000 + 1, eviction.enforce()) == 1


async def test_it_keeps_to_their_session_limit(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace) as memory:
        for at in range(0, 1_002, 6):
            await asyncio.gather(*(pod.session(f"s-{at + more}").append(said(1)) for more in range(6)))
        assert await Eviction(memory.store).enforce_limit() == 0
        assert await memory.count() == 1_002


async def test_a_worker_that_is_given_limits_goes_by_them(store: Store, namespace: str, clock: Clock) -> None:
    strict = Settings(idle_timeout_s=DAY_S, max_sessions=1)
    async with store.memory(namespace, MONTH) as pod, store.memory(namespace, strict) as memory:
        for name in "abc":
            await pod.session(name).append(said(1))
        eviction = Eviction(memory.store)
        assert await eviction.enforce_limit() == 2
        assert await clock.at(T0 + DAY_S * 1_000 + 1, eviction.enforce()) == 1


async def test_the_largest_that_was_given_is_recorded(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace):
        assert await limits_in(raw, namespace) == {}, "defaults are nobody's wish"
    for settings in (Settings(max_sessions=10), MONTH, Settings(max_sessions=20, idle_timeout_s=60)):
        async with store.memory(namespace, settings):
            pass
    assert await limits_in(raw, namespace) == {b"max_sessions": b"5000", b"idle_timeout_ms": b"2592000000"}


async def test_the_first_of_a_namespace_records_them_at_once(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace, MONTH):
        assert await limits_in(raw, namespace) == {b"max_sessions": b"5000", b"idle_timeout_ms": b"2592000000"}


async def test_they_are_recorded_again_after_a_flush(store: Store, raw: Any, namespace: str) -> None:
    async with store.memory(namespace, MONTH) as memory:
        await raw.delete(Keys(namespace, 64).record)
        await Eviction(memory.store).enforce()
        assert await limits_in(raw, namespace) == {b"max_sessions": b"5000", b"idle_timeout_ms": b"2592000000"}


@pytest.mark.parametrize(
    ("given", "recorded", "enforced", "noted"),
    [
        ({}, None, (1_000, DAY_S), {}),
        ({}, (10, 10), (1_000, DAY_S), {}),
        ({}, (2_000, 0), (2_000, DAY_S), {}),
        ({}, (0, 9 * DAY_S * 1_000), (1_000, 9 * DAY_S), {}),
        ({"max_sessions": 1_000}, (2_000, 9 * DAY_S * 1_000), (1_000, 9 * DAY_S), {}),
        ({"idle_timeout_s": DAY_S}, (2_000, 9 * DAY_S * 1_000), (2_000, DAY_S), {}),
        ({"max_sessions": 3_000}, (2_000, 0), (3_000, DAY_S), {"max_sessions": 3_000}),
        ({"idle_timeout_s": 60}, None, (1_000, 60), {"idle_timeout_ms": 60_000}),
    ],
)
def test_who_keeps_to_what(
    given: dict[str, Any], recorded: tuple[int, int] | None, enforced: tuple[int, int], noted: dict[str, int]
) -> None:
    settings, found = Settings(**given), None if recorded is None else Recorded(*recorded)
    assert Limits.of(settings, found) == Limits(enforced[0], enforced[1] * 1_000)
    assert to_record(settings, found) == noted


def test_what_stands_for_an_unusable_variable_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "many")
    monkeypatch.setenv("REDISMEM_IDLE_TIMEOUT_S", "a day")
    settings = Settings()
    assert Limits.of(settings, None) == Limits(MOST_SESSIONS, LONGEST_S * 1_000)
    assert to_record(settings, None) == {}


async def test_a_process_whose_user_may_not_write_them_works_on(
    redis_server: RedisServer, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It opens, takes turns, and says what could not be recorded."""
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        await memory.session("a").append(said(1))
    async with redis.asyncio.Redis(port=redis_server.port) as admin:
        rules = ("on", ">word", "~*", "+@all", "-hsetnx")
        await admin.execute_command("ACL", "SETUSER", namespace, *rules)
        try:
            url = redis_server.url.replace("://", f"://{namespace}:word@")
            async with Memory.connect(url, namespace=namespace, settings=MONTH) as memory:
                assert (await memory.session("a").append_and_read(said(2))).total_messages == 2
        finally:
            await admin.execute_command("ACL", "DELUSER", namespace)
    (told,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "not recorded (NOPERM " in told.getMessage()
    assert "max_sessions, idle_timeout_ms" in told.getMessage()


async def test_a_reply_that_is_lost_fails_no_call(proxy: Proxy, near: Memory) -> None:
    namespace = near.store.keys.namespace
    await near.session("a").append(said(1))
    memory = Memory.connect(proxy.url, namespace=namespace, settings=MONTH)
    proxy.break_next("swallow", to=b"HSETNX")
    await memory.session("a").append(said(2))
    await memory.aclose()
    assert (await near.session("a").read()).total_messages == 2
