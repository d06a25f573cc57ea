"""rewrite: everything from a seq on is replaced in one step."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.conversations import user_message
from support.edited import SYSTEM, is_sound, payloads, seqs, summarize
from support.proxy import Proxy
from support.stores import Store

import redismem.blocking
from redismem import Conflict, IdReused, InvalidMessage, Memory, Session, SessionNotFound, Settings, TooLarge
from redismem.errors import NotInWindow
from redismem.protocol.queue.calls import Job
from redismem.protocol.session import ending
from redismem.protocol.session.edits import edit

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "found"}


async def shown(session: Session) -> list[tuple[int, Any]]:
    return [(message.seq, message.content) for message in await session.messages()]


async def test_the_end_is_replaced_and_no_seq_is_given_twice(memory: Memory, session: Session) -> None:
    await session.append(*(user_message(text) for text in "abcd"))
    receipt = await session.rewrite(3, [user_message("C"), user_message("D"), user_message("E")])
    assert (receipt.first_seq, receipt.last_seq, receipt.created, receipt.duplicate) == (5, 7, False, False)
    assert (receipt.window_count, receipt.epoch) == (5, (await session.read()).epoch)
    assert await shown(session) == [(1, "a"), (2, "b"), (5, "C"), (6, "D"), (7, "E")]
    assert (await session.append(user_message("f"))).first_seq == 8
    assert (await session.info()).window_tokens == sum(each.tokens for each in (await session.read()).messages)
    assert await is_sound(memory)


async def test_pinned_messages_and_halves_of_a_tool_call_go_too(memory: Memory, session: Session) -> None:
    await session.append(SYSTEM, user_message("a"), CALL, RESULT)
    await session.append(user_message("keep"), pin=True)
    await session.rewrite(4, [SYSTEM | {"content": "Be long."}])
    context = await session.read()
    assert payloads(context.messages) == [user_message("a"), CALL]
    assert payloads(context.pinned) == [SYSTEM, SYSTEM | {"content": "Be long."}]
    assert (await session.info()).pinned_count == 2
    assert await is_sound(memory)


async def test_without_messages_the_end_is_taken_off(memory: Memory, session: Session) -> None:
    await session.append(*(user_message(text) for text in "abcd"))
    seen = await session.read()
    receipt = await session.rewrite(2, [])
    assert (receipt.first_seq, receipt.last_seq, receipt.window_count) == (5, 5, 1)
    assert await shown(session) == [(1, "a")]
    with pytest.raises(Conflict):
        await session.append(user_message("x"), expect=seen)
    await session.append(user_message("e"), expect=receipt)
    await session.rewrite(1, [])
    assert await shown(session) == []
    await session.append(user_message("f"))
    assert await shown(session) == [(8, "f")]
    assert await is_sound(memory)


async def test_a_seq_in_a_gap_and_one_after_the_last(memory: Memory, session: Session) -> None:
    await session.append(*(user_message(text) for text in "abcd"))
    await session.pop(2)
    await session.rewrite(4, [user_message("e")])
    assert await shown(session) == [(1, "a"), (2, "b"), (6, "e")]
    await session.rewrite(7, [user_message("f")])
    assert await shown(session) == [(1, "a"), (2, "b"), (6, "e"), (7, "f")]
    with pytest.raises(NotInWindow, match="cannot rewrite from seq 9: the last seq is 7"):
        await session.rewrite(9, [user_message("g")])
    assert await is_sound(memory)


async def test_the_expected_state_is_checked(session: Session) -> None:
    receipt = await session.append(user_message("a"), user_message("b"))
    await session.append(user_message("c"))
    for expect in (receipt, receipt.last_seq, 4):
        with pytest.raises(Conflict):
            await session.rewrite(2, [user_message("B")], expect=expect)
    assert (await session.rewrite(2, [user_message("B")], expect=await session.read())).last_seq == 4
    with pytest.raises(InvalidMessage):
        await session.rewrite(2, [], expect="4")  # type: ignore[arg-type]
    assert await shown(session) == [(1, "a"), (4, "B")]


async def test_a_known_id_returns_the_first_receipt(session: Session) -> None:
    seen = await session.append(user_message("a"), user_message("b"))
    first = await session.rewrite(2, [user_message("B"), user_message("C")], id="r", expect=seen)
    await session.append(user_message("d"))
    again = await session.rewrite(2, [user_message("B"), user_message("C")], id="r", expect=seen)
    assert (again, again.duplicate) == (type(again)(3, 4, 4, False, True), True)
    assert first.last_seq == 4
    with pytest.raises(IdReused):
        await session.rewrite(1, [], id="r")
    removed = await session.rewrite(5, [], id="nothing")
    assert (await session.rewrite(5, [], id="nothing")).last_seq == removed.last_seq == 6
    with pytest.raises(IdReused):
        await session.append(user_message("x"), user_message("y"), id="nothing")
    assert await shown(session) == [(1, "a"), (3, "B"), (4, "C")]


async def test_what_is_appended_meanwhile_is_replaced_too(
    memory: Memory, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    await session.append(user_message("a"), user_message("b"))
    calls, late = memory.store.session_calls(session.id), ["c", "d"]
    run = memory.store.run

    async def append_first(call: Any, **options: Any) -> Any:
        if call.op == "rewrite" and late:
            await run(calls.append([user_message(late.pop())]))
        return await run(call, **options)

    monkeypatch.setattr(memory.store, "run", append_first)
    receipt = await session.rewrite(2, [user_message("B")])
    assert (late, receipt.first_seq) == ([], 5)
    assert await shown(session) == [(1, "a"), (5, "B")]
    late.append("e")
    with pytest.raises(Conflict):
        await session.rewrite(5, [user_message("C")], expect=receipt)
    assert await shown(session) == [(1, "a"), (5, "B"), (6, "e")]
    assert await is_sound(memory)


async def test_what_cannot_be_stored_changes_nothing(store: Store, namespace: str) -> None:
    limits = Settings(max_batch_count=12, threshold=4, recent_limit=2, max_window_count=10, max_pinned_count=1)
    async with store.memory(namespace, limits) as memory:
        session = memory.session("a")
        with pytest.raises(SessionNotFound):
            await session.rewrite(1, [user_message("x")])
        await session.append(*(user_message(text) for text in "abcd"))
        before = await session.read()
        with pytest.raises(TooLarge, match="window holds"):
            await session.rewrite(2, [user_message("x")] * 10)
        with pytest.raises(TooLarge, match="13 messages"):
            await session.rewrite(2, [user_message("x")] * 13)
        with pytest.raises(TooLarge, match="pinned"):
            await session.rewrite(2, [SYSTEM, SYSTEM])
        with pytest.raises(InvalidMessage):
            await session.rewrite(2, [{"content": "no role"}])
        for wrong in (0, -1, True, 1.0, "1", None):
            with pytest.raises(ValueError, match="from_seq must be an integer, 1 or more"):
                await session.rewrite(wrong, [])  # type: ignore[arg-type]
        for single in (user_message("x"), "x", None, 1):
            with pytest.raises(TypeError, match="messages must be a list"):
                await session.rewrite(1, single)  # type: ignore[arg-type]
        assert await session.read() == before
        await session.rewrite(2, [user_message("x")] * 4)
        assert (await session.info()).queued == "overdue"
        assert await is_sound(memory)


@pytest.mark.parametrize("lost_count", [1, 2, 5])
@pytest.mark.parametrize("id", [None, "my-id"])
async def test_lost_replies_rewrite_once(redis_server: Any, namespace: str, lost_count: int, id: str | None) -> None:
    settings = Settings(deadline_s=60, reply_timeout_s=2)
    async with (
        Proxy(redis_server.port) as proxy,
        Memory.connect(proxy.url, settings=settings, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as near,
    ):
        session = memory.session("a")
        await session.append(*(user_message(text) for text in "abc"))
        await session.rewrite(3, [user_message("C")])  # every script is known
        calls = memory.store.session_calls("a")
        view = await session._editor.view("rewrite")
        new = ending.encode(calls, [user_message("B"), user_message("D")], id)
        call = edit(calls, view, ending.rewrite(view, 2, new), partial(ending.decode_receipt, "a", new))
        proxy.break_next("reset", lost_count, to=b"EVALSHA")
        receipt = await memory.store.run(call)
        assert receipt is not None
        assert (receipt.first_seq, receipt.last_seq, receipt.duplicate) == (5, 6, False)
        assert await shown(near.session("a")) == [(1, "a"), (5, "B"), (6, "D")]
        assert await is_sound(near)


def test_blocking_callers_rewrite_too(redis_server: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        session = memory.session("a")
        session.append(user_message("a"), user_message("b"))
        assert session.rewrite(2, [user_message("c")]).last_seq == 3
        assert session.read().to_openai() == [user_message("a"), user_message("c")]


KEPT = Settings(threshold=4, recent_limit=2, shards=1, keep_originals=True)


async def summarised(session: Session, memory: Memory, count: int = 40) -> list[tuple[int, int]]:
    """Append messages of which every seventh is pinned, in turns. Returns the ranges of the summaries."""
    for seq in range(1, count + 1):
        await session.append(user_message(f"text {seq}"), pin=seq % 7 == 0)
        await summarize(memory)
    return [(summary.first_seq, summary.last_seq) for summary in (await session.read()).summaries]


@pytest.mark.parametrize("from_seq", [1, 2, 6, 7, 8, 15, 16, 17, 18, 22, 33, 36, 38])
async def test_what_a_summary_covers_before_the_seq_comes_back(
    store: Store, namespace: str, raw: Any, from_seq: int
) -> None:
    async with store.memory(namespace, KEPT.model_copy(update={"summaries_limit": 50})) as memory:
        session = memory.session("a")
        ranges = await summarised(session, memory)
        receipt = await session.rewrite(from_seq, [user_message("new")])
        assert receipt.last_seq == 41
        context = await session.read()
        left = [(first, last) for first, last in ranges if last < from_seq]
        assert [(each.first_seq, each.last_seq) for each in context.summaries] == left
        told = [(seq, f"text {seq}") for seq in range(1, from_seq)] + [(41, "new")]
        assert [(m.seq, m.content) for m in await session.messages(include_originals=True)] == told
        assert [(m.seq, m.content) for m in await session.tail(50)] == told
        covered = {seq for first, last in left for seq in range(first, last + 1)}
        assert {m.seq for m in (*context.messages, *context.pinned)} >= {seq for seq, _ in told} - covered
        assert seqs(context.pinned) == list(range(7, from_seq, 7))
        assert await is_sound(memory)
        keys = memory.store.keys.session("a")
        blocks = {int(field.lstrip(b"svw")) for field in await raw.hkeys(keys.originals)}
        assert not blocks or max(blocks) <= (context.first_seq - 2) // 16
        assert all(seq < from_seq for seq in seqs(await session.recall("text")))
        for seq in range(42, 52):
            await session.append(user_message(f"text {seq}"))
            await summarize(memory)
        after = told + [(seq, f"text {seq}") for seq in range(42, 52)]
        assert [(m.seq, m.content) for m in await session.messages(include_originals=True)] == after
        assert await is_sound(memory)


@pytest.mark.parametrize("from_seq", [1, 2, 4, 6])
async def test_gaps_that_a_summary_covers_count_once(store: Store, namespace: str, from_seq: int) -> None:
    """Seqs 2, 3 and 4 were popped: a seq of a message each, and one for the pop."""
    async with store.memory(namespace, Settings(threshold=4, recent_limit=2, shards=2)) as memory:
        session = memory.session("a")
        await session.append(*(user_message(text) for text in "abc"))
        await session.pop(2)
        await session.append(*(user_message(text) for text in "defg"), SYSTEM)
        assert await summarize(memory) == 1
        await session.rewrite(from_seq, [user_message("new")])
        context = await session.read()
        assert (
            context.total_messages
            == len(await session.messages(include_originals=True))
            == len(payloads(context.messages)) + len(context.pinned)
        )


async def test_without_originals_only_whole_summaries_go(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT.model_copy(update={"keep_originals": False})) as memory:
        session = memory.session("a")
        ranges = await summarised(session, memory, 20)
        first, last = ranges[-1]
        before = await session.read()
        assert first < last
        with pytest.raises(NotInWindow, match=f"a summary covers seq {last}, and the session keeps no originals"):
            await session.rewrite(last, [])
        assert await session.read() == before
        await session.rewrite(first, [user_message("new")])
        assert seqs((await session.read()).messages) == [21]
        assert await is_sound(memory)


async def test_originals_that_cannot_be_read_are_not_made_up(store: Store, namespace: str, raw: Any) -> None:
    settings = KEPT.model_copy(update={"summaries_limit": 2})
    async with store.memory(namespace, settings) as memory:
        session = memory.session("a")
        await summarised(session, memory)
        keys = memory.store.keys.session("a")
        block = await raw.hget(keys.originals, "0")
        for broken in (block[:-1], None):
            await (raw.hdel(keys.originals, "0") if broken is None else raw.hset(keys.originals, "0", broken))
            before = await session.read()
            with pytest.raises(NotInWindow, match="cannot be read"):
                await session.rewrite(10, [])
            assert await session.read() == before


async def test_more_than_a_window_does_not_come_back(store: Store, namespace: str) -> None:
    settings = KEPT.model_copy(update={"max_window_count": 10, "summaries_limit": 2})
    async with store.memory(namespace, settings) as memory:
        session = memory.session("a")
        await summarised(session, memory)
        before = await session.read()
        with pytest.raises(TooLarge, match="19 messages would come back, over 10"):
            await session.rewrite(20, [])
        assert await session.read() == before
        assert await is_sound(memory)


async def test_a_summary_in_the_making_is_refused_after_a_rewrite(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await summarised(session, memory, 20)
        await session.append(*(user_message(str(seq)) for seq in range(21, 26)))
        calls = memory.store.queue_calls("a")
        job = await memory.store.run(calls.claim())
        assert isinstance(job, Job)
        await session.rewrite(8, [user_message("new")])
        before = await session.read()
        assert await memory.store.run(calls.commit(job, job.context.messages[:2], None)) == "stale"
        assert await session.read() == before
        await memory.store.run(calls.release(job.fence, 0, counts=False, dead=False))
        assert await is_sound(memory)


PARTS = st.lists(st.booleans(), max_size=4)
"""Messages; True pins the message."""
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "pop", "pop exactly", "rewrite", "prune"]), st.integers(0, 9), PARTS),
    min_size=1,
    max_size=8,
)


async def check_contents(session: Session, kept: dict[int, tuple[str, bool]], last_seq: int) -> None:
    """Assert that the session has these texts by seq, True for a pinned one."""
    context = await session.read()
    assert {each.seq: each.content for each in (*context.pinned, *context.messages)} == {
        seq: text for seq, (text, _) in kept.items()
    }
    for count in {0, 1, len(kept) // 2, len(kept), len(kept) + 1}:
        newest = sorted(kept.items())[max(0, len(kept) - count) :]
        assert [(each.seq, each.content) for each in await session.tail(count)] == [
            (seq, text) for seq, (text, _) in newest
        ]
    assert (context.last_seq, seqs(context.pinned)) == (last_seq, [s for s, (_, p) in kept.items() if p])


@given(steps=STEPS)
async def test_any_order_of_writes_leaves_what_a_list_would(store: Store, steps: list[tuple[str, int, Any]]) -> None:
    """The session is compared with a dict of its seqs."""
    async with store.memory("rewrites", Settings(shards=1)) as memory:
        session, kept, last_seq = memory.session("a"), dict[int, tuple[str, bool]](), 0
        await session.clear()
        await session.append(user_message("first"))
        kept, last_seq = {1: ("first", False)}, 1
        for step, (kind, number, parts) in enumerate(steps):
            new = [(f"{step}.{at}", is_pinned) for at, is_pinned in enumerate(parts)]
            messages = [{"role": "system" if is_pinned else "user", "content": text} for text, is_pinned in new]
            counted = [seq for seq, (_, is_pinned) in kept.items() if not is_pinned]
            if kind == "append" and parts:
                await session.append(*messages)
                kept |= dict(enumerate(new, last_seq + 1))
                last_seq += len(parts)
            elif kind == "pop" and counted:
                popped = seqs(await session.pop(min(number + 1, len(counted))))
                assert popped == counted[-number - 1 :]
                kept, last_seq = {seq: of for seq, of in kept.items() if seq not in popped}, last_seq + 1
            elif kind == "pop exactly" and kept:
                popped = seqs(await session.pop(number + 1, exact=True))
                assert popped == sorted(kept)[-number - 1 :]
                kept, last_seq = {seq: of for seq, of in kept.items() if seq not in popped}, last_seq + 1
            elif kind == "rewrite":
                from_seq = max(1, last_seq + 1 - number)
                receipt = await session.rewrite(from_seq, messages)
                assert receipt.first_seq == last_seq + 1
                kept = {seq: of for seq, of in kept.items() if seq < from_seq} | dict(enumerate(new, last_seq + 1))
                last_seq += max(1, len(parts))
                assert receipt.last_seq == last_seq
            elif kind == "prune":
                await session.prune(number)
                for seq in counted[: max(0, len(counted) - number)]:
                    del kept[seq]
            await check_contents(session, kept, last_seq)
        assert await is_sound(memory)
