"""Records by their last update: the newest come first, whatever their shards, and what was removed is in no list."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores import Store

from redismem import InvalidRecord, Memory
from redismem.record import Change
from redismem.workers.eviction import Eviction

numbers = itertools.count()
writes = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["p:", "q:"]), st.integers(0, 40)), max_size=60)


async def ids(memory: Memory, prefix: str = "", limit: int = 100, owner: str | None = None) -> list[str]:
    page = await memory.records(prefix, limit, owner=owner, newest=True, fields=[b"f"])
    assert page.cursor is None
    assert all(entry.values == (entry.id.encode(),) for entry in page.records)
    return [entry.id for entry in page.records]


@given(written=writes, limit=st.integers(1, 12))
async def test_the_newest_are_those_of_a_sort_over_all(store: Store, namespace: str, written: Any, limit: int) -> None:
    async with store.memory(f"{namespace}-{next(numbers)}") as memory:
        times: dict[str, tuple[int, str]] = {}
        for number, prefix, time_us in written:
            record_id, owner = f"{prefix}{number}", ["ann", "bo"][number % 2]
            await memory.record(record_id, owner=owner).write(
                Change(sets={b"f": record_id.encode()}, updated_us=time_us)
            )
            times[record_id] = time_us, owner
        await memory.record("p:no time").write(Change(sets={b"f": b"p:no time"}))
        for prefix, owner in itertools.product(("", "p:", "p:1"), (None, "ann")):
            wanted = sorted(
                (-time_us, record_id)
                for record_id, (time_us, its_owner) in times.items()
                if record_id.startswith(prefix) and owner in (None, its_owner)
            )
            assert await ids(memory, prefix, limit, owner) == [record_id for _, record_id in wanted][:limit]


async def test_what_was_cleared_forgotten_or_has_expired_is_in_no_list_and_in_no_index(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace) as memory:
        for number in range(40):
            name = f"r{number}"
            record = memory.record(name, owner="ann" if number % 2 else "bo")
            await record.write(Change(sets={b"f": name.encode()}, updated_us=number))
        for number in range(20, 40):
            record = memory.record(f"r{number}")
            await raw.delete(record.keys.record, record.keys.order)  # as Redis does when they expire
        newest = [f"r{number}" for number in range(19, -1, -1)]
        assert await ids(memory, limit=3) == newest[:3]
        await Eviction(memory.store).sweep()
        await memory.record("r19").clear()
        await memory.forget(owner="ann")
        await memory.forget(prefix="r4")
        left = [name for name in newest if int(name[1:]) % 2 == 0 and name != "r4"]
        assert await ids(memory) == left
        indexes = {memory.record(f"r{number}").keys.updated for number in range(40)}
        stored = [name.decode() for index in indexes for name in await raw.zrange(index, 0, -1)]
        assert sorted(stored) == sorted(left)


async def test_a_page_of_the_newest_reads_little_of_many(store: Store, namespace: str) -> None:
    events: list[Any] = []
    async with store.memory(namespace, on_event=events.append) as memory:
        for number in range(300):
            name = f"r{number}"
            await memory.record(name).write(Change(sets={b"f": name.encode()}, updated_us=number))
        events.clear()
        assert await ids(memory, "r", limit=5) == [f"r{number}" for number in range(299, 294, -1)]
        assert [event.op for event in events] == ["record_list"] * 2
        for wrong in (1.5, True, "1", 2**53):
            with pytest.raises(InvalidRecord):
                await memory.record("r").write(Change(updated_us=wrong))  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="cursor"):
            await memory.records(cursor="x", newest=True)
