"""Scenes about quarantine, of sessions and records alike: tests play them, also on broken scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest

from redismem import CorruptSession, Memory, Session, SessionExists, SessionNotFound, UnsupportedFormat
from redismem.inspection import quarantine
from redismem.inspection.quarantine import Quarantined
from redismem.protocol import quarantine as calls
from redismem.protocol.call import Call
from redismem.protocol.owners import encode_owner
from redismem.protocol.quarantine import Copy, Origin, Seen, look
from redismem.protocol.record.calls import clear as clear_record
from redismem.protocol.record.quarantine import of_record
from redismem.record import Change, Record
from support.quarantined import copies_of, move_record, move_session
from support.stored import read_namespace
from support.turns import keys_left, put_turn

Scene = Callable[[Memory, Any], Awaitable[None]]
HOUR_MS = 3_600_000


@dataclass
class Thing:
    """A session or a record "a" of a shard that another one shares, and how to use it."""

    memory: Memory
    raw: Any
    is_record: bool
    handle: Any
    place: Origin

    @property
    def keys(self) -> Any:
        return self.handle.keys if self.is_record else self.memory.store.keys.session("a")

    async def write(self, text: str) -> None:
        if self.is_record:
            await self.handle.write(Change(sets={b"m": text.encode()}, adds=[b"m"], updated_us=1))
        else:
            await self.handle.append_and_read({"role": "user", "content": text}, merge={"said": text})
            await self.raw.hset(self.keys.originals, "0", text)

    async def content(self) -> str | None:
        if not await self.handle.exists():
            return None
        if self.is_record:
            (value,) = await self.handle.get(b"m")
            assert [each.value for each in (await self.handle.page()).found] == [value]
            return str(value.decode())
        (message,) = (await self.handle.read()).messages
        assert await self.handle.params() == {"said": message.content}
        assert await self.raw.hget(self.keys.originals, "0") == message.content.encode()
        return str(message.content)

    async def look(self) -> Seen:
        return await self.memory.store.run(look(self.place, self.place.live()))

    async def move(self, put_ms: int, seen: Seen | None = None) -> bool:
        if self.is_record:
            return await move_record(self.memory.store, self.keys, put_ms, seen=seen)
        return await move_session(self.memory.store, "a", put_ms, seen=seen)

    async def copies(self) -> list[Copy]:
        return await copies_of(self.memory.store, self.keys)

    async def find(self, put_ms: int | None = None) -> Quarantined:
        return await quarantine.find(self.memory.store, "a", put_ms, is_record=self.is_record)

    async def indexes(self) -> dict[str, list[bytes]]:
        """Return the members of each index that has any."""
        names = {name: b"%b:%b" % (self.place.shard, name.encode()) for name in self.place.kind.indexes}
        found = {name: await self.raw.zrange(key, 0, -1) for name, key in names.items()}
        return {name: members for name, members in found.items() if members}

    async def times_ms(self, keys: dict[str, bytes]) -> set[int]:
        return {await self.raw.pexpiretime(key) for key in keys.values()}

    async def stored(self) -> dict[bytes, tuple[Any, int]]:
        return await read_namespace(self.raw, self.memory.store.keys.namespace)


async def begin(memory: Memory, raw: Any, is_record: bool, owner: str | None = "ann", ttl_s: int | None = 60) -> Thing:
    if is_record:
        record = memory.record("a", owner=owner, ttl_s=ttl_s)
        return Thing(memory, raw, True, record, of_record(record.keys))
    session = memory.session("a", owner=owner)
    return Thing(memory, raw, False, session, calls.of_session(memory.store.keys.session("a")))


async def replace_turns(thing: Thing) -> None:
    """Assert that nothing is left of the session's turns, and store others, which a restoration removes."""
    keys = thing.keys
    assert await keys_left(thing.raw, keys) == set()
    await thing.raw.mset({keys.turned: "of a later life", keys.live: "log", keys.waiters: "w"})
    await thing.raw.zadd(keys.shard.turns, {"a": 1})


async def comes_back(memory: Memory, raw: Any, is_record: bool) -> None:
    """It leaves its place and the indexes at once, keeps its time to live, and comes back. A resent call is safe."""
    thing = await begin(memory, raw, is_record)
    await thing.write("old")
    if not is_record:
        await raw.zadd(thing.keys.shard.dead, {"a": 1, "other": 1})
        await raw.persist(thing.keys.originals)
        await put_turn(raw, thing.keys)
        await raw.hset(thing.keys.state, "attempts", 3)
    listed, before_ms = await thing.indexes(), (await thing.times_ms(thing.place.live())) - {-1}
    seen = await thing.look()
    assert [await thing.move(5, seen) for _ in range(2)] == [True, False]
    assert (await thing.content(), await thing.indexes()) == (None, {} if is_record else {"dead": [b"other"]})
    if not is_record:
        await replace_turns(thing)
    (copy,) = await thing.copies()
    assert (copy.put_ms, copy.knows_owner, (copy.owner or b"")[-4:]) == (5, True, b" ann")
    aside_ms = await thing.times_ms(thing.place.copies(5))
    assert -1 not in aside_ms
    assert aside_ms >= before_ms
    assert await raw.pexpiretime(thing.place.note) == max(aside_ms)
    found = await thing.find()
    assert (found.name, found.put_ms, found.owner, len(found.keys)) == ("a", 5, "ann", len(thing.place.kind.types))
    with patch.object(memory.store, "run", wraps=memory.store.run) as run:
        await quarantine.restore(memory.store, found)
    ((call,), _) = run.call_args
    assert await memory.store.run(call) is True, "sent again"
    assert await thing.content() == "old"
    assert is_record or await keys_left(raw, thing.keys) == set()
    assert is_record or not await raw.hexists(thing.keys.state, "attempts")
    assert [key for key in await thing.stored() if b":quarantine:" in key] == []
    after = await thing.indexes()
    assert after == (
        listed if is_record else {"active": [b"a"], "overdue": [b"a"], "dead": [b"other"], "owners": [b"a"]}
    )
    live_ms = await thing.times_ms(thing.place.live())
    assert live_ms == before_ms if is_record else len(live_ms) == 1
    with pytest.raises((SessionNotFound, SessionExists)):
        await quarantine.restore(memory.store, found)
    await thing.handle.clear()
    assert await memory.store.run(call) is False


async def a_newer_one_stays(memory: Memory, raw: Any, is_record: bool) -> None:
    """A life that began after a look is neither moved, nor overwritten by a restoration, unless the caller asks."""
    thing = await begin(memory, raw, is_record)
    await thing.write("old")
    late = await thing.look()
    assert await thing.move(5)
    nothing = await thing.look()
    assert await thing.move(6, nothing) is False
    assert [copy.put_ms for copy in await thing.copies()] == [5]
    await thing.write("new")
    before = await thing.stored()
    for seen in (late, nothing):
        assert await thing.move(6, seen) is False
    found = await thing.find()
    with pytest.raises(SessionExists):
        await quarantine.restore(memory.store, found)
    assert await thing.stored() == before
    await quarantine.restore(memory.store, found, swap=True)
    assert await thing.content() == "old"
    other = await thing.find()
    assert other.put_ms > found.put_ms
    await quarantine.restore(memory.store, other, swap=True)
    assert await thing.content() == "new"
    last = await thing.find()
    assert [await quarantine.drop(memory.store, last) for _ in range(2)] == [True, False]
    with pytest.raises(SessionNotFound, match="is in quarantine"):
        await thing.find()
    assert [key for key in await thing.stored() if b":quarantine:" in key] == []


def wrecks_of(thing: Thing) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return ways to make the session or record unreadable."""
    raw, (head, second, *_) = thing.raw, thing.place.live().values()

    async def shorten(size: int) -> None:
        await raw.hset(head, "", (await raw.hget(head, ""))[:size])

    wrecks: dict[str, Callable[[], Awaitable[Any]]] = {
        "head is a string": lambda: raw.set(head, "foreign", keepttl=True),
        "second is a string": lambda: raw.set(second, "foreign", keepttl=True),
    }
    if thing.is_record:
        return wrecks | {
            "short": lambda: shorten(5),
            "shorter": lambda: shorten(11),
            "empty": lambda: shorten(0),
            "other": lambda: raw.hset(head, "", b"garbage"),
            "none": lambda: raw.hdel(head, ""),
        }
    return wrecks | {
        "no epoch": lambda: raw.hdel(head, "epoch"),
        "an epoch that is none": lambda: raw.hset(head, "epoch", b"\xff\xfe"),
        "no counters": lambda: raw.hdel(head, "counters"),
        "counters that are none": lambda: raw.hset(head, "counters", "v1 1 2 10 5 6 x y"),
        "no head": lambda: raw.delete(head),
    }


async def damaged(memory: Memory, raw: Any, is_record: bool) -> None:
    """Each kind of damage moves all there is, on a write or by `set_aside`."""
    thing = await begin(memory, raw, is_record)
    names = {"head": next(iter(thing.place.live())), "second": list(thing.place.live())[1]}
    for name, wreck in wrecks_of(thing).items():
        for is_write in (False, True):
            await thing.write("old")
            await wreck()
            present = await raw.exists(*thing.place.live().values())
            if is_write:
                await thing.write("new")
                assert await thing.content() == "new", name
            else:
                assert await thing.handle.set_aside(), name
                assert not await thing.handle.set_aside()
                assert await raw.exists(*thing.place.live().values()) == 0
                assert await thing.indexes() == {}
            (copy,), found = await thing.copies(), await thing.find()
            assert copy.knows_owner is (is_record or name not in ("no head", "head is a string"))
            assert len(found.keys) == present, name
            unsound = {key.name for key in found.keys if not key.is_sound}
            assert unsound == ({names[name.split()[0]]} if "string" in name else set())
            await quarantine.drop(memory.store, found)
            await thing.handle.clear()


async def other_releases(memory: Memory, raw: Any, is_record: bool) -> None:
    """Data of another release stays, even if a key of it has a foreign type."""
    thing = await begin(memory, raw, is_record)
    await thing.write("old")
    head, *others = thing.place.live().values()
    await raw.hset(head, "" if is_record else "counters", "v2 of another release")
    for is_foreign in (False, True):
        if is_foreign:
            await raw.set(others[0], "foreign")
        before = await thing.stored()
        with pytest.raises(UnsupportedFormat):
            await thing.move(5)
        assert await thing.stored() == before


async def several_copies(memory: Memory, raw: Any, is_record: bool) -> None:
    """Each copy keeps its own time to live. Their note lives as long, and goes with the last of them."""
    thing = await begin(memory, raw, is_record, ttl_s=None)
    for put_ms in (5, 6):
        await thing.write(f"{put_ms}")
        for key in thing.place.live().values():
            await (raw.pexpire(key, 60_000) if put_ms == 6 else raw.persist(key))
        assert await thing.move(put_ms)
    assert [(copy.put_ms, copy.lasts) for copy in await thing.copies()] == [(5, is_record), (6, False)]
    now_ms = await memory.server_time_ms()
    for put_ms, least_ms, most_ms in ((5, 60_000, memory.store.settings.idle_timeout_ms), (6, 0, 60_000)):
        times_ms = await thing.times_ms(thing.place.copies(put_ms))
        assert all(least_ms < each - now_ms <= most_ms + 5_000 for each in times_ms)
    assert await raw.pexpiretime(thing.place.note) - now_ms > 60_000
    with pytest.raises(ValueError, match=r"2 .* say which"):
        await thing.find()
    await quarantine.restore(memory.store, await thing.find(5))
    assert await thing.content() == "5"
    assert await thing.times_ms(thing.place.live()) == {-1} if is_record else True
    assert [copy.put_ms for copy in await thing.copies()] == [6]
    forgotten = await memory.forget(owner="ann")
    assert (forgotten.quarantined_count, forgotten.unattributed_count) == (1, 0)
    assert [key for key in await thing.stored() if b":quarantine:" in key] == []


async def in_part(memory: Memory, raw: Any, is_record: bool) -> None:
    """Salvaging restores what is readable: of a record the rest stays in quarantine, of a session the whole."""
    thing = await begin(memory, raw, is_record)
    await thing.write("old")
    part = "order" if is_record else "messages"
    await raw.set(thing.place.key(part), "foreign")
    assert await thing.handle.set_aside()
    found, before = await thing.find(), await thing.stored()
    with pytest.raises(CorruptSession, match=part):
        await quarantine.restore(memory.store, found)
    assert await thing.stored() == before
    await quarantine.restore(memory.store, found, salvage=True)
    if is_record:
        assert await thing.handle.get(b"m") == [b"old"]
    else:
        assert await thing.handle.params() == {"said": "old"}
    with pytest.raises((SessionExists, SessionNotFound)):
        await quarantine.restore(memory.store, found, salvage=True)
    left = {key.name for key in (await thing.find()).keys}
    assert left == ({"order"} if is_record else {"state", "messages", "originals"})
    assert [copy.put_ms for copy in await thing.copies()] == [found.put_ms]


async def torn_records(memory: Memory, raw: Any) -> None:
    """Members that a record left behind are no damage, stop a restoration, and are not in the next one.

    A record without members comes back.
    """
    record = memory.record("r")
    await record.write(Change(sets={b"m": b"old"}, adds=[b"m"]))
    await raw.delete(record.keys.record)
    assert await move_record(memory.store, record.keys, 5, forced=False) is False
    await record.write(Change(sets={b"a": b"1"}))
    assert (await record.page()).found == []
    await record.write(Change(adds=[b"a"]))
    assert [each.member for each in (await record.page()).found] == [b"a"]
    assert await move_record(memory.store, memory.record("none").keys, 5) is False
    bare = memory.record("bare", tag="r")
    await bare.write(Change(sets={b"a": b"1"}))
    assert await move_record(memory.store, bare.keys, 5, forced=False) is False
    assert await move_record(memory.store, bare.keys, 5)
    found = await quarantine.find(memory.store, "bare", None, is_record=True)
    await raw.zadd(bare.keys.order, {"m": 0})
    with pytest.raises(SessionExists):
        await quarantine.restore(memory.store, found)
    await raw.delete(bare.keys.order)
    await quarantine.restore(memory.store, found)
    assert await bare.get(b"a") == [b"1"]


async def cleared_records(memory: Memory, raw: Any) -> None:
    """A clear removes the copies, but not one that came after it had looked. An unknown owner is noted as such."""
    record: Record = memory.record("r")
    for put_ms in (5, 6):
        await record.write(Change(sets={b"m": b"old"}, adds=[b"m"]))
        await raw.hset(record.keys.record, "", b"garbage")
        assert await move_record(memory.store, record.keys, put_ms, forced=False)
    place = of_record(record.keys)
    told = [(copy.lasts, copy.knows_owner, copy.owner) for copy in await copies_of(memory.store, record.keys)]
    assert told == [(True, False, None)] * 2
    assert (await memory.forget(owner="ann")).unattributed_count == 2
    cleared = await memory.store.run(clear_record(record.keys, {}, memory.store.settings))
    assert (cleared.was_there, sorted(cleared.copies_ms)) == (False, [5, 6])
    assert await memory.store.run(calls.drop_copy(place, 5)) is True
    assert await raw.exists(*place.copies(5).values()) == 0
    assert await raw.exists(*place.copies(6).values(), place.note) == 3
    assert await record.clear() is False
    assert await raw.exists(*place.copies(6).values(), place.note) == 0


async def blocks(memory: Memory, raw: Any) -> None:
    """An unreadable block moves alone, with its owner, unless it has changed; its signature and vectors go."""
    session: Session = memory.session("a")
    await session.append({"role": "user", "content": "here"})
    keys = memory.store.keys.session("a")
    fields = {
        "0": "fine",
        "s0": "of it",
        "1": "foreign",
        "s1": "of that",
        "v1": "vectors",
        "v0": "of it",
    }
    await raw.hset(keys.originals, mapping=fields)
    await raw.set(keys.turned, "of the session")
    before = await read_namespace(raw, memory.store.keys.namespace)

    def move(number: int, seen: bytes) -> Call[bool]:
        return calls.set_block_aside(
            keys, 7, (number, seen), [f"s{number}", f"v{number}"], encode_owner("ann"), HOUR_MS
        )

    for number, seen in ((1, b"another"), (7, b"foreign")):
        assert await memory.store.run(move(number, seen)) is False
        assert await read_namespace(raw, memory.store.keys.namespace) == before
    assert [await memory.store.run(move(1, b"foreign")) for _ in range(2)] == [True, False]
    assert await raw.hgetall(keys.originals) == {b"0": b"fine", b"s0": b"of it", b"v0": b"of it"}
    assert await raw.exists(keys.turned)
    place = calls.of_session(keys)
    aside = place.copies(7)["originals"]
    assert await raw.hgetall(aside) == {b"1": b"foreign"}
    assert await raw.pexpiretime(aside) == await raw.pexpiretime(place.note) > 0
    assert [(copy.knows_owner, copy.owner) for copy in await copies_of(memory.store, keys)] == [
        (True, encode_owner("ann"))
    ]
    assert (await session.read()).messages[0].content == "here"


def _of(scene: Callable[[Memory, Any, bool], Awaitable[None]], is_record: bool) -> Scene:
    async def play(memory: Memory, raw: Any) -> None:
        await scene(memory, raw, is_record)

    play.__name__ = f"{scene.__name__} ({'record' if is_record else 'session'})"
    return play


BOTH = (comes_back, a_newer_one_stays, damaged, other_releases, several_copies, in_part)
SCENES: list[Scene] = [
    *(_of(scene, is_record) for scene in BOTH for is_record in (False, True)),
    *(torn_records, cleared_records, blocks),
]
