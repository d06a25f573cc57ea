"""Reading a broken record writes nothing; the next write goes on with a new record."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.stored import read_namespace

from redismem import CorruptSession, Memory
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
