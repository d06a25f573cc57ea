"""Scenes about records that refuse: those of another owner, and heads that name too many fields."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from redismem import CorruptSession, Memory, OwnerMismatch, TooLarge, UnsupportedFormat
from redismem.protocol.call import Call
from redismem.protocol.record import calls, reads
from redismem.protocol.record.reads import ReadOptions, Walker
from redismem.record import Change, Record
from support.stored import read_namespace


async def refuse(error: type[Exception], *refused: Coroutine[Any, Any, object]) -> None:
    """Check that each call is refused with this error."""
    try:
        for call in refused:
            with pytest.raises(error):
                await call
    finally:
        for call in refused:
            call.close()


async def other_owners(memory: Memory, raw: Any) -> None:
    """A record refuses every call that names another owner, or an owner of a record without one."""
    change = Change(sets={b"m": b"1"}, adds=[b"m"])
    await memory.record("hers", owner="ann").write(change)
    await memory.record("nobody's").write(change)
    before = await read_namespace(raw, memory.store.keys.namespace)
    for name in ("hers", "nobody's"):
        record: Record = memory.record(name, owner="bob", ttl_s=60)
        await refuse(
            OwnerMismatch,
            *(record.write(change), record.drop(b"m"), record.touch(), record.clear(), record.exists()),
            *(record.get(b"m"), record.newest(), record.walk(b"m")),
        )
    assert await read_namespace(raw, memory.store.keys.namespace) == before
    await memory.record("hers").touch()
    assert await memory.record("hers", owner="ann").clear()


async def wide_heads(memory: Memory, raw: Any) -> None:
    """A head with more than 10,000 names is refused, and a walk looks at a bounded number of names in one call."""
    record, names = memory.record("r"), b"0:" * 10_000
    await record.write(Change(adds=[b"c:1", b"c:9"]))
    heads = {b"c:%d" % number: b"3:c:%d%b" % (number - 1, names) for number in range(1, 5)}
    await raw.hset(record.keys.record, mapping={**heads, b"c:9": b"3:c:4" + names + b"0:"})
    assert len((await record.walk(b"c:4")).heads) == 4
    found = await record.newest(b"c:", member=b"c:1", named=True)
    assert found is not None
    await refuse(TooLarge, record.walk(b"c:9"), record.newest(b"c:", named=True))
    walker = reads.Walker(record.keys, b"c:4", b"c:", None, (), 100, False)
    step = walker.next_call()
    assert step is not None
    await memory.store.run(step)
    assert (walker.member, walker.limit) == (b"c:1", 97)


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
            calls.write([(record.keys, Change(sets={b"m": b"new"}, adds=[b"m"]))], None),
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


SCENES = [other_owners, wide_heads, descriptions]
