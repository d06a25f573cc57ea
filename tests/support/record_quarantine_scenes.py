"""Scenes about records in quarantine, each directed at some lines of their scripts."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import CorruptSession, Memory, SessionExists, UnsupportedFormat
from redismem.protocol.call import Call
from redismem.protocol.record import calls, quarantine, reads
from redismem.protocol.record.quarantine import Copy
from redismem.protocol.record.reads import ReadOptions, Walker
from redismem.record import Change, Record
from support.stored import keys_of, read_namespace

OLD = Change(sets={b"m": b"old"}, adds=[b"m"])
NEW = Change(sets={b"m": b"new"}, adds=[b"m"])
HOUR_MS = 3_600_000


async def copies(memory: Memory, record: Record) -> list[Copy]:
    found = await memory.store.run(quarantine.copies_of([record.keys]))
    return sorted(found, key=lambda copy: copy.put_ms)


async def put(memory: Memory, record: Record, put_ms: int, *, forced: bool = False) -> bool:
    return await memory.store.run(quarantine.quarantine(record.keys, put_ms, HOUR_MS, forced=forced))


async def damages(memory: Memory, raw: Any) -> None:
    """Each kind of damage moves what there is into quarantine, on a write or by `set_aside`; the next writer begins."""

    async def shorten(record: Record, size: int) -> None:
        described = await raw.hget(record.keys.record, "")
        await raw.hset(record.keys.record, "", described[:size])

    async def replace(key: bytes) -> None:
        await raw.set(key, "foreign", keepttl=True)

    wrecks = {
        "short": lambda record: shorten(record, 5),
        "shorter": lambda record: shorten(record, 11),
        "empty": lambda record: shorten(record, 0),
        "other": lambda record: raw.hset(record.keys.record, "", b"garbage"),
        "none": lambda record: raw.hdel(record.keys.record, ""),
        "record": lambda record: replace(record.keys.record),
        "order": lambda record: replace(record.keys.order),
        "alone": lambda record: raw.delete(record.keys.record),
    }
    for name, wreck in wrecks.items():
        for is_write in (False, True):
            record = memory.record(f"{name} {is_write}", tag="t", owner="ann", ttl_s=3_600)
            await record.write(Change(absent=[b"x"], sets={b"m": b"old"}, adds=[b"m"]))
            await wreck(record)
            if name == "alone":
                await replace(record.keys.order)
            if is_write:
                assert await record.write(NEW) is True
                assert await record.get(b"m") == [b"new"]
            else:
                assert await record.set_aside()
            await check_copy(memory, raw, record, has_fields=name != "alone")
            await record.clear()
            assert await keys_of(raw, memory.store.keys.namespace) <= {memory.store.keys.record}


async def check_copy(memory: Memory, raw: Any, record: Record, *, has_fields: bool) -> None:
    (copy,) = await copies(memory, record)
    assert (copy.knows_owner, (copy.owner or b"")[-4:]) == (True, b" ann")
    index_ms, *times_ms = [await raw.pexpiretime(key) for key in (record.keys.copies, *record.keys.copy(copy.put_ms))]
    assert index_ms > await memory.server_time_ms()
    assert times_ms == [index_ms if has_fields else -2, index_ms]
    listed = [record.keys.member] if await record.exists() else []
    assert await raw.zrange(record.keys.records, 0, -1) == await raw.zrange(record.keys.owned, 0, -1) == listed


async def descriptions(memory: Memory, raw: Any) -> None:
    """Each script tells the description of another release from a damaged one, and writes nothing."""
    record = memory.record("r", ttl_s=60)
    await record.write(Change(absent=[b"x"], sets={b"m": b"old"}, adds=[b"m"]))
    described = await raw.hget(record.keys.record, "")
    faults = [(text, CorruptSession) for text in (b"garbage", b"", described[:2], described[:11], described[:19])]
    for text, error in (*faults, (b"v2 of another release", UnsupportedFormat)):
        await raw.hset(record.keys.record, "", text)
        before = await read_namespace(raw, memory.store.keys.namespace)
        walk = Walker(record.keys, b"m", b"", None, (), 9, False).next_call()
        assert walk is not None
        refused: list[Call[Any]] = [
            calls.write([(record.keys, NEW)], None),
            calls.touch(record.keys, None),
            reads.page(record.keys, reads.bounds_of(b""), ReadOptions(renew=True), None),
            reads.drop(record.keys, reads.bounds_of(b""), 9),
            walk,
            calls.exists(record.keys),
        ]
        for call in refused:
            with pytest.raises(error):
                await memory.store.run(call)
        assert await read_namespace(raw, memory.store.keys.namespace) == before


async def torn(memory: Memory, raw: Any) -> None:
    """Members that a record left behind do not come back with the next one; a readable record is not moved."""
    record = memory.record("r")
    await record.write(OLD)
    await raw.delete(record.keys.record)
    assert await put(memory, record, 1) is False
    await record.write(Change(sets={b"a": b"1"}))
    assert [each.member for each in (await record.page()).found] == []
    await record.write(Change(adds=[b"a"]))
    assert [each.member for each in (await record.page()).found] == [b"a"]
    assert await put(memory, record, 1) is False
    await raw.hset(record.keys.record, "", b"v2 of another release")
    before = await read_namespace(raw, memory.store.keys.namespace)
    for forced in (False, True):
        with pytest.raises(UnsupportedFormat):
            await put(memory, record, 1, forced=forced)
    assert await read_namespace(raw, memory.store.keys.namespace) == before
    assert await put(memory, memory.record("none"), 1, forced=True) is False
    bare = memory.record("bare", tag="r")
    await bare.write(Change(sets={b"a": b"1"}))
    assert await put(memory, bare, 1, forced=True) is True
    assert await memory.store.run(quarantine.restore((await copies(memory, bare))[0])) is True
    assert await bare.get(b"a") == [b"1"]


async def several_copies(memory: Memory, raw: Any) -> None:
    """Each copy stays with its own time to live, and names the owner if it is known; a clear removes them all."""
    record, owned = memory.record("r"), memory.record("r", owner="bob", ttl_s=60)
    for put_ms in (5, 6):
        await record.write(OLD)
        await raw.hset(record.keys.record, "", b"garbage")
        assert await put(memory, record, put_ms) is True
    await owned.write(OLD)
    assert await put(memory, record, 7, forced=True) is True
    told = [(copy.put_ms, copy.lasts, copy.knows_owner, copy.owner is None) for copy in await copies(memory, record)]
    assert told == [(5, True, False, True), (6, True, False, True), (7, False, True, False)]
    now_ms = await memory.server_time_ms()
    for put_ms, least_ms, most_ms in ((5, 60_000, HOUR_MS), (7, 0, 60_000)):
        times_ms = [await raw.pexpiretime(key) - now_ms for key in record.keys.copy(put_ms)]
        assert all(least_ms < left_ms <= most_ms + 5_000 for left_ms in times_ms)
    assert await raw.pexpiretime(record.keys.copies) - now_ms > 60_000
    assert await raw.exists(record.keys.records, record.keys.owned) == 0
    await owned.write(NEW)
    seen = await memory.store.run(quarantine.copies_of([record.keys]))
    assert await memory.store.run(quarantine.drop(record.keys, 5)) is True
    assert await memory.store.run(quarantine.drop(record.keys, 5)) is False
    assert len(seen) == 3
    assert await owned.clear() is True
    assert await keys_of(raw, memory.store.keys.namespace) <= {memory.store.keys.record}


async def clear_spares_a_new_copy(memory: Memory, raw: Any) -> None:
    """A copy that came after the clear had looked stays listed."""
    record = memory.record("r")
    for put_ms in (5, 6):
        await record.write(OLD)
        assert await put(memory, record, put_ms, forced=True) is True
    cleared = await memory.store.run(calls.clear(record.keys, {}, memory.store.settings))
    assert (cleared.was_there, sorted(cleared.copies_ms)) == (False, [5, 6])
    assert await memory.store.run(quarantine.drop(record.keys, 5)) is True
    assert await raw.exists(*record.keys.copy(5)) == 0
    assert await raw.exists(*record.keys.copy(6), record.keys.copies) == 3
    assert await record.clear() is False
    assert await raw.exists(*record.keys.copy(6), record.keys.copies) == 0


async def restores(memory: Memory, raw: Any) -> None:
    """A restored record has its fields, order, owner and expiry; a part of a foreign type stays in quarantine."""
    lasting, passing = memory.record("r"), memory.record("r", owner="bob", ttl_s=60)
    for put_ms, record in ((5, lasting), (6, passing)):
        await record.write(OLD)
        described = await raw.hget(record.keys.record, "")
        await put(memory, record, put_ms, forced=True)
        copy = (await copies(memory, record))[-1]
        call = quarantine.restore(copy)
        assert [await memory.store.run(call) for _ in range(2)] == [True, True]
        assert [(each.member, each.value) for each in (await record.page()).found] == [(b"m", b"old")]
        restored = await raw.hget(record.keys.record, "")
        assert (restored[:2], restored[10:]) == (described[:2], described[10:])
        assert restored[2:10] != described[2:10]
        times_ms = [await raw.pexpiretime(key) for key in (record.keys.record, record.keys.order)]
        assert times_ms == [-1, -1] if record is lasting else times_ms[0] == times_ms[1] > 0
        assert [(entry.id, entry.owner) for entry in (await memory.records()).records] == [("r", record.keys.owner)]
        assert await raw.zrange(record.keys.owned, 0, -1) == ([] if record is lasting else [b"r"])
        assert await raw.exists(record.keys.copies, *record.keys.copy(put_ms)) == 0
        with pytest.raises(SessionExists):
            await memory.store.run(quarantine.restore(copy))
        await record.clear()
        assert await memory.store.run(call) is False
    await lasting.write(OLD)
    await put(memory, lasting, 7, forced=True)
    (copy,) = await copies(memory, lasting)
    await raw.delete(lasting.keys.copy(7)[1])
    await raw.set(lasting.keys.copy(7)[1], "foreign")
    assert await memory.store.run(quarantine.restore(copy)) is True
    assert (await lasting.get(b"m"), (await lasting.page()).found) == ([b"old"], [])
    assert [await raw.exists(key) for key in lasting.keys.copy(7)] == [0, 1]
    assert await copies(memory, lasting) == [copy]
    await raw.set(lasting.keys.copy(7)[0], "foreign")
    await raw.delete(lasting.keys.record)
    assert await memory.store.run(quarantine.restore(copy)) is False


SCENES = [descriptions, damages, torn, several_copies, clear_spares_a_new_copy, restores]
