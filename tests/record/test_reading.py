"""Reading a broken record writes nothing, the next write goes on, and a handle of another owner is refused."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.stored import read_namespace

from redismem import CorruptSession, Memory, OwnerMismatch
from redismem.record import Change, Record

READS: dict[str, Callable[[Record], Coroutine[Any, Any, Any]]] = {
    "exists": lambda record: record.exists(),
    "get": lambda record: record.get(b"a"),
    "newest": lambda record: record.newest(),
    "page": lambda record: record.page(),
    "walk": lambda record: record.walk(b"m"),
}


@pytest.mark.parametrize("name", READS)
async def test_no_read_of_a_broken_record_writes(memory: Memory, raw: Any, name: str) -> None:
    record = memory.record("r")
    await record.write(Change(sets={b"a": b"1"}, adds=[b"m"]))
    await raw.hset(record.keys.record, "", "garbage")
    before = await read_namespace(raw, memory.store.keys.namespace)
    with pytest.raises(CorruptSession):
        await READS[name](record)
    assert await read_namespace(raw, memory.store.keys.namespace) == before
    assert await record.write(Change(absent=[b"a"], sets={b"a": b"2"})), "a write goes on"
    assert await record.get(b"a") == [b"2"]


WRITES: dict[str, Callable[[Record], Coroutine[Any, Any, Any]]] = {
    "write": lambda record: record.write(Change(sets={b"a": b"2"})),
    "write with a condition": lambda record: record.write(Change(equals={b"a": b"1"}, sets={b"a": b"2"})),
    "drop": lambda record: record.drop(b""),
    "touch": lambda record: record.touch(),
    "clear": lambda record: record.clear(),
    "set_aside": lambda record: record.set_aside(),
}


def test_every_method_of_a_record_is_in_the_tables() -> None:
    public = {name for name in vars(Record) if not name.startswith("_")} - {"id", "tag", "keys"}
    assert public == {name.partition(" ")[0] for name in READS | WRITES}


@pytest.mark.parametrize("owner", ["ann", None])
async def test_every_method_refuses_another_owner_and_nothing_changes(
    memory: Memory, raw: Any, owner: str | None
) -> None:
    await memory.record("r", owner=owner, ttl_s=60).write(Change(absent=[b"b"], sets={b"a": b"1"}, adds=[b"m"]))
    before = await read_namespace(raw, memory.store.keys.namespace)
    for name, call in (READS | WRITES).items():
        theirs = memory.record("r", owner="bob", ttl_s=60)
        if name == "set_aside":
            assert not await call(theirs)
            continue
        with pytest.raises(OwnerMismatch) as refused:
            await call(theirs)
        assert "ann" not in str(refused.value), name
    assert await read_namespace(raw, memory.store.keys.namespace) == before
    for same in (memory.record("r", owner=owner), memory.record("r")):
        assert await same.get(b"a") == [b"1"]
    assert await memory.record("none", owner="bob").get(b"a") == [None]


async def test_a_write_of_several_records_is_refused_as_a_whole(memory: Memory) -> None:
    await memory.record("r", tag="t", owner="ann").write(Change(sets={b"a": b"1"}))
    mine, theirs = (memory.record(name, tag="t", owner="bob") for name in ("s", "r"))
    with pytest.raises(OwnerMismatch):
        await mine.write(Change(sets={b"a": b"2"}), (theirs, Change(sets={b"a": b"2"})))
    assert not await mine.exists()
