"""Forget a person: the records of an owner or prefix go with the sessions, and nothing of them is left in any key."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import user
from support.stored import read_namespace

from redismem import ForgetIncomplete, Memory
from redismem.memory.erasure import Wanted, count_records
from redismem.record import Change

TEXT = b"my name is Ann"


async def write(memory: Memory, *ids: str, owner: str | None = None, ttl_s: float | None = None) -> None:
    for name in ids:
        record = memory.record(name, owner=owner, tag=f"tag of {name}", ttl_s=ttl_s)
        await record.write(Change(sets={b"m:1": TEXT}, adds=[b"m:1"]))


async def stored(raw: Any, namespace: str) -> str:
    return repr(await read_namespace(raw, namespace))


@pytest.mark.parametrize("named", [{"owner": "ann"}, {"prefix": "ann:"}])
async def test_all_records_of_a_person_go_and_no_other(
    memory: Memory, raw: Any, namespace: str, named: dict[str, Any]
) -> None:
    await write(memory, *(f"ann:{number}" for number in range(7)), owner="ann")
    await write(memory, "bob:1", owner="bob")
    await write(memory, "nobody")
    await memory.session("ann:talk", owner="ann").append(user())
    assert await count_records(memory.store, Wanted(**named)) == 7
    forgotten = await memory.forget(**named)
    assert (forgotten.session_count, forgotten.record_count, forgotten.unattributed_count) == (1, 7, 0)
    assert forgotten.proven_ms is not None
    left = await stored(raw, namespace)
    assert "ann" not in left
    assert [entry.id for entry in (await memory.records()).records] == ["bob:1", "nobody"]
    again = await memory.forget(**named)
    assert (again.session_count, again.record_count) == (0, 0)


async def test_a_scan_finds_records_that_no_index_names_and_counts_unreadable_ones(
    memory: Memory, raw: Any, namespace: str
) -> None:
    await write(memory, "ann:1", "ann:2", "ann:3", owner="ann")
    records = [memory.record(f"ann:{number}", tag=f"tag of ann:{number}").keys for number in (1, 2, 3)]
    await raw.delete(*(keys.records for keys in records), *(keys.owned for keys in records))
    await raw.hset(records[1].record, b"", b"damaged")
    await raw.set(records[2].record, TEXT)
    forgotten = await memory.forget(owner="ann")
    assert (forgotten.record_count, forgotten.unattributed_count) == (1, 2)
    assert (await memory.forget(prefix="ann:")).record_count == 2
    assert "Ann" not in await stored(raw, namespace)


async def test_another_owner_of_equal_hash_keeps_its_records(
    memory: Memory, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.protocol.record.keys.owner_score", lambda owner: 7)
    monkeypatch.setattr("redismem.protocol.record.traces.owner_score", lambda owner: 7)
    await write(memory, "ann:1", owner="ann")
    await write(memory, "bob:1", owner="bob")
    assert (await memory.forget(owner="ann")).record_count == 1
    assert [entry.owner for entry in (await memory.records()).records] == ["bob"]


async def test_a_record_that_is_begun_again_and_again_is_not_reported_as_forgotten(memory: Memory) -> None:
    await write(memory, "ann:1", owner="ann")
    real = memory.store.run

    async def begin_again(call: Any, **options: Any) -> Any:
        value = await real(call, **options)
        if call.op == "scan":
            await real(write_call)
        return value

    from redismem.protocol.record.calls import write as build

    write_call = build([(memory.record("ann:1", owner="ann").keys, Change(sets={b"a": TEXT}))], None)
    memory.store.run = begin_again  # type: ignore[method-assign]
    with pytest.raises(ForgetIncomplete) as stopped:
        await memory.forget(owner="ann")
    assert stopped.value.forgotten.record_count >= 4
