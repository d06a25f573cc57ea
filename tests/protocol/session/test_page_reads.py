"""Pages that are read with plain commands equal the pages of the script."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.conversations import user_message
from support.stores import Store
from support.worked import open_with
from support.writers import Echo

from redismem import CorruptSession, Memory, SessionNotFound
from redismem.errors import StoreUnavailable
from redismem.protocol.call import Call
from redismem.recall.originals import Originals
from redismem.session import paging
from redismem.session.paging import PageReader
from redismem.store.windows import read_page
from redismem.workers.summaries import Worker

STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 90)),
    st.tuples(st.just("pin"), st.integers(1, 2)),
    st.tuples(st.just("archive"), st.integers(1, 70)),
    st.tuples(st.just("summarise"), st.just(0)),
    st.tuples(st.just("forget"), st.integers(0, 25)),
    st.tuples(st.just("drop block"), st.integers(0, 6)),
    st.tuples(st.just("drop originals"), st.just(0)),
    st.tuples(st.just("tear"), st.just(0)),
    st.tuples(st.just("counters"), st.just(0)),
    st.tuples(st.just("epoch"), st.just(0)),
)
Run = Callable[[Call[Any]], Any]


async def take(memory: Memory, raw: Any, step: str, number: int) -> None:
    session, keys = memory.session("a"), memory.store.keys.session("a")
    if step in ("append", "pin"):
        await session.append(*(user_message(f"{number} {at}") for at in range(number)), pin=step == "pin")
    elif step == "archive":
        await session.archive(number)
    elif step == "summarise":
        await Worker(memory.store, Echo()).drain()
    elif step == "forget":
        seqs = [message.seq for message in await session.messages()]
        await session.forget(*seqs[number : number + 3])
    elif step == "drop block":
        await raw.hdel(keys.originals, number)
    elif step == "drop originals":
        await raw.delete(keys.originals)
    elif step == "tear":
        await raw.lpop(keys.messages)
    elif step == "counters":
        await raw.hset(keys.state, "counters", "v1 torn")
    elif step == "epoch":
        await raw.hdel(keys.state, "epoch")


async def read_all(memory: Memory, run: Run, *asked: Any) -> Any:
    """Return the messages that a reader collects from pages, or the error."""
    session = memory.session("a")
    reader, originals = PageReader(session._calls, *asked), Originals(memory.store, session._calls.keys)
    try:
        while (page_range := reader.next_range()) is not None:
            page = await read_page(run, session._calls, page_range)
            reader.add_page(page, await originals.messages(page))
    except Exception as failure:
        return type(failure)
    return [(message.seq, message.epoch, message.content, message.pinned) for message in reader.messages()]


@settings(max_examples=100)
@given(
    steps=st.lists(STEPS, max_size=4),
    limit=st.none() | st.integers(0, 30) | st.integers(31, 200),
    before=st.none() | st.integers(-3, 300) | st.just(datetime.now(UTC)),
    include_originals=st.booleans(),
    page_count=st.sampled_from([7, 16, 20, 500]),
)
async def test_pages_equal_those_of_the_script(
    raw: Any, store: Store, namespace: str, steps: list[tuple[str, int]], page_count: int, **asked: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paging, "PAGE_COUNT", page_count)
        async with open_with(store, namespace) as memory:
            await raw.delete(*await raw.keys(f"*{namespace}*"), "none")
            for step in [("append", 100), ("archive", 66), *steps]:
                try:
                    await take(memory, raw, *step)
                except (CorruptSession, SessionNotFound):
                    break

            async def by_script(call: Call[Any]) -> Any:
                if call.script is None:
                    raise StoreUnavailable("its memory is full", "a", "OOM")
                return await memory.store.run(call)

            asked_for = asked["limit"], asked["before"], asked["include_originals"]
            expected = await read_all(memory, by_script, *asked_for)
            assert await read_all(memory, memory.store.run, *asked_for) == expected
