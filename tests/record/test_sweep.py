"""Expired records leave the indexes, and `check` reports damage of those that are there."""

from __future__ import annotations

from typing import Any

from redismem import Memory
from redismem.inspection.records import check_records
from redismem.record import Change
from redismem.workers.eviction import Eviction


async def violations(memory: Memory) -> list[tuple[str, str]]:
    return [(found.session_id, found.invariant) async for found in check_records(memory.store)]


async def test_the_sweep_removes_what_expired_and_lists_what_is_not_listed(memory: Memory, raw: Any) -> None:
    records = [memory.record(f"r{number}", tag="t", owner="ann", ttl_s=60) for number in range(4)]
    for record in records:
        await record.write(Change(sets={b"m": b"1"}, adds=[b"m"]))
    gone, torn, unlisted, sound = (record.keys for record in records)
    await raw.delete(gone.record, gone.order, torn.record)
    await raw.zrem(unlisted.records, unlisted.member)
    await raw.zadd(sound.owned, {b"foreign": 5})
    assert sorted(await violations(memory)) == [("r1", "R1"), ("r2", "R2")]
    assert [entry.id for entry in (await memory.records()).records] == ["r3"]
    removed, repaired = await Eviction(memory.store).sweep()
    assert (removed, repaired) == (3, 1)
    assert await raw.zrange(sound.records, 0, -1) == await raw.zrange(sound.owned, 0, -1) == [b"r2", b"r3"]
    assert await raw.exists(torn.order) == 0
    assert await violations(memory) == []
    assert await Eviction(memory.store).sweep() == (0, 0)
    await raw.hset(sound.record, b"", b"v2, of another release")
    assert await Eviction(memory.store).sweep() == (0, 0), "it is left alone"


async def test_check_reports_each_kind_of_damage(memory: Memory, raw: Any) -> None:
    keys = [memory.record(f"r{number}", tag="t", owner="ann", ttl_s=60).keys for number in range(6)]
    for number in range(6):
        record = memory.record(f"r{number}", tag="t", owner="ann", ttl_s=60)
        await record.write(Change(sets={b"m": b"secret"}, adds=[b"m"]))
    assert await violations(memory) == []
    await raw.set(keys[0].record, "secret")
    await raw.hset(keys[1].record, b"", b"v9")
    await raw.set(keys[2].order, "secret")
    await raw.persist(keys[3].order)
    await raw.zadd(keys[4].owned, {keys[4].member: 7})
    await raw.zrem(keys[5].owned, keys[5].member)
    await raw.zadd(keys[5].records, {b"\xff": 0})
    assert [entry.id for entry in (await memory.records(limit=4)).records] == ["r2", "r3"], "a foreign key hides none"
    assert (await memory.records(limit=1)).cursor is not None
    expected = [("r0", "R1"), ("r1", "R1"), ("r2", "R1"), ("r3", "R3"), ("r4", "R2"), ("r5", "R2"), (r"b'\xff'", "R2")]
    assert sorted(await violations(memory)) == sorted(expected)
    assert "secret" not in repr([found async for found in check_records(memory.store)])
