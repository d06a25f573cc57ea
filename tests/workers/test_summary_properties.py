"""Invariants of sessions and their summaries, one property per test, on a real server."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0, Clock
from support.examples import (
    OpenMemory,
    append,
    batches,
    bounds,
    covered_seqs,
    payloads,
    texts,
)
from support.writers import Echo, chat_message

import redismem
from redismem.context.results import Summary
from redismem.models import Draft
from redismem.text.plain import clean_text
from redismem.workers.summaries import Worker


@given(steps=st.lists(st.lists(payloads, min_size=1, max_size=7) | st.just("drain") | texts, min_size=1, max_size=7))
async def test_storage_consistency(open_memory: OpenMemory, steps: list[Any]) -> None:
    async with open_memory(keep_originals=True) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        put: list[dict[str, Any]] = []
        params: dict[str, str] = {}
        await session.update(merge={"x": 1})
        for step in steps:
            if step == "drain":
                await worker.drain()
            elif isinstance(step, str):
                params[f"p{step}"] = step
                await session.update(merge={f"p{step}": step})
            else:
                put += step
                await session.append(*step)
            found = await session.messages(include_originals=True)
            assert [message.to_openai() for message in found] == put
            assert [message.seq for message in found] == list(range(1, len(put) + 1))
            context, known = await session.read(), await session.info()
            assert covered_seqs(context) == list(range(1, len(put) + 1))
            assert context.state.params == {"x": 1} | params
            assert known.window_tokens == sum(message.tokens for message in context.messages)
            assert (known.total_messages, known.window_count) == (len(put), len(context.messages))


@given(counts=batches, drain_after=st.sets(st.integers(0, 4)), bound=bounds)
async def test_context_holds_summaries_and_recent(
    open_memory: OpenMemory, counts: list[int], drain_after: set[int], bound: dict[str, int]
) -> None:
    async with open_memory(summaries_limit=2, **bound) as memory:
        session, worker, total = memory.session("a"), Worker(memory.store, Echo()), 0
        for number, count in enumerate(counts):
            context = await session.append_and_read(*(chat_message(total + at + 1) for at in range(count)))
            total += count
            assert covered_seqs(context) == list(range(1, total + 1))
            if number in drain_after:
                await worker.drain()
            context = await session.read()
            assert covered_seqs(context) == list(range(1, total + 1))
            newest = list(range(max(0, total - bound["recent_limit"]) + 1, total + 1))
            assert [message.seq for message in context.recent][-len(newest) :] == newest
            assert context.pending + context.recent == context.messages
            shown = context.to_openai()
            assert [turn["content"] for turn in shown[len(context.summaries) :]] == [
                chat_message(message.seq)["content"] for message in context.messages
            ]
            for turn, summary in zip(shown, context.summaries, strict=False):
                assert summary.text in turn["content"]
                assert all(
                    chat_message(seq)["content"] in summary.text
                    for seq in range(summary.first_seq, summary.last_seq + 1)
                )


@given(counts=batches, threshold=st.integers(1, 30))
async def test_trigger_over_threshold(open_memory: OpenMemory, counts: list[int], threshold: int) -> None:
    async with open_memory(threshold=threshold, recent_limit=1) as memory:
        session, total = memory.session("a"), 0
        for count in counts:
            await session.append(*map(chat_message, range(total + 1, total + count + 1)))
            total += count
            assert (await session.info()).queued == ("overdue" if total > threshold else None)
        worker = Worker(memory.store, Echo())
        assert await worker.drain() == (1 if total > threshold else 0)
        assert (await session.info()).queued is None


@given(counts=batches, bound=bounds)
async def test_exactly_recent_limit_verbatim(open_memory: OpenMemory, counts: list[int], bound: dict[str, int]) -> None:
    async with open_memory(**bound) as memory:
        session = memory.session("a")
        await append(session, counts)
        before = (await session.read()).messages
        await Worker(memory.store, Echo()).drain()
        after = (await session.read()).messages
        kept = bound["recent_limit"] if len(before) > bound["threshold"] else len(before)
        assert len(after) == kept
        assert after == before[-kept:]


drafts = texts.map(lambda text: clean_text(text).strip()).filter(bool)
"""Texts as a worker stores them: without control characters."""


@given(
    told=st.lists(drafts, min_size=11, max_size=18),
    limit=st.integers(1, 3),
    tokens=st.integers(0, 9),
)
async def test_summary_structure(
    open_memory: OpenMemory, told: list[str], limit: int, tokens: int, clock: Clock
) -> None:
    async with open_memory(summaries_limit=limit) as memory:
        session, echo = memory.session("a"), Echo()
        worker = Worker(memory.store, echo)
        for at, text in enumerate(told):
            echo.drafts.append(Draft(text, tokens, tokens, "some-model"))
            await clock.run_at(T0 + at, session.append(chat_message(at)))
            await clock.run_at(T0 + at, worker.drain())
        context, seen_ids = await session.read(), set()
        assert 1 <= len(context.summaries) <= limit
        next_seq = 1
        for summary in context.summaries:
            assert summary.first_seq == next_seq <= summary.last_seq < context.first_seq
            next_seq = summary.last_seq + 1
            assert T0 + summary.first_seq - 1 == summary.start_ms <= summary.end_ms == T0 + summary.last_seq - 1
            assert summary.end_ms <= summary.created_ms <= T0 + len(told)
            assert (summary.model, summary.text in told) == ("some-model", True)
            assert summary.tokens > 0
            whole = tuple(f"{context.epoch}:{seq}" for seq in range(summary.first_seq, summary.last_seq + 1))
            of_summaries = all("-" in id.rpartition(":")[2] for id in summary.message_ids)
            assert summary.message_ids == whole or (of_summaries and 2 <= len(summary.message_ids) <= limit + 1)
            assert Summary.decode(summary.encode()) == summary
            seen_ids.add(summary.id)
        assert next_seq == context.first_seq
        assert len(seen_ids) == len(context.summaries)


@given(counts=batches, bound=bounds, limit=st.integers(1, 5), window_limit=st.integers(12, 40))
async def test_thresholds_respected(
    open_memory: OpenMemory, counts: list[int], bound: dict[str, int], limit: int, window_limit: int
) -> None:
    async with open_memory(summaries_limit=limit, max_window_count=window_limit, **bound) as memory:
        session, worker, total = memory.session("a"), Worker(memory.store, Echo()), 0
        for number, count in enumerate(counts):
            window = (await session.read()).messages
            if len(window) + count > window_limit:
                with pytest.raises(redismem.TooLarge):
                    await session.append(*map(chat_message, range(count)))
            else:
                await session.append(*map(chat_message, range(count)))
                total += count
            if number % 2:
                await worker.drain()
                context = await session.read()
                assert len(context.messages) <= bound["threshold"]
                assert len(context.messages) >= min(total, bound["recent_limit"])
                assert len(context.summaries) <= limit
            assert len((await session.read()).messages) <= window_limit
            assert covered_seqs(await session.read()) == list(range(1, total + 1))
