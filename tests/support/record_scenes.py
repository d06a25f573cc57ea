"""Scenes about records, each directed at some lines of their scripts: tests play them, also on broken scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from redismem import InvalidTime, Memory, RecordConflict, TooLarge, UnsupportedFormat
from redismem.errors import CorruptSession
from redismem.protocol.call import Call
from redismem.protocol.record import calls, reads
from redismem.protocol.record.calls import WriteOutcome
from redismem.record import Change, Head, Record, Related, Trace
from redismem.record.sweeping import RecordSweep
from support import quarantine_scenes, record_late_scenes, record_refusal_scenes
from support.record_refusal_scenes import refuse
from support.stored import read_namespace

Scene = Callable[[Memory, Any], Awaitable[None]]
RELATED = Related(b"w:", b":")
ONE = Change(sets={b"m": b"1"}, adds=[b"m"])


async def times_ms(raw: Any, record: Record) -> tuple[int, int]:
    return await raw.pexpiretime(record.keys.record), await raw.pexpiretime(record.keys.order)


async def written(memory: Memory, call: Call[WriteOutcome]) -> str:
    return await memory.store.run(call)


async def expiry(memory: Memory, raw: Any) -> None:
    """Both keys expire at the same time, renewed by a write, a touch and a read that asks for it; or they persist."""
    hour, lasting = memory.record("r", ttl_s=3_600), memory.record("r")
    now_ms = await memory.server_time_ms()
    await hour.write(Change(sets={b"m": Head().encode()}))
    await hour.write(Change(adds=[b"m"]))
    renewals: list[Callable[[], Awaitable[object]]] = [
        hour.touch,
        lambda: hour.get(b"m", renew=True),
        lambda: hour.newest(renew=True),
        lambda: hour.page(renew=True),
        lambda: hour.write(Change(sets={b"a": b"1"})),
    ]
    for renew in renewals:
        for key in (hour.keys.record, hour.keys.order):
            await raw.pexpire(key, 60_000)
        await asyncio.gather(hour.get(b"m"), hour.newest(), hour.exists(), lasting.touch(), lasting.newest(renew=True))
        assert max(await times_ms(raw, hour)) < now_ms + 3_600_000
        await renew()
        record_ms, order_ms = await times_ms(raw, hour)
        assert record_ms == order_ms >= now_ms + 3_600_000
    await lasting.write(Change())
    assert await times_ms(raw, hour) == (-1, -1)
    assert await hour.touch() is True
    assert await memory.record("other", ttl_s=60).touch() is False
    assert await memory.record("other", ttl_s=60).newest(renew=True) is None


async def late_clock(memory: Memory, raw: Any) -> None:
    """A clock so far behind that the record would expire at once is refused, before anything is written."""
    record = memory.record("r", ttl_s=60)
    await record.write(ONE)
    before = await read_namespace(raw, memory.store.keys.namespace)
    memory.store.clock = lambda: 1_000_000_000_000
    await refuse(InvalidTime, record.write(Change(sets={b"m": b"2"})), record.touch(), record.newest(renew=True))
    memory.store.clock = None
    now_ms = await memory.server_time_ms()
    memory.store.clock = lambda: now_ms + 1_000_000
    assert {key: value[0] for key, value in before.items()} == {
        key: value[0] for key, value in (await read_namespace(raw, memory.store.keys.namespace)).items()
    }
    await record.write(ONE)
    assert await times_ms(raw, record) == (now_ms + 1_060_000, now_ms + 1_060_000)
    memory.store.clock = None


async def foreign(memory: Memory, raw: Any) -> None:
    """The record of another release is left alone; a key of a foreign type is an error before anything is written."""
    record, other = memory.record("r", ttl_s=60), memory.record("other", tag="r")
    await record.write(ONE)
    described = await raw.hget(record.keys.record, "")
    await raw.hset(record.keys.record, "", b"v2 of another release")
    before = await read_namespace(raw, memory.store.keys.namespace)
    await refuse(
        UnsupportedFormat,
        other.write(Change(), (record, Change(sets={b"m": b"2"}))),
        *(record.get(b"m"), record.exists(), record.newest(), record.walk(b"m"), record.drop(b"m"), record.touch()),
    )
    assert await RecordSweep(memory.store).sweep() == (0, 0)
    assert await read_namespace(raw, memory.store.keys.namespace) == before
    await raw.hset(record.keys.record, "", described)
    await raw.delete(record.keys.order)
    await raw.set(record.keys.order, "foreign")
    with pytest.raises(CorruptSession):
        await memory.store.run(calls.write([(record.keys, Change(drops=[b"m"], adds=[b"x"]))], None))
    assert await raw.hget(record.keys.record, "m") == b"1"
    await raw.delete(record.keys.record)
    await raw.set(record.keys.record, "foreign")
    assert await record.clear() is True
    assert await raw.exists(record.keys.record, record.keys.order) == 0


async def parts_of_a_change(memory: Memory, raw: Any) -> None:
    """Each part of a change does its own, also in runs of a thousand; the description is written when it must be."""
    record, other = memory.record("r", owner="ann", tag="t"), memory.record("other", tag="t")
    many = [b"%04d" % number for number in range(1_500)]
    await record.write(Change(sets=dict.fromkeys(many, b"v"), sets_once={b"f": b"1"}, adds=many, updated_us=7))
    assert await raw.zrange(record.keys.records, 0, -1) == await raw.zrange(record.keys.owned, 0, -1) == [b"r"]
    assert (await raw.hlen(record.keys.record), await raw.zcard(record.keys.order)) == (1_502, 1_500)
    described = await raw.hget(record.keys.record, "")
    await other.write(Change(), (memory.record("r", tag="t"), Change(sets_once={b"f": b"2"})))
    assert await raw.hget(record.keys.record, "") == described
    assert await raw.zcard(record.keys.owned) == 1
    assert await raw.zrange(record.keys.updated, 0, -1, withscores=True) == [(b"r", 7.0)]
    assert await record.get(b"f") == [b"1"]
    await record.write(Change(absent=[b"x"], drops=many[:1_400], removes=many[1:], sets={many[0]: b"w"}))
    assert (await raw.hlen(record.keys.record), await raw.zrange(record.keys.order, 0, -1)) == (103, many[:1])
    assert await record.get(many[0], many[1], many[-1]) == [b"w", None, b"v"]
    assert (await memory.records()).records[1].owner == "ann"


async def conditions(memory: Memory, raw: Any) -> None:
    """Each kind of condition holds or not; the first that does not is named, and a write sent again is known."""
    record, other = memory.record("r"), memory.record("other", tag="r")
    await record.write(Change(sets={b"a": b"1", b"star": b"*", b"none": b""}))
    sound = Change(equals={b"a": b"1", b"star": b"*", b"none": b""}, absent=[b"x"], present=[b"a", b"none"])
    assert await record.write(sound) is True
    for place, change in (
        (b"a", Change(equals={b"star": b"*", b"a": b"2", b"none": b"1"}, sets={b"z": b"1"})),
        (b"a", Change(absent=[b"x", b"a", b"star"], sets={b"z": b"1"})),
        (b"x", Change(present=[b"none", b"x", b"y"], sets={b"z": b"1"})),
        (b"none", Change(absent=[b"none"], sets={b"z": b"1"})),
        (b"x", Change(equals={b"x": b""}, sets={b"z": b"1"})),
    ):
        for changes in ([], [(record, change)]):
            with pytest.raises(RecordConflict) as caught:
                await (other.write(Change(absent=[b"o"]), *changes) if changes else record.write(change))
            assert (caught.value.record_id, caught.value.field) == ("r", place)
    assert await record.get(b"z") == [None]
    assert not await other.exists()
    call = calls.write(
        [(other.keys, Change(adds=[b"o"])), (record.keys, Change(absent=[b"c"], sets={b"c": b"1"}))],
        None,
        memory.store.sender,
    )
    assert [await written(memory, call) for _ in range(2)] == ["created", "duplicate"]
    again = calls.write([(other.keys, Change()), (record.keys, Change())], None)
    assert await written(memory, again) == "ok"
    for number in range(15):
        await record.write(Change(present=[b"c"], sets={b"c": b"%d" % number}))
    assert await written(memory, call) == "duplicate"
    await record.write(Change(sets={b"c": b"last"}))
    assert await written(memory, call) == "duplicate"
    assert await record.get(b"c") == [b"last"]
    await record.write(Change(present=[b"c"]))
    with pytest.raises(RecordConflict):
        await memory.store.run(call)
    assert len(await raw.hget(record.keys.record, "")) < 160


async def clears(memory: Memory, raw: Any) -> None:
    """A clear removes both keys and both entries, if life and conditions are as expected; also what is left of one."""
    record = memory.record("r", owner="ann")
    await record.write(Change(sets={b"m": b"1"}, adds=[b"m"], updated_us=1))
    life = (await raw.hget(record.keys.record, ""))[2:10]
    for change in ({b"m": b"2"}, {b"x": b"1"}):
        with pytest.raises(RecordConflict) as caught:
            await record.clear(equals={**change})
        assert caught.value.field == next(iter(change))
    assert await memory.store.run(calls.clear_life(record.keys, b"another.")) is True
    assert await record.exists(), "of another life"
    clear = calls.clear(record.keys, {b"m": b"1"}, memory.store.settings)
    assert (await memory.store.run(clear)).was_there is True
    assert await raw.exists(record.keys.order, record.keys.records, record.keys.owned, record.keys.updated) == 0
    (note,) = [key async for key in raw.scan_iter(record.keys.shard + b":cleared:*")]
    assert 60_000 < await raw.pttl(note) <= 60_000 + 2_000 * memory.store.settings.deadline_s
    await record.write(Change(sets={b"m": b"2"}))
    assert await memory.store.run(calls.clear_life(record.keys, life)) is True
    assert (await memory.store.run(clear)).was_there is True
    assert await record.exists(), "begun since"
    life = (await raw.hget(record.keys.record, ""))[2:10]
    assert await memory.store.run(calls.clear_life(record.keys, life)) is True
    assert not await record.exists()
    await record.write(ONE)
    absent = memory.record("absent", tag="r")
    clear = calls.clear(absent.keys, {}, memory.store.settings)
    assert (await memory.store.run(clear)).was_there is False
    await absent.write(ONE)
    assert (await memory.store.run(clear)).was_there is False
    assert await absent.clear() is True, "begun since"
    with pytest.raises(RecordConflict):
        await record.clear(equals={b"m": b"9"})
    await raw.delete(record.keys.record)
    assert await record.clear() is False
    assert await raw.exists(record.keys.order, record.keys.records, record.keys.owned) == 0
    with pytest.raises(RecordConflict):
        await record.clear(equals={b"m": b"1"})


async def drops(memory: Memory, raw: Any) -> None:
    """A drop removes members within the bounds with their fields, in bounded steps, and says how many."""
    record = memory.record("r")
    members = [b"w:%d" % number for number in range(5)]
    await record.write(Change(sets=dict.fromkeys([*members, b"x"], b"v"), adds=[*members, b"x"]))
    with patch.object(reads, "DROP_COUNT", 2):
        assert await record.drop(b"w:", limit=1) == 1
        assert await raw.zrange(record.keys.order, 0, -1) == [*members[1:], b"x"]
        assert await record.drop(b"w:", before=b"w:4") == 3
    assert await record.get(*members, b"x") == [None] * 4 + [b"v"] * 2
    assert await record.drop(b"y") == 0
    assert await raw.zrange(record.keys.order, 0, -1) == [members[4], b"x"]
    assert await memory.record("other").drop(b"") == 0


async def reads_in_order(memory: Memory, raw: Any) -> None:
    """A page has members in either direction, what heads name and what belongs to them, and ends when it is large."""
    record = memory.record("r")
    assert (await record.page()).found == []
    sets = {b"c:%d" % number: Head(b"", (b"b:%d" % number, b"b:x")).encode() for number in range(4)}
    writes = {b"w:%d:a" % number: b"%d" % number for number in (1, 2)} | {b"w:10:a": b"no", b"w:1": b"no"}
    await record.write(Change(sets={**sets, b"b:1": b"one", b"b:2": b"x" * 500}, adds=sets))
    await record.write(Change(sets=writes, adds=[*writes, b"w:2:none", b"c:bare"]))
    page = await record.page(b"c:", limit=3, named=True, related=RELATED)
    assert ([each.member for each in page.found], page.after) == ([b"c:0", b"c:1", b"c:2"], b"c:2")
    assert [each.named[b"b:%d" % at] for at, each in enumerate(page.found)] == [None, b"one", b"x" * 500]
    assert [each.related for each in page.found] == [[], [(b"w:1:a", b"1")], [(b"w:2:a", b"2"), (b"w:2:none", None)]]
    rest = await record.page(b"c:", after=page.after, limit=2, named=True)
    assert [(each.member, each.value, each.named) for each in rest.found] == [
        (b"c:3", sets[b"c:3"], {b"b:3": None, b"b:x": None}),
        (b"c:bare", None, {}),
    ]
    assert rest.after is None
    bare = await record.page(b"c:", limit=2, reverse=True)
    assert [(each.member, each.named, each.related) for each in bare.found] == [(b"c:bare", {}, []), (b"c:3", {}, [])]
    with patch.object(reads, "REPLY_BYTES", 400):
        assert [each.member for each in (await record.page(b"c:", named=True)).found] == [b"c:0", b"c:1", b"c:2"]
        await record.write(Change(sets={b"c:0": b"y" * 500, b"w:1:a": b"z" * 500}))
        assert len((await record.page(b"c:")).found) == 1
        assert len((await record.page(b"c:", after=b"c:0", related=RELATED)).found) == 1
    with patch.object(reads, "RANGE_COUNT", 1):
        found = await record.newest(b"c:", member=b"c:2", related=RELATED)
        assert found is not None
        assert len(found.related) == 2, "the rest comes with a further call"
    many = {b"n:%04d" % number: b"" for number in range(1_200)}
    await record.write(
        Change(sets={**many, b"h": Head(b"", tuple(many)).encode(), b"odd": b"no head"}, adds=[b"h", b"odd"])
    )
    found = await record.newest(b"h", named=True)
    assert found is not None
    assert found.named == many
    found = await record.newest(b"odd", named=True)
    assert found is not None
    assert found.named == {}
    await raw.delete(record.keys.record)
    assert (await record.page()).found == [], "only its order is left"


async def walks(memory: Memory, _: Any) -> None:
    """A walk follows parents, with heads or with traces, in bounded calls, to the end, the limit or the last seed."""
    record = memory.record("r")
    for number in range(1, 8):
        names = (b"b:m:%d" % number, b"b:n:%d" % number)
        head = {b"c:%d" % number: Head(b"c:%d" % (number - 1), names).encode()}
        blobs = {b"b:m:3": b"seed", b"b:m:2": b"older", b"b:n:5": b""}
        writes = {b"w:%d:%d" % (number, at): b"%b=%d" % (channel, number) for at, channel in enumerate((b"m", b"n"))}
        await record.write(Change(sets={**head, **blobs, **writes}, adds=writes))
    for most in (2, 100):
        with patch.object(reads, "STEPS_COUNT", most):
            heads = (await record.walk(b"c:7")).heads
            assert [member for member, _ in heads] == [b"c:%d" % number for number in range(7, 0, -1)]
            assert [member for member, _ in (await record.walk(b"c:7", limit=3)).heads] == [b"c:7", b"c:6", b"c:5"]
            assert len((await record.walk(b"c:7", limit=3, skip_start=True)).heads) == 2
            traces = [Trace(b"b:m:", b"m="), Trace(b"b:n:", b"n=")]
            walk = await record.walk(b"c:7", prefix=b"c:", related=RELATED, traces=traces, skip_start=True)
            assert walk.heads == []
            first, second = walk.traced
            assert [value for _, value in first.entries] == [b"m=%d" % number for number in (6, 5, 4, 3)]
            assert [member for member, _ in second.entries] == [b"w:%d:1" % number for number in range(6, 0, -1)]
            assert (first.seed, second.seed) == ((b"b:m:3", b"seed"), None)
            (alone,) = (await record.walk(b"c:7", prefix=b"c:", related=RELATED, traces=traces[:1])).traced
            assert [member for member, _ in alone.entries] == [b"w:%d:0" % number for number in (7, 6, 5, 4, 3)]
    walker = reads.Walker(record.keys, b"c:7", b"c:", RELATED, traces[:1], 100, False)
    call = walker.next_call()
    assert call is not None
    await memory.store.run(call)
    assert (walker.limit, walker.next_call()) == (95, None), "the members before the seed are not visited"
    with patch.object(reads, "RANGE_COUNT", 1), pytest.raises(TooLarge):
        await record.walk(b"c:7", prefix=b"c:", related=RELATED, traces=traces)
    await record.write(Change(sets={b"w:2:%d" % number: b"m=" for number in range(9)}, adds=[b"w:2:8", b"w:2:7"]))
    with patch.object(reads, "RANGE_COUNT", 2):
        await record.walk(b"c:7", prefix=b"c:", related=RELATED, traces=traces[:1])
    with patch.object(reads, "REPLY_BYTES", 60):
        walker = reads.Walker(record.keys, b"c:7", b"", None, (), 100, False)
        call = walker.next_call()
        assert call is not None
        await memory.store.run(call)
        assert 1 <= len(walker.walk.heads) < 7
    assert (await record.walk(b"nothing")).heads == []


async def sweeps(memory: Memory, raw: Any) -> None:
    """A sweep removes what expired from both indexes, with an order that is left, and lists what is not listed."""
    ids = ("gone", "torn", "unlisted", "unowned", "sound", "another's", "nobody's")
    records = {name: memory.record(name, tag="t", owner=None if name == "nobody's" else "ann") for name in ids}
    for record in records.values():
        await record.write(Change(sets={b"m": b"1"}, adds=[b"m"], updated_us=1))
    keys = {name: record.keys for name, record in records.items()}
    records_key, owned = keys["sound"].records, keys["sound"].owned
    score = await raw.zscore(owned, "sound")
    await raw.delete(keys["gone"].record, keys["gone"].order, keys["torn"].record)
    await raw.zrem(records_key, "unlisted")
    await raw.zrem(owned, "unowned")
    await raw.zadd(owned, {"another's": 7, "nobody's": 8})
    await raw.hset(b"%b:record:hash" % records_key.rpartition(b":")[0], "a", "1")
    await raw.zadd(records_key, {"hash": 0})
    assert await RecordSweep(memory.store).sweep() == (2, 3)
    left = sorted(name.encode() for name in ids if name not in ("gone", "torn"))
    assert await raw.zrange(records_key, 0, -1) == sorted([*left, b"hash"])
    assert await raw.zrange(owned, 0, -1, withscores=True) == [(name, score) for name in left if name != b"nobody's"]
    assert await raw.zrange(keys["sound"].updated, 0, -1) == left
    assert await raw.exists(keys["torn"].order) == 0
    assert await RecordSweep(memory.store).sweep() == (0, 0)


SCENES: list[Scene] = [
    *(expiry, late_clock, foreign, parts_of_a_change, conditions),
    *(clears, drops, reads_in_order, walks, sweeps),
    *record_late_scenes.SCENES,
    *quarantine_scenes.SCENES,
    *record_refusal_scenes.SCENES,
]
