"""Sessions with a layout of another release are refused, never quarantined and never evicted."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import T0, Clock
from support.conversations import user_message
from support.operations import OPERATIONS
from support.stored import keys_of, read_namespace
from support.stores import Store

from redismem import Memory, Session, UnsupportedFormat
from redismem.inspection.check import check_session
from redismem.protocol.keys import Keys, SessionKeys
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

LAYOUT_2 = b"v2 1 2 10 4000000000000 4000000100000"


@pytest.mark.parametrize("method", [name for name, row in OPERATIONS.items() if row.refuses_layout])
async def test_a_session_of_another_layout_is_left_alone(
    raw: Any, session: Session, keys: SessionKeys, namespace: str, method: str
) -> None:
    await session.append(user_message("a"), user_message("b"))
    await raw.hset(keys.state, "counters", LAYOUT_2)
    before = await read_namespace(raw, namespace)
    with pytest.raises(UnsupportedFormat, match=r"session user-42: the session has layout version 2, this .* knows 1$"):
        await OPERATIONS[method].call(session)
    assert await read_namespace(raw, namespace) == before


async def test_workers_leave_a_session_of_another_layout_alone(
    raw: Any, memory: Memory, keys: SessionKeys, namespace: str, clock: Clock
) -> None:
    await clock.run_at(T0, memory.session("user-42").append(*(user_message(number) for number in range(12))))
    await raw.hset(keys.state, "counters", LAYOUT_2)
    await raw.zadd(keys.shard.evictions, {"user-42": 1})
    before = await read_namespace(raw, namespace)
    worker, eviction = Worker(memory.store, Trim()), Eviction(memory.store)
    assert await clock.run_at(T0 + 10**9, worker.drain()) == 0
    assert worker.outcomes == {"unavailable": 1}
    assert await clock.run_at(T0 + 10**9, eviction.enforce()) == 0
    assert await clock.run_at(T0 + 10**9, eviction.sweep()) == (0, 0)
    assert await read_namespace(raw, namespace) == before
    assert [found.invariant for found in await check_session(memory.store, "user-42")] == ["I1"]
    assert await memory.session("user-42").clear()
    assert await keys_of(raw, namespace) == {keys.shard.fences, Keys(namespace, 64).record}


async def test_no_read_gives_the_state_of_another_layout(memory: Memory, raw: Any, keys: SessionKeys) -> None:
    session = memory.session("user-42")
    await session.append(user_message(1), merge={"a": 1})
    await raw.hset(keys.state, "counters", "v2 1 1 9 5 6")
    for read in (session.state, session.params, session.waiting, session.plan):
        with pytest.raises(UnsupportedFormat, match="layout version 2"):
            await read()


RECORDS = [{"layout": "x", "shards": "64"}, {"layout": "1", "shards": ""}, {"layout": "9" * 5_000}, "a string"]


@pytest.mark.parametrize("record", RECORDS, ids=["layout", "shards", "digits", "type"])
async def test_an_unreadable_record_is_named_by_its_key(
    store: Store, namespace: str, raw: Any, record: dict[str, str] | str
) -> None:
    key = f"rm:{{{namespace}}}:namespace"
    await (raw.set(key, record) if isinstance(record, str) else raw.hset(key, mapping=record))
    with pytest.raises(UnsupportedFormat, match="a record that cannot be read: look at the key rm:"):
        async with store.memory(namespace):
            pass
