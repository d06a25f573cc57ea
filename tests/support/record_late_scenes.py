"""Scenes about writes and drops of a record that are resent, and whose earlier attempts arrive late."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from redismem import Memory, RecordConflict
from redismem.protocol.call import Call
from redismem.protocol.record import calls, reads
from redismem.protocol.server_errors import ServerError
from redismem.record import Change, Record
from support.raw_scripts import resending

Build = Callable[[bytes], Call[Any]]
_PROCESS = b"sender"


def first(number: int, process: bytes = _PROCESS) -> bytes:
    return process + number.to_bytes(6)


def with_argument(call: Call[Any], argument: int, value: bytes) -> Call[Any]:
    (command,) = call.commands
    place = 3 + int(command[2]) + argument
    return replace(call, commands=((*command[:place], value, *command[place + 1 :]),))


def write_of(record: Record, change: Change) -> Build:
    call = calls.write([(record.keys, change)], None)
    return lambda sending: with_argument(call, 2, sending)


def drop_of(record: Record) -> Build:
    call = reads.drop(record.keys, reads.bounds_of(b"x"), 9)
    return lambda sending: with_argument(call, 3, sending)


async def refuse_late(memory: Memory, raw: Any, record: Record, late: Call[Any]) -> None:
    before = await raw.hgetall(record.keys.record)
    with pytest.raises(ServerError, match="OVERTAKEN sending"):
        await memory.store.once(late)
    assert await raw.hgetall(record.keys.record) == before


async def check_overtaken(memory: Memory, raw: Any, record: Record, build: Build) -> None:
    """A resent attempt of a process overtakes those with a lower number, and no others."""
    described = await raw.hget(record.keys.record, b"")
    await memory.store.once(build(first(400)))
    assert await raw.hget(record.keys.record, b"") == described, "a first attempt is not noted"
    await memory.store.once(build(resending(300)))
    for sending in (first(299), resending(299), first(1)):
        await refuse_late(memory, raw, record, build(sending))
    for sending in (first(301), first(1, b"nother"), first(1 << 40, b"\0" * 6)):
        await memory.store.once(build(sending))
    for number, process in ((301, _PROCESS), (0x414141414141, b"AAAAAA")):
        await memory.store.once(build(resending(number, process)))
    # The name of this process occurs across two parts of the note.
    across = b"A" + resending(0x414141414141)[6:11]
    await memory.store.once(build(first(1, across)))
    await memory.store.once(build(resending(2, across)))
    await refuse_late(memory, raw, record, build(first(1, across)))
    noted = b"".join((resending(2, across), resending(0x414141414141, b"AAAAAA"), resending(301)))
    assert await raw.hget(record.keys.record, b"") == b"%b36:%b" % (described, noted)
    for number in range(15):
        await memory.store.once(build(resending(1, b"proc%02d" % number)))
    assert len(await raw.hget(record.keys.record, b"")) == len(described) + 4 + 16 * 12
    await refuse_late(memory, raw, record, build(first(1, across)))
    await memory.store.once(build(first(1)))


async def late_writes(memory: Memory, raw: Any) -> None:
    record = memory.record("r")
    await record.write(Change(sets={b"m": b"1"}))
    await check_overtaken(memory, raw, record, write_of(record, Change(sets={b"m": b"2"})))
    assert await memory.store.once(write_of(record, Change(equals={b"m": b"2"}, sets={b"m": b"3"}))(first(500)))
    await refuse_late(memory, raw, record, write_of(record, Change(sets={b"m": b"1"}))(first(0, b"proc00")))


async def late_drops(memory: Memory, raw: Any) -> None:
    record = memory.record("r")
    await record.write(Change(adds=[b"m"]))
    await check_overtaken(memory, raw, record, drop_of(record))
    missing = memory.record("missing")
    assert await memory.store.once(drop_of(missing)(resending(1))) == 0
    assert not await raw.exists(missing.keys.record)


async def late_duplicates(memory: Memory, raw: Any) -> None:
    """A resent write that is known notes its sending, and its nonce stays noted once."""
    record, other = memory.record("r", tag="t"), memory.record("other", tag="t")
    both = calls.write([(each.keys, Change(absent=[b"m"], sets={b"m": b"1"})) for each in (record, other)], None)
    assert await memory.store.once(with_argument(both, 2, first(1))) == "created"
    await raw.delete(other.keys.record, other.keys.order)
    described = await raw.hget(record.keys.record, b"")
    assert await memory.store.once(with_argument(both, 2, resending(3))) == "duplicate"
    assert await raw.hget(record.keys.record, b"") == described + b"12:" + resending(3)
    assert not await raw.exists(other.keys.record)
    await refuse_late(memory, raw, record, with_argument(both, 2, first(2)))


async def many_writers(memory: Memory, raw: Any) -> None:
    """A resent write is known for a minute among the last 16 of its process, whatever number others made since."""
    record = memory.record("r")

    def write(process: int, minute: int) -> Call[Any]:
        """Build a write of a process that finds the field that it sets: a second one is refused, unless it is known."""
        call = calls.write([(record.keys, Change(absent=[b"x"], sets={b"m": b"1"}))], lambda: 10**12 + minute * 60_000)
        return with_argument(call, 0, bytes([process]) + os.urandom(7))

    async def note(process: int, count: int, minute: int = 0) -> list[Call[Any]]:
        noted = [write(process, minute) for _ in range(count)]
        for call in noted:
            await memory.store.once(call)
        return noted

    async def count_known(noted: list[Call[Any]]) -> int:
        """Return the number of known writes. The others would be made again."""
        await raw.hset(record.keys.record, b"x", b"")
        try:
            return sum([await _is_known(memory, call) for call in noted])
        finally:
            await raw.hdel(record.keys.record, b"x")

    lost, others = await note(1, 17), [*await note(2, 40), *await note(3, 40, minute=1)]
    assert [await count_known(lost[:1]), await count_known(lost[1:]), await count_known(others)] == [0, 16, 32]
    await note(2, 1, minute=1)
    assert await count_known(lost) == 16
    last = await note(2, 1, minute=2)
    assert [await count_known(lost), await count_known(others[-16:]), await count_known(last)] == [0, 16, 1]
    crowd = [call for process in range(17) for call in await note(process, 16, minute=3)]
    assert await count_known(crowd) == 255
    assert len(await raw.hget(record.keys.record, b"")) < 2_100
    alone = await note(1, 20, minute=9)
    assert await count_known(alone) == 16
    assert len(await raw.hget(record.keys.record, b"")) < 160


async def _is_known(memory: Memory, call: Call[Any]) -> bool:
    try:
        return await memory.store.once(call) == "duplicate"
    except RecordConflict:
        return False


SCENES = [late_writes, late_drops, late_duplicates, many_writers]
