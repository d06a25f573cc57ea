"""Pages of a session, by positions that are known, guessed or outdated."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import user_message
from support.stored import set_counters
from support.stores import Store
from support.worked import open_with
from support.writers import Echo

from redismem import CorruptSession, Memory, SessionNotFound
from redismem.protocol.call import Call
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import Window
from redismem.recall.originals import Originals
from redismem.session import paging
from redismem.session.paging import PageReader
from redismem.store.pages import read_page
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
            page = await read_page(run, session._calls.keys, page_range)
            reader.add_page(page, await originals.messages(page))
    except Exception as failure:
        return type(failure)
    return [(message.seq, message.epoch, message.content, message.pinned) for message in reader.messages()]


@given(
    steps=st.lists(STEPS, max_size=4),
    limit=st.none() | st.integers(0, 30) | st.integers(31, 200),
    before=st.none() | st.integers(-3, 300) | st.just(datetime.now(UTC)),
    include_originals=st.booleans(),
    page_count=st.sampled_from([7, 16, 20, 500]),
)
async def test_small_pages_equal_one_large_page(
    raw: Any, store: Store, namespace: str, steps: list[tuple[str, int]], page_count: int, **asked: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        async with open_with(store, namespace) as memory:
            await raw.delete(*await raw.keys(f"*{namespace}*"), "none")
            for step in [("append", 100), ("archive", 66), *steps]:
                try:
                    await take(memory, raw, *step)
                except (CorruptSession, SessionNotFound):
                    break

            asked_for = asked["limit"], asked["before"], asked["include_originals"]
            patch.setattr(paging, "PAGE_COUNT", page_count)
            found = await read_all(memory, memory.store.run, *asked_for)
            patch.setattr(paging, "PAGE_COUNT", 1_000)
            assert found == await read_all(memory, memory.store.run, *asked_for)


async def make(raw: Any, memory: Memory, originals: int, window: int) -> str:
    """Create a session with `originals` kept messages and a window after them, in which each element is its seq."""
    keys, total = memory.store.keys.session("a"), originals + window
    await raw.delete(*await raw.keys(f"*{memory.store.keys.namespace}*"), "none")
    receipt = await memory.session("a").append(user_message("x"))
    await raw.delete(keys.messages)
    await raw.hset(keys.state, mapping={"with_originals": 1})
    await set_counters(raw, keys.state, first_seq=originals + 1, message_count=total)
    for first in range(1, originals + 1, 16):  # the fake block lists its seqs
        seqs = range(first, min(first + 16, originals + 1))
        await raw.hset(keys.originals, first // 16, " ".join(map(str, seqs)))
    if window:
        await raw.rpush(keys.messages, *range(originals + 1, total + 1))
    return str(receipt.epoch)


@given(
    originals=st.integers(0, 40),
    window=st.integers(0, 8),
    before=st.none() | st.integers(-3, 60),
    limit=st.integers(0, 60),
    include_originals=st.booleans(),
    guess=st.none() | st.tuples(st.integers(1, 50), st.integers(-1, 9), st.booleans(), st.booleans()),
)
async def test_a_page_is_the_newest_before_a_seq(
    raw: Any,
    store: Store,
    namespace: str,
    originals: int,
    window: int,
    before: int | None,
    limit: int,
    include_originals: bool,
    guess: tuple[int, int, bool, bool] | None,
) -> None:
    async with store.memory(namespace) as memory:
        epoch = await make(raw, memory, originals, window)
        total = originals + window
        known = None
        if guess is not None and before is not None:
            first_seq, count, is_sparse, is_life = guess
            known = Window(epoch if is_life else "1-x", first_seq, max(before - 1, first_seq + count), is_sparse)
        oldest = 1 if include_originals else originals + 1
        asked = PageRange(limit, before, include_originals, known)
        page = await read_page(memory.store.run, memory.store.keys.session("a"), asked)
        assert page is not None
        visible = [seq for seq in range(oldest, total + 1) if before is None or seq < before]
        expected = visible[max(0, len(visible) - limit) :]
        wanted = [int(seq) for _, block in page.blocks for seq in block.split()]
        found = [seq for seq in wanted if page.start_seq <= seq < page.originals_stop]
        assert found + [int(each) for each in page.elements] == expected
        assert not expected or page.start_seq == expected[0]


@pytest.mark.parametrize("lost", ["with_originals", "originals", "block"])
async def test_originals_that_are_gone_are_left_out(raw: Any, store: Store, namespace: str, lost: str) -> None:
    async with store.memory(namespace) as memory:
        await make(raw, memory, 35, 2)
        keys = memory.store.keys.session("a")
        if lost == "originals":
            await raw.delete(keys.originals)
        else:
            await (raw.hdel(keys.originals, 1) if lost == "block" else raw.hdel(keys.state, lost))
        page = await read_page(memory.store.run, keys, PageRange(100, include_originals=True))
        assert page is not None
        assert (page.start_seq, [block.number for block in page.blocks]) == (
            (1, [0, 2]) if lost == "block" else (36, [])
        )
        assert page.elements == [b"36", b"37"]


@pytest.mark.parametrize("torn", ["window", "counters", "epoch", "messages"])
async def test_a_page_of_a_torn_session_is_refused(raw: Any, store: Store, namespace: str, torn: str) -> None:
    async with store.memory(namespace) as memory:
        await make(raw, memory, 0, 4)
        keys = memory.store.keys.session("a")
        if torn == "window":
            await raw.lpop(keys.messages)
        elif torn == "messages":
            await raw.set(keys.messages, "x")
        else:
            await (raw.hdel(keys.state, torn) if torn == "epoch" else raw.hset(keys.state, torn, "v1 torn"))
        with pytest.raises(CorruptSession):
            await read_page(memory.store.run, keys, PageRange(3))
