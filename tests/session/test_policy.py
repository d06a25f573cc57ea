"""The policy of a session: every process obeys it, whatever its own settings."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import T0, Clock
from support.edited import is_sound, summarize
from support.stores import Store
from support.writers import chat_message

from redismem import InvalidSettings, Message, Policy, Settings
from redismem.blocking import memory as blocking
from redismem.context.context import Context
from redismem.inspection import quarantine
from redismem.inspection.check import check
from redismem.settings.environment import warn_of_timeout
from redismem.workers.eviction import Eviction

DAY_MS = 86_400_000
WHOLE = Policy(keep_whole=True, idle_timeout_s=400 * 86_400)
SMALL = {"threshold": 4, "recent_limit": 2, "shards": 2}


async def test_a_pod_and_a_worker_with_other_settings_obey_it(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(**SMALL)) as memory, store.memory(namespace, Settings(shards=2)) as pod:
        session = memory.session("kept", policy=WHOLE)
        await session.append(chat_message(1))
        await pod.session("kept").append(*map(chat_message, range(20)))
        await memory.session("other").append(*map(chat_message, range(20)))
        assert await summarize(memory) == 1
        assert [len((await memory.session(name).read()).summaries) for name in ("kept", "other")] == [0, 1]
        info = await pod.session("kept").info()
        assert (info.policy, info.queued) == (WHOLE, None)
        assert info.expires_ms == info.active_ms + 400 * DAY_MS
        strict = Settings(shards=2, idle_timeout_s=100)
        async with store.memory(namespace, strict) as other:
            assert await clock.run_at(T0 + 100 * DAY_MS, Eviction(other.store).enforce()) == 1
            assert await clock.run_at(T0 + 400 * DAY_MS, Eviction(other.store).enforce()) == 0
            assert await session.exists()
            assert await clock.run_at(T0 + 400 * DAY_MS + 1, Eviction(other.store).enforce()) == 1
        assert not await session.exists()


async def test_exempt_sessions_neither_count_nor_go(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=1, max_sessions=3)) as memory:
        for number in range(5):
            session = memory.session(f"x-{number}", policy=Policy(exempt=True))
            await clock.run_at(T0 + number, session.append(chat_message(number)))
        for number in range(5):
            await clock.run_at(T0 + 1_000 * number, memory.session(f"s-{number}").append(chat_message(number)))
        assert await is_sound(memory)
        assert await Eviction(memory.store).enforce() == 2
        left = {entry.session_id for entry in (await memory.sessions()).sessions}
        assert left == {*(f"x-{number}" for number in range(5)), "s-2", "s-3", "s-4"}
        assert await memory.count() == 8
        assert await memory.session("x-0").set_policy(Policy())
        assert await memory.session("s-2").set_policy(Policy(exempt=True))
        assert await Eviction(memory.store).enforce() == 0, "three of eight count"
        await memory.session("x-1").set_policy(Policy())
        assert await Eviction(memory.store).enforce() == 1
        assert not await memory.session("s-3").exists()
        assert await is_sound(memory)


async def test_pages_list_exempt_sessions_in_their_order(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        for number in range(12):
            policy = Policy(exempt=True) if number % 3 else None
            await clock.run_at(
                T0 + 1_000 * (number // 2), memory.session(f"s-{number:02}", policy=policy).merge({"a": 1})
            )
        listed: list[tuple[int, str]] = []
        cursor = None
        while True:
            page = await memory.sessions(limit=5, cursor=cursor)
            listed += [(entry.active_ms, entry.session_id) for entry in page.sessions]
            cursor = page.cursor
            if cursor is None:
                break
        assert listed == sorted(((T0 + 1_000 * (number // 2), f"s-{number:02}") for number in range(12)), reverse=True)


async def test_idle_sessions_are_listed_on_request(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        for policy in (WHOLE, Policy(idle_timeout_s=400 * 86_400, exempt=True)):
            await memory.session(f"idle-{policy.exempt}", policy=policy).append(chat_message(1))
        clock.now_ms += 2 * 86_400_000
        await memory.session("new").append(chat_message(1))
        assert [entry.session_id for entry in (await memory.sessions()).sessions] == ["new"]
        first = await memory.sessions(2, include_idle=True)
        second = await memory.sessions(2, first.cursor, include_idle=True)
        listed = [entry.session_id for entry in (*first.sessions, *second.sessions)]
        assert (sorted(listed), second.cursor) == (["idle-False", "idle-True", "new"], None)


@pytest.mark.parametrize("policy", [Policy(idle_timeout_s=600), Policy(idle_timeout_s=600, exempt=True)])
async def test_a_session_with_a_shorter_timeout_is_handed_over_in_time(
    store: Store, namespace: str, clock: Clock, policy: Policy
) -> None:
    handed: list[Any] = []

    async def on_evict(session_id: str, context: Context) -> None:
        handed.append((session_id, context.policy, context.owner))

    async with store.memory(namespace, Settings(shards=2)) as memory:
        session = memory.session("short", policy=policy, owner="ann")
        await clock.run_at(T0, session.append(chat_message(1)))
        await clock.run_at(T0, memory.session("long").append(chat_message(1)))
        eviction = Eviction(memory.store, on_evict)
        for now_ms in (T0 + 500_000, T0 + 560_000, T0 + 600_000):
            assert await clock.run_at(now_ms, eviction.enforce()) == 0
        assert await clock.run_at(T0 + 600_001, eviction.enforce()) == 1
        assert handed == [("short", policy, "ann")]
        await clock.run_at(T0 + 700_000, session.append(chat_message(1)))
        for steps in range(1, 5):
            now_ms = T0 + 700_000 + 590_000 * steps
            assert await clock.run_at(now_ms, eviction.enforce()) == 0
            await clock.run_at(now_ms, session.append(chat_message(1)))
        assert await is_sound(memory)


async def test_only_the_first_write_or_set_policy_sets_it(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        assert not await memory.session("a").set_policy(WHOLE), "there is no session"
        await memory.session("a", policy=Policy(exempt=True)).merge({"a": 1})
        await memory.session("a", policy=WHOLE).append(chat_message(1))
        assert (await memory.session("a").info()).policy == Policy(exempt=True)
        assert await memory.session("a", policy=WHOLE).set_policy(Policy(idle_timeout_s=1))
        assert (await memory.session("a").info()).policy == Policy(idle_timeout_s=1)
        await memory.session("a").set_policy(Policy())
        assert (await memory.session("a").info()).policy == Policy()
        await memory.session("a", policy=WHOLE).clear()
        await memory.session("a").append(chat_message(1))
        assert (await memory.session("a").info()).policy == Policy(), "it went with the session"


async def test_edits_keep_it_and_so_does_a_restored_session(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        session = memory.session("a", policy=WHOLE)
        await session.append(*map(chat_message, range(6)))
        await session.replace(2, Message("user", "new"))
        await session.pop(1)
        await session.prune(3)
        assert (await session.info()).policy == WHOLE
        assert [violation async for violation in check(memory.store)] == []
        keys = memory.store.keys.session("a")
        await raw.hset(keys.state, "summary:1", b"\xc1")
        assert await session.set_aside()
        await quarantine.restore(memory.store, await quarantine.find(memory.store, "a", None), salvage=True)
        assert (await session.info()).policy == WHOLE
        assert (await session.info()).window_count == 3


@pytest.mark.parametrize(
    "policy",
    [
        {"keep_whole": True},
        Policy(keep_whole=1),  # type: ignore[arg-type]
        Policy(exempt=None),  # type: ignore[arg-type]
        *(Policy(idle_timeout_s=value) for value in (0, -1, float("nan"), float("inf"), 1e12, True)),
        Policy(idle_timeout_s="60"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_policy_is_refused(store: Store, namespace: str, policy: Any) -> None:
    async with store.memory(namespace) as memory:
        with pytest.raises(InvalidSettings):
            memory.session("a", policy=policy)
        with pytest.raises(InvalidSettings):
            await memory.session("a").set_policy(policy)


@pytest.mark.parametrize(("timeout_s", "warning"), [(86_400_000.5, "1000 days"), (24.5, "24.5 s"), (86_400, None)])
async def test_a_timeout_in_another_unit_is_warned_of_once(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, timeout_s: float, warning: str | None
) -> None:
    warn_of_timeout.cache_clear()  # once per process
    policy = Policy(idle_timeout_s=timeout_s)
    async with store.memory(namespace) as memory:
        await memory.session("a", policy=policy).append(chat_message(1))
        await memory.session("a").set_policy(policy)
    texts = [record.getMessage() for record in caplog.records if "of a policy is in seconds" in record.getMessage()]
    assert len(texts) == (warning is not None)
    assert warning is None or f"stay for {warning} after" in texts[0]


def test_the_blocking_memory_takes_it_too(redis_server: Any, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        session = memory.session("a", policy=WHOLE)
        session.append(chat_message(1))
        assert session.info().policy == WHOLE
        assert session.set_policy(Policy(exempt=True))
        assert session.info().policy == Policy(exempt=True)
