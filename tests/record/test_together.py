"""Many records at once: read in a few round trips, and written shard by shard, each step all or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from support.redis_server import RedisServer

from redismem import CorruptSession, Memory, OwnerMismatch, RecordConflict, blocking
from redismem.blocking import get_all as get_all_blocking
from redismem.blocking import write_all as write_all_blocking
from redismem.record import Change, get_all, write_all


async def test_all_records_are_written_and_read_whatever_their_shards(memory: Memory) -> None:
    records = [memory.record(f"r{number}") for number in range(300)]
    await write_all([])
    await write_all([(record, Change(sets={b"f": record.id.encode()}, adds=[b"f"])) for record in records])
    missing = memory.record("none")
    found = await get_all([*records, missing], b"f", b"g")
    assert found == [*([record.id.encode(), None] for record in records), [None, None]]
    assert await get_all([]) == []
    page = await memory.records("r", limit=1_000)
    assert len(page.records) == 300


async def test_a_refused_step_leaves_its_records_alone_and_the_other_shards_written(memory: Memory) -> None:
    together = [memory.record(f"a{number}", tag="a") for number in range(3)]
    apart = [memory.record(f"b{number}", tag=f"b{number}") for number in range(9)]
    changes = [(record, Change(sets={b"f": b"1"})) for record in (*together, *apart)]
    with pytest.raises(RecordConflict) as lost:
        await write_all([*changes[:2], (together[2], Change(present=[b"no"], sets={b"f": b"1"})), *changes[3:]])
    assert (lost.value.record_id, lost.value.field) == ("a2", b"no")
    shard = together[0].keys.shard
    expected = [None if record.keys.shard == shard else b"1" for record in (*together, *apart)]
    assert [value for [value] in await get_all([*together, *apart], b"f")] == expected
    assert expected.count(b"1") > 5
    stranger = memory.record("b0", owner="ann")
    with pytest.raises(OwnerMismatch):
        await get_all([stranger, apart[1]], b"f")
    with pytest.raises(OwnerMismatch):
        await write_all([(stranger, Change(sets={b"f": b"2"}))])


async def test_a_damaged_record_is_told_by_a_read_and_begun_anew_by_a_write(memory: Memory, raw: Any) -> None:
    records = [memory.record(f"r{number}", tag="r") for number in range(3)]
    await write_all([(record, Change(sets={b"f": b"1"})) for record in records])
    await raw.hset(records[1].keys.record, "", "damaged")
    with pytest.raises(CorruptSession):
        await get_all(records, b"f")
    await write_all([(record, Change(sets={b"g": b"2"})) for record in records])
    assert await get_all(records, b"f", b"g") == [[b"1", b"2"], [None, b"2"], [b"1", b"2"]]


def test_the_same_without_await(redis_server: RedisServer, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        records = [memory.record(f"r{number}") for number in range(5)]
        write_all_blocking([(record, Change(sets={b"f": record.id.encode()})) for record in records])
        assert get_all_blocking(records, b"f") == [[record.id.encode()] for record in records]
