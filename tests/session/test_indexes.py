"""Thresholds, expiry and the session list, on both stores."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import T0, Clock
from support.conversations import contents, user_message
from support.stores import Store

from redismem import (
    Memory,
    Session,
    Settings,
)
from redismem.protocol.keys import Keys, SessionKeys


@pytest.mark.parametrize("threshold", [1, 2, 7, 10])
async def test_a_session_is_overdue_exactly_when_its_window_is_over_the_threshold(
    raw: Any, store: Store, namespace: str, threshold: int, clock: Clock
) -> None:
    settings = Settings(threshold=threshold, recent_limit=min(3, threshold))
    async with store.memory(namespace, settings) as memory:
        session = memory.session("user-42")
        overdue = Keys(namespace, 64).session("user-42").shard.overdue
        for count in range(1, threshold + 3):
            context = await clock.run_at(T0 + count, session.append_and_read(user_message(count)))
            assert (await session.info()).queued == ("overdue" if count > threshold else None)
            marked = await raw.zscore(overdue, "user-42")
            assert marked == (T0 + threshold + 1 if count > threshold else None)
            assert len(context.recent) == min(count, settings.recent_limit)
            assert len(context.pending) == max(0, count - settings.recent_limit)


async def test_all_keys_of_a_session_expire_together(
    raw: Any, store: Store, namespace: str, keys: SessionKeys, clock: Clock
) -> None:
    async with store.memory(namespace, Settings(idle_timeout_s=1000)) as memory:
        session = memory.session("user-42")
        expected = 0
        for at in (0, 999, 1_000, 62_500, 100_000, 900_000):
            await clock.run_at(T0 + at, session.append(user_message("a")))
            state, messages = await raw.pexpiretime(keys.state), await raw.pexpiretime(keys.messages)
            assert state == messages == (await session.info()).expires_ms
            assert state == T0 + (0 if at == 999 else at) + 1_000_000
            expected = state
        await clock.run_at(T0 + 950_000, session.touch())
        assert await raw.pexpiretime(keys.state) == await raw.pexpiretime(keys.messages) > expected


async def test_an_expired_session_is_unknown_and_begins_anew(
    session: Session, memory: Memory, raw: Any, clock: Clock
) -> None:
    assert (await session.append(user_message("old"), merge={"a": 1})).created
    keys = memory.store.keys.session(session.id)
    for key in (keys.state, keys.messages):
        await raw.pexpireat(key, 1)
    clock.now_ms += memory.settings.idle_timeout_ms
    assert await session.exists() is False
    assert await memory.count() == 0
    again = await session.append_and_read(user_message("new"))
    assert again.receipt is not None
    assert again.receipt.created
    assert (contents(again.messages), again.total_messages, again.state.params) == (["new"], 1, {})


async def test_a_new_session_takes_those_that_have_expired_out_of_the_indexes(
    store: Store, namespace: str, raw: Any, clock: Clock
) -> None:
    """This works without a sweep, and spares sessions that another process gave a longer idle timeout."""
    day_s = 86_400
    patient = Settings(shards=1, idle_timeout_s=30 * day_s, threshold=4, recent_limit=2)
    async with (
        store.memory(namespace, patient) as theirs,
        store.memory(namespace, Settings(shards=1, idle_timeout_s=60)) as memory,
    ):
        for name in ("gone", "alive"):
            await clock.run_at(T0, theirs.session(name).append(*(user_message(f"{number}") for number in range(6))))
        keys = memory.store.keys.session("gone")
        await raw.delete(keys.messages, keys.state)
        await clock.run_at(T0 + 4 * day_s * 1000, memory.session("new").append(user_message("a")))
        assert set(await raw.zrange(keys.shard.active, 0, -1)) == {b"alive", b"new"}
        assert await raw.zrange(keys.shard.overdue, 0, -1) == [b"alive"]


async def test_touch_makes_a_session_active(session: Session, memory: Memory, clock: Clock) -> None:
    await clock.run_at(T0, session.append(user_message("a")))
    assert await clock.run_at(T0 + 5, session.touch()) is True
    assert (await session.info()).active_ms == T0 + 5


async def test_count_is_of_the_live_sessions_of_the_namespace(store: Store, namespace: str, clock: Clock) -> None:
    async with (
        store.memory(namespace, Settings(idle_timeout_s=100)) as memory,
        store.memory(namespace + "x") as other,
    ):
        assert await memory.count() == 0
        for number in range(20):
            await clock.run_at(T0 + number * 1000, memory.session(f"s{number}").append(user_message("a")))
        await other.session("s0").append(user_message("b"))
        assert await clock.run_at(T0 + 19_000, memory.count()) == 20
        assert await clock.run_at(T0 + 99_999, memory.count()) == 20
        assert await clock.run_at(T0 + 100_000, memory.count()) == 19
        assert await clock.run_at(T0 + 119_000, memory.count()) == 0
        await memory.session("s19").clear()
        assert await clock.run_at(T0, memory.count()) == 19
        assert await other.count() == 1
        assert contents((await other.session("s0").read()).messages) == ["b"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
async def test_sessions_are_listed_page_by_page_the_last_active_first(memory: Memory, limit: int, clock: Clock) -> None:
    expected = []
    for number in range(23):
        # Many were active in the very same millisecond.
        at = T0 + (number // 8) * 1000
        await clock.run_at(at, memory.session(f"s{number:02d}").append(user_message("a")))
        expected.append((at, f"s{number:02d}"))
    found: list[tuple[int, str]] = []
    cursor = None
    while True:
        page = await memory.sessions(limit, cursor)
        assert len(page.sessions) <= limit
        found += [(entry.active_ms, entry.session_id) for entry in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == sorted(expected, reverse=True)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 10])
async def test_pages_go_on_through_sessions_of_the_very_same_millisecond(
    store: Store, namespace: str, limit: int
) -> None:
    """All sessions are in one shard, and fill several pages."""
    async with store.memory(namespace, Settings(shards=1)) as memory:
        names = [f"s{number:02d}" for number in range(11)]
        for name in names:
            await memory.session(name).append(user_message("a"))
        found: list[str] = []
        cursor = None
        for _ in names:
            page = await memory.sessions(limit, cursor)
            found += [entry.session_id for entry in page.sessions]
            if (cursor := page.cursor) is None:
                break
        assert found == sorted(names, reverse=True)


@pytest.mark.parametrize(
    "cursor", ["", "x", "W10=", "é", "W0luZmluaXR5LCJhIiwxXQ==", "WzEsICJhIiwgLTFd", "WzEuNSwgImEiLCAxXQ=="]
)
async def test_a_cursor_that_no_page_gave_is_refused(memory: Memory, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await memory.sessions(5, cursor)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_a_page_has_at_least_one_session(memory: Memory, limit: int) -> None:
    with pytest.raises(ValueError, match=r"limit|page"):
        await memory.sessions(limit)


async def test_info_is_the_numbers_of_a_session(session: Session, clock: Clock) -> None:
    await session.append(*[user_message("a")] * 11, merge={"b": 1, "a": 1}, waiting="a")
    await session.prune(4)
    known = await session.info()
    assert (known.session_id, known.total_messages, known.first_seq, known.window_count) == ("user-42", 11, 8, 4)
    assert known.window_tokens == sum(message.tokens for message in (await session.read()).messages)
    assert (known.params_keys, known.waiting_for_param, known.summaries_count) == (("a", "b"), "a", 0)
    assert (known.active_ms, known.queued, known.epoch) == (clock.now_ms, "overdue", (await session.read()).epoch)


async def test_telemetry_is_numbers_and_names(session: Session) -> None:
    await session.append(user_message("CANARY"), merge={"order_id": "CANARY"}, waiting="size", plan="CANARY")
    found = await session.telemetry()
    assert found == {"history_count": 1, "params_keys": ["order_id"], "waiting_for_param": "size"}
