"""forget: single messages are gone from everywhere, and the others are as they were."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, seqs, summarize
from support.embedders import Words
from support.proxy import Proxy
from support.stores import Store
from support.texts import eight_word_runs, left_texts, unique_text

import redismem.blocking
from redismem import Forgotten, Memory, Session, SessionNotFound, Settings, TooLarge
from redismem.errors import NotInWindow
from redismem.models import Draft
from redismem.protocol.queue.calls import Job
from redismem.protocol.session import forget
from redismem.protocol.session.edits import edit
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Strategy, Trim
from redismem.workers.summaries import Worker

KEPT = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True, summaries_limit=3)


class Verbatim:
    """A model that repeats all that it reads."""

    provider = None

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        return Draft("\n".join([previous or "", *(str(message.content) for message in messages)]), 0, 0, "verbatim")


async def work(memory: Memory, strategy: Strategy | None) -> None:
    await (summarize(memory) if strategy is None else Worker(memory.store, strategy).drain())


async def converse(
    session: Session, memory: Memory, strategy: Strategy | None, count: int = 40, first: int = 1
) -> None:
    """Append messages of unique words in turns, of which every seventh is pinned."""
    for seq in range(first, first + count):
        await session.append(user_message(unique_text(seq)), pin=seq % 7 == 0)
        await work(memory, strategy)


async def check_gone(memory: Memory, raw: Any, session: Session, gone: set[int]) -> None:
    """Assert that no eight words in a row of these messages are in Redis, nor in anything a reader gets."""
    context = await session.read()
    read = str([context.to_openai(), await session.messages(include_originals=True), await session.tail(1_000)])
    for text in (await left_texts(raw, memory), read):
        assert [seq for seq in gone if any(run in text for run in eight_word_runs(unique_text(seq)))] == []
    for seq in gone:
        recalled = await session.recall(unique_text(seq))
        assert seq not in seqs(recalled)
        assert seq not in seqs([*context.pinned, *context.messages])


STRATEGIES: dict[str, Strategy | None] = {"extractive": None, "model": Verbatim(), "trim": Trim()}
GONE = {3, 7, 16, 17, 20, 35, 39}
"""In a summary, pinned outside, at the edges of a block, in a summary, pinned, in the window."""


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("by", STRATEGIES)
async def test_no_eight_words_in_a_row_of_a_forgotten_message_are_left_anywhere(
    store: Store, namespace: str, raw: Any, by: str, is_kept: bool
) -> None:
    settings = KEPT.model_copy(update={"keep_originals": is_kept, "max_summary_bytes": 100_000})
    async with store.memory(namespace, settings) as memory:
        session, strategy = memory.session("a"), STRATEGIES[by]
        await converse(session, memory, strategy)
        before = await left_texts(raw, memory)
        told = {seq for seq in GONE if unique_text(seq) in before}
        assert told == (GONE if is_kept or by == "model" else told) >= {7, 35, 39}
        messages = await session.messages(include_originals=True)
        forgotten = await session.forget(*GONE, 77)
        spans = [*forgotten.rewritten, *forgotten.dropped]
        assert told <= set(forgotten.seqs) <= GONE
        assert (spans == []) == (by == "trim")
        assert not (forgotten.dropped if is_kept else forgotten.rewritten)
        await check_gone(memory, raw, session, GONE)
        left = [message for message in messages if message.seq not in GONE]
        assert await session.messages(include_originals=True) == left
        assert await is_sound(memory)
        assert await session.forget(*forgotten.seqs) == Forgotten(())
        for each in (await session.read()).summaries:
            assert any(f"velvet{seq}q" in each.text for seq in range(each.first_seq, each.last_seq + 1))
        await converse(session, memory, strategy, 20, 41)
        await check_gone(memory, raw, session, GONE)
        assert await is_sound(memory)


async def test_seqs_stay_and_neighbours_become_one_gap(memory: Memory, session: Session) -> None:
    await session.append(*(user_message(text) for text in "abcdefg"), SYSTEM)
    assert (await session.forget(2)).seqs == (2,)
    assert (await session.forget(4, 8)).seqs == (4, 8)
    assert (await session.forget(3)).seqs == (3,)
    assert [(m.seq, m.content) for m in await session.messages()] == [(1, "a"), (5, "e"), (6, "f"), (7, "g")]
    assert await is_sound(memory)
    receipt = await session.append(user_message("i"), expect=await session.read())
    assert receipt.first_seq == 9
    assert (await session.forget(*range(1, 10))).seqs == (1, 5, 6, 7, 9)
    context = await session.read()
    assert (context.to_openai(), context.last_seq, (await session.info()).window_tokens) == ([], 9, 0)
    assert (await session.append(user_message("j"))).first_seq == 10
    assert await is_sound(memory)


def call(id: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": f"found {id}"}


@pytest.mark.parametrize("seq", [14, 15, 16, 17, 18])
@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_tool_call_goes_with_its_results_wherever_they_are(
    store: Store, namespace: str, raw: Any, is_kept: bool, seq: int
) -> None:
    """Two calls with three results lie across the end of a block; the ids are used again before and after."""
    async with store.memory(namespace, KEPT if is_kept else Settings(shards=1)) as memory:
        session = memory.session("a")
        twice = call("x") | {"tool_calls": [*call("x")["tool_calls"], *call("y")["tool_calls"]]}
        group = [twice, result("x"), result("y")]
        for message in [*map(user_message, map(str, range(1, 11))), *group, user_message("14"), *group]:
            await session.append(message)
        for number in range(18, 26):
            await session.append(user_message(str(number)))
            await summarize(memory)
        assert ((await session.read()).first_seq > 20) is is_kept
        expected = (seq,) if seq in (14, 18) else (15, 16, 17)
        assert (await session.forget(seq)).seqs == expected
        left = [each for each in range(1, 26) if each not in expected]
        assert seqs(await session.messages(include_originals=True)) == left
        assert await is_sound(memory)


async def test_vectors_are_removed_and_the_others_are_found_by_meaning(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT, embed=Words()) as memory:
        session = memory.session("a")
        await converse(session, memory, None)
        originals = memory.store.keys.session("a").originals
        assert {b"v0", b"v1"} <= set(await raw.hkeys(originals))
        assert (await session.forget(3)).seqs == (3,)
        assert b"v0" not in await raw.hkeys(originals)
        assert 4 in seqs(await session.recall(unique_text(4)))
        await check_gone(memory, raw, session, {3})
        assert await is_sound(memory)


async def test_a_summary_in_the_making_is_refused(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await session.append(*(user_message(unique_text(seq)) for seq in range(1, 8)))
        calls = memory.store.queue_calls("a")
        job = await memory.store.run(calls.claim())
        assert isinstance(job, Job)
        assert (await session.forget(2)).seqs == (2,)
        before = await session.read()
        assert await memory.store.run(calls.commit(job, job.context.messages[:3], None)) == "stale"
        assert await session.read() == before
        await memory.store.run(calls.release(job.fence, 0, counts=False, dead=False))
        await summarize(memory)
        await check_gone(memory, raw, session, {2})
        assert await is_sound(memory)


async def test_an_eviction_hands_over_the_session_again_without_the_message(store: Store, namespace: str) -> None:
    """The message is forgotten while on_evict has the first transcript, which then does not count."""
    transcripts: list[Any] = []

    async def archive(session_id: str, context: Any) -> None:
        transcripts.append(seqs(context.messages))
        await memory.session(session_id).forget(2)

    async with store.memory(namespace, Settings(shards=1, max_sessions=1)) as memory:
        session = memory.session("a")
        await session.append(*(user_message(unique_text(seq)) for seq in range(1, 4)))
        await memory.session("b").append(user_message("newer"))
        evictor = Eviction(memory.store, on_evict=archive)
        assert await evictor.enforce() == 0
        assert await session.exists()
        assert transcripts == [[1, 2, 3]]


async def test_a_block_that_cannot_be_read_is_refused_and_nothing_is_written(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await converse(session, memory, None)
        originals = memory.store.keys.session("a").originals
        await raw.hset(originals, "0", (await raw.hget(originals, "0"))[:-1])
        before = await raw.hgetall(originals), await session.read()
        with pytest.raises(NotInWindow, match="block 0 of the originals cannot be read"):
            await session.forget(39, 3)
        assert (await raw.hgetall(originals), await session.read()) == before


async def test_a_long_summary_is_written_anew_from_its_newest_blocks(
    store: Store, namespace: str, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.session.forgetting._BLOCKS_LIMIT", 1)
    monkeypatch.setattr("redismem.session.forgetting._STEP_COUNT", 3)
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await converse(session, memory, None, 140)
        (last,) = (each.last_seq for each in (await session.read()).summaries)
        assert (await session.forget(132)).rewritten == ((1, last),)
        (summary,) = (await session.read()).summaries
        told = [seq for seq in range(1, 141) if f"velvet{seq}q" in summary.text]
        assert len(told) > 10
        assert told[0] > 64, "neither among the newest blocks nor near the message"
        await check_gone(memory, raw, session, {132})


async def test_wrong_seqs_are_refused(session: Session) -> None:
    with pytest.raises(SessionNotFound):
        await session.forget(1)
    await session.append(user_message("a"))
    for wrong in (0, -1, True, "1", 1.0, None):
        with pytest.raises(ValueError, match="a seq is an integer"):
            await session.forget(1, wrong)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        await session.forget(*range(1, 1_002))
    assert await session.forget() == Forgotten(())
    assert seqs(await session.messages()) == [1]


@pytest.mark.parametrize("lost_count", [1, 2, 5])
async def test_a_lost_reply_is_no_second_removal(redis_server: Any, namespace: str, lost_count: int) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=2)
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as memory,
    ):
        session = memory.session("a")
        await session.append(*(user_message(text) for text in "abcd"))
        await session.forget(4)  # every script is known
        view = await session._editor.view("forget")
        call = edit(memory.store.session_calls("a"), view, forget.forget(view, {2, 3}, {}, {}), bool)
        proxy.break_next("reset", lost_count, to=b"EVALSHA")
        assert await memory.store.run(call) is True
        assert seqs(await session.messages()) == [1]
        assert await is_sound(memory)


async def test_blocking_callers_forget_too(redis_server: Any, namespace: str, raw: Any) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=KEPT) as memory:
        await converse(memory.session("a"), memory, None)
        with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace, settings=KEPT) as blocking:
            forgotten = blocking.session("a").forget(3, 39)
        assert (forgotten.seqs, len(forgotten.rewritten)) == ((3, 39), 1)
        await check_gone(memory, raw, memory.session("a"), {3, 39})


PARTS = st.lists(st.booleans(), max_size=4)
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "pop", "forget", "work", "unpin"]), st.integers(0, 12), PARTS),
    min_size=1,
    max_size=6,
)


@given(steps=STEPS)
async def test_any_order_of_writes_leaves_what_a_dict_would(store: Store, steps: list[tuple[str, int, Any]]) -> None:
    async with store.memory("forgetting", KEPT) as memory:
        session = memory.session("a")
        await session.clear()
        await session.append(user_message("first"))
        kept, last_seq = {1: "first"}, 1
        for step, (kind, number, parts) in enumerate(steps):
            if kind == "append" and parts:
                new = [f"{step}.{at}" for at in range(len(parts))]
                roles = ["system" if is_pinned else "user" for is_pinned in parts]
                pairs = zip(roles, new, strict=True)
                await session.append(*({"role": role, "content": text} for role, text in pairs))
                kept |= dict(enumerate(new, last_seq + 1))
                last_seq += len(parts)
            elif kind == "pop" and (messages := (await session.read()).messages):
                popped = seqs(await session.pop(min(number + 1, len(messages))))
                kept, last_seq = {seq: text for seq, text in kept.items() if seq not in popped}, last_seq + 1
            elif kind == "forget":
                wanted = {1 + (number * each) % (last_seq + 1) for each in range(1, len(parts) + 2)}
                assert set((await session.forget(*wanted)).seqs) == wanted & kept.keys()
                kept = {seq: text for seq, text in kept.items() if seq not in wanted}
            elif kind == "work":
                await summarize(memory)
            elif kind == "unpin" and (pinned := (await session.read()).pinned):
                await session.unpin(pinned[number % len(pinned)])
            assert {m.seq: m.content for m in await session.messages(include_originals=True)} == kept
            assert await is_sound(memory)
