"""Properties that hold for all stored values, on both stores."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import Clock
from support.conversations import Conversation, conversations, is_closed
from support.json_values import is_identical, messages, texts, values
from support.stored import keys_with, read_namespace
from support.stores import Store

from redismem import UNSET, InvalidMessage, InvalidState, Memory, Settings

_numbers = itertools.count(1)

names = st.text(st.characters(codec=None, categories=None), min_size=1, max_size=12)
params = st.dictionaries(names, values, max_size=4)
batches = st.lists(st.lists(messages, min_size=1, max_size=3), min_size=1, max_size=3)
unstorable = st.sampled_from([(1,), {1}, b"x", {1: 2}, object(), 1j, frozenset(), {None: 1}])


@pytest.fixture
async def few_shards(store: Store, namespace: str) -> Any:
    """A memory with few shards, so there are fewer keys to scan."""
    async with store.memory(namespace, Settings(shards=2)) as memory:
        yield memory


def new_id() -> str:
    return f"s{next(_numbers)}"


@given(told=batches)
async def test_what_is_stored_comes_back_in_order(memory: Memory, told: list[list[dict[str, Any]]]) -> None:
    session = memory.session(new_id())
    expected: list[dict[str, Any]] = []
    for batch in told:
        receipt = await session.append(*batch)
        expected += batch
        assert (receipt.first_seq, receipt.last_seq) == (len(expected) - len(batch) + 1, len(expected))
        assert (receipt.total, receipt.created) == (len(expected), len(expected) == len(batch))
    context = await session.read()
    everything = sorted(context.pinned + context.messages, key=lambda message: message.seq)
    for found in (everything, await session.messages()):
        assert is_identical([message.to_openai() for message in found], expected)
        assert [message.seq for message in found] == list(range(1, len(expected) + 1))
        assert len({message.id for message in found if "id" not in message}) == sum(
            "id" not in each for each in expected
        )
    assert context.pending + context.recent == context.messages
    assert [message.pinned for message in context.messages] == [False] * len(context.messages)


@given(changes=st.lists(params, max_size=3), drop=st.sets(names, max_size=3), waiting=names | st.none())
async def test_params_merge_as_a_dict_does(
    memory: Memory, changes: list[dict[str, Any]], drop: set[str], waiting: str | None
) -> None:
    session = memory.session(new_id())
    expected: dict[str, Any] = {}
    for number, change in enumerate(changes):
        if number % 2:
            await session.append({"role": "user"}, merge=change)
        else:
            await session.merge(change)
        expected |= change
    await session.update(merge=dict.fromkeys(drop, UNSET), waiting=waiting)
    for name in drop:
        expected.pop(name, None)
    found = await session.params()
    assert is_identical(dict(sorted(found.items())), dict(sorted(expected.items())))
    assert await session.waiting() == waiting
    assert (await session.telemetry())["params_keys"] == sorted(expected)


@given(intent=values, result=values, plan=values)
async def test_the_rest_of_the_state_comes_back(memory: Memory, intent: Any, result: Any, plan: Any) -> None:
    session = memory.session(new_id())
    context = await session.append_and_read({"role": "user"}, last_intent=intent, last_result=result, plan=plan)
    assert is_identical(
        [context.state.last_intent, context.state.last_result, context.state.plan], [intent, result, plan]
    )
    assert is_identical(
        [await session.last_intent(), await session.last_result(), await session.plan()], [intent, result, plan]
    )


@given(good=st.lists(messages, max_size=3), bad=unstorable, place=st.integers(0, 3), deep=st.booleans())
async def test_a_batch_with_one_that_cannot_be_stored_writes_nothing(
    raw: Any, memory: Memory, namespace: str, good: list[dict[str, Any]], bad: Any, place: int, deep: bool
) -> None:
    session = memory.session("the-same")
    before = await read_namespace(raw, namespace)
    batch = [*good[:place], {"role": "user", "content": [{"deep": bad}] if deep else bad}, *good[place:]]
    with pytest.raises(InvalidMessage):
        await session.append(*batch)
    with pytest.raises(InvalidState):
        await session.append({"role": "user"}, merge={"good": 1, "bad": bad})
    assert await read_namespace(raw, namespace) == before


@given(told=batches, change=params, again=st.lists(messages, min_size=1, max_size=3))
async def test_a_cleared_session_leaves_nothing_and_behaves_as_a_new_one(
    raw: Any, few_shards: Memory, namespace: str, told: list[Any], change: dict[str, Any], again: list[Any]
) -> None:
    memory = few_shards
    session_id = f"cleared-{next(_numbers)}-"
    session = memory.session(session_id)
    for number, batch in enumerate(told):
        await session.append(*batch, id=f"turn-{number}", merge=change, plan=change)
    epoch = (await session.info()).epoch
    assert await session.clear()
    assert await keys_with(raw, namespace, session_id) == set()
    new = memory.session(new_id())
    contexts = [await each.append_and_read(*again, id="turn-0") for each in (session, new)]
    assert is_identical(contexts[0].to_openai(), contexts[1].to_openai())
    for context in contexts:
        assert context.receipt is not None
        assert (context.receipt.first_seq, context.receipt.created, context.receipt.duplicate) == (1, True, False)
        assert (context.total_messages, context.first_seq, context.last_seq) == (len(again), 1, len(again))
        assert (context.state.params, context.state.plan) == ({}, None)
    assert contexts[0].epoch != epoch
    await session.clear()
    await new.clear()


@given(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=24), asked=st.integers(0, 30))
async def test_the_last_sixteen_appends_are_known(memory: Memory, sizes: list[int], asked: int) -> None:
    session = memory.session(new_id())
    said = [{"role": "user", "n": n} for n in range(len(sizes))]
    receipts = [await session.append(*[said[n]] * size, id=f"turn-{n}") for n, size in enumerate(sizes)]
    asked %= len(sizes)
    again = await session.append(*[said[asked]] * sizes[asked], id=f"turn-{asked}")
    if asked >= len(sizes) - 16:
        first = receipts[asked]
        assert again.duplicate
        assert (again.first_seq, again.last_seq, again.total, again.created) == (
            first.first_seq, first.last_seq, first.total, first.created,
        )  # fmt: skip
        assert (await session.info()).total_messages == sum(sizes)
    else:
        assert (await session.info()).total_messages == sum(sizes) + sizes[asked] * (not again.duplicate)


@given(
    threshold=st.integers(1, 12),
    recent_limit=st.integers(1, 12),
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
)
async def test_thresholds_are_kept_to(
    raw: Any, store: Store, namespace: str, threshold: int, recent_limit: int, sizes: list[int]
) -> None:
    recent_limit = min(recent_limit, threshold)
    async with store.memory(namespace, Settings(threshold=threshold, recent_limit=recent_limit)) as memory:
        session_id = new_id()
        session = memory.session(session_id)
        total = 0
        for size in sizes:
            total += size
            context = await session.append_and_read(*[{"role": "user"}] * size)
            assert [message.seq for message in context.recent] == list(
                range(max(1, total - recent_limit + 1), total + 1)
            )
            assert len(context.pending) == max(0, total - recent_limit)
            marked = await raw.zscore(memory.store.keys.session(session_id).shard.overdue, session_id)
            assert (marked is not None) == (total > threshold)
            assert (await session.info()).queued == ("overdue" if total > threshold else None)


@given(
    told=conversations(max_size=20, orphans=False),
    limit=st.none() | st.integers(0, 22),
    max_tokens=st.none() | st.integers(0, 400),
    before=st.none() | st.integers(-1, 22),
    kept=st.integers(0, 20),
)
async def test_no_part_of_a_conversation_parts_a_call_from_its_result(
    memory: Memory, told: Conversation, limit: int | None, max_tokens: int | None, before: int | None, kept: int
) -> None:
    session = memory.session(new_id())
    if told.payloads:
        await session.append(*told.payloads)
    context = await session.read(limit=limit, max_tokens=max_tokens, before=before)
    assert [each.to_openai() for each in context.messages] == [told.payloads[each.seq - 1] for each in context.messages]
    seqs = [message.seq for message in context.messages]
    if seqs:
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert limit is None or len(seqs) <= limit
        assert max_tokens is None or sum(message.tokens for message in context.messages) <= max_tokens
        assert before is None or seqs[-1] < before
        assert is_closed(told.seq_pairs(), seqs[0], seqs[-1] + 1)
    if limit is before is max_tokens is None:
        assert len(seqs) == len(told.payloads)
    if told.payloads:
        await session.prune(kept)
        window = [message.seq for message in (await session.read()).messages]
        assert window == list(range(len(told.payloads) - len(window) + 1, len(told.payloads) + 1))
        assert len(window) >= min(kept, len(told.payloads))
        start = window[0] if window else len(told.payloads) + 1
        assert not any(call < start <= result for call, result in told.seq_pairs())


@given(
    activity=st.lists(st.integers(0, 5), min_size=1, max_size=8),
    limit=st.integers(1, 6),
    since=st.integers(0, 6),
)
async def test_every_live_session_is_listed_once_and_counted(
    store: Store, namespace: str, activity: list[int], limit: int, since: int, clock: Clock
) -> None:
    now_ms = 4_000_000_000_000
    async with store.memory(f"{namespace}-{next(_numbers)}", Settings(shards=4, idle_timeout_s=100)) as memory:
        for number, second in enumerate(activity):
            await clock.run_at(now_ms + second * 1000, memory.session(f"s{number}").append({"role": "user"}))
        at = now_ms + 100_000 + since * 1000
        live = sorted(
            ((second, f"s{number}") for number, second in enumerate(activity) if second > since), reverse=True
        )
        assert await clock.run_at(at, memory.count()) == len(live)
        found: list[str] = []
        cursor = None
        while True:
            page = await clock.run_at(at, memory.sessions(limit, cursor))
            found += [entry.session_id for entry in page.sessions]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == [session_id for _, session_id in live]


@given(append_ids=st.lists(texts.filter(bool), min_size=1, max_size=6))
async def test_one_id_is_one_append_however_many_send_it_at_once(memory: Memory, append_ids: list[str]) -> None:
    session_id = new_id()
    receipts = await asyncio.gather(
        *(memory.session(session_id).append({"role": "user", "content": id}, id=id) for id in append_ids * 3)
    )
    stored = [message.content for message in (await memory.session(session_id).read()).messages]
    assert sorted(stored) == sorted(set(append_ids))
    assert sum(not receipt.duplicate for receipt in receipts) == len(set(append_ids))
    for id, receipt in zip(append_ids * 3, receipts, strict=True):
        assert stored[receipt.first_seq - 1] == id
        assert receipt.created == (receipt.first_seq == 1)
