"""The token budget of recall: it is kept, and a larger one finds more in the mean."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.stores import Store
from support.worked import open_with

from benchmarks.remembered.busy import busy
from benchmarks.remembered.dated import dated
from benchmarks.remembered.evidence import tell
from redismem import Memory, Message, Settings
from redismem.formats.recalled import DAY_TOKENS
from redismem.recall.bm25 import HITS_MOST
from redismem.recall.selection import choose, count_hits
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

DAY = st.one_of(st.none(), st.integers(0, 3))
SIZES = st.dictionaries(st.integers(1, 60), st.tuples(st.integers(1, 400), DAY), min_size=1)
BEGIN = datetime(2023, 1, 8, tzinfo=UTC)
WORDS = "lake storm piano garden ticket recipe tunnel lantern market bridge winter copper saddle violin".split()  # noqa: SIM905


@given(st.data(), SIZES, st.integers(0, 1_500), st.integers(0, 60))
def test_a_budget_is_kept_and_tool_calls_stay_together(
    data: st.DataObject, sizes: dict[int, tuple[int, int | None]], max_tokens: int, frame_tokens: int
) -> None:
    hits = data.draw(st.lists(st.integers(1, 64), unique=True, max_size=HITS_MOST))
    matching = {hit for hit in hits if data.draw(st.booleans())}
    group = data.draw(st.sets(st.integers(1, 64), max_size=4))
    together = dict.fromkeys(group, group)
    limit = data.draw(st.one_of(st.none(), st.integers(0, 20)))
    rules = data.draw(st.lists(st.integers(1, 64), unique=True, max_size=4))
    found = set(choose(hits, matching, sizes, together, limit, max_tokens, frame_tokens, rules=rules))
    assert found <= sizes.keys()
    days = {day for seq in found if (day := sizes[seq][1]) is not None}
    used = sum(sizes[seq][0] for seq in found) + DAY_TOKENS * len(days)
    assert not found or used + frame_tokens <= max_tokens
    assert not (found & group) or group & sizes.keys() <= found, "calls and results stay together"
    small = [hit for hit in hits if hit in matching and hit in sizes][:limit]
    left = max_tokens - frame_tokens - used - DAY_TOKENS
    assert all(hit in found or hit in group or sizes[hit][0] > left for hit in small), "no hit that fits is left out"


@given(st.data(), SIZES, st.integers(1, 20), st.integers(0, 1_500))
def test_with_a_limit_the_best_match_that_fits_is_found(
    data: st.DataObject, sizes: dict[int, tuple[int, int | None]], limit: int, max_tokens: int
) -> None:
    hits = data.draw(st.permutations(sorted(sizes)))[: count_hits(max_tokens)]
    fitting = [hit for hit in hits[:limit] if sizes[hit][0] + DAY_TOKENS <= max_tokens]
    found = choose(hits, {*hits}, sizes, {}, limit, max_tokens)
    assert fitting[:1] == [hit for hit in fitting[:1] if hit in found]


def message(seq: int, chosen: random.Random) -> Message:
    text = " ".join(chosen.choices(WORDS, k=chosen.choice((3, 12, 60, 300)))) + f" no. {seq}, yesterday"
    return Message("user" if seq % 2 else "assistant", text, timestamp=BEGIN + timedelta(hours=7 * seq))


async def fill(memory: Memory, count: int) -> Any:
    session, worker, chosen = memory.session("a"), Worker(memory.store, Trim()), random.Random(7)
    for first_seq in range(1, count + 1, 40):
        await session.append(*(message(seq, chosen) for seq in range(first_seq, first_seq + 40)))
        await worker.drain()
    return session


async def test_more_tokens_find_more_in_the_mean_and_take_no_more_than_given(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await fill(memory, 320)
        counts: Counter[int] = Counter()
        for number in range(12):
            asked = " ".join(random.Random(number).sample(WORDS, 3)) + (" in January" if number % 3 == 0 else "")
            best = {each.seq for each in await session.recall(asked, limit=8)}
            for budget in (60, 120, 350, 700, 1_400, 2_800):
                context = await session.append_and_read({"role": "user", "content": asked}, recall=budget)
                (quoted,) = [each for each in context.to_openai() if "<recalled>" in str(each["content"])] or [None]
                found = {each.seq for each in context.recalled}
                counts[budget] += len(best & found)
                assert bool(found) == (quoted is not None)
                assert quoted is None or len(quoted["content"].encode()) / 4 <= budget
        assert list(counts.values()) == sorted(counts.values())
        assert counts[2_800] > 60


async def test_mean_evidence_never_falls_with_the_budget(store: Store, namespace: str) -> None:
    """Each question of four made-up chats is asked with each budget: the messages with the answers count."""
    budgets = (125, 250, 500, 1_000, 2_000, 4_000)
    found, asked_count = dict.fromkeys(budgets, 0), 0
    async with open_with(store, namespace, threshold=4, recent_limit=2, train_dictionaries=False) as memory:
        for make in (dated, busy):
            for with_assistant in (False, True):
                told = make("en", 150, with_assistant=with_assistant)
                session = await tell(memory, told)
                for question in told.questions:
                    asked_count += 1
                    for budget in budgets:
                        seqs = {each.seq for each in await session.recall(question.text, max_tokens=budget)}
                        found[budget] += not seqs.isdisjoint(question.gold)
    assert list(found.values()) == sorted(found.values()), found
    assert found[4_000] > 0.8 * asked_count > found[125], found


async def test_days_are_left_out_where_they_are_off(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=2, recall_days=False)) as memory:
        session = await fill(memory, 80)
        context = await session.append_and_read({"role": "user", "content": "lake storm piano"}, recall=700)
        (quoted,) = [each["content"] for each in context.to_openai() if "<recalled>" in str(each["content"])]
        assert "yesterday" in quoted
        assert "2023" not in quoted
        assert all(line[:1] in ("u", "a", " ") for line in quoted.splitlines()[2:-1])


async def test_a_question_that_names_a_day_finds_what_was_said_on_it(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await fill(memory, 320)
        said = {each.seq: each.timestamp for each in await session.messages(include_originals=True)}
        for asked, month in (("What was it in February 2023?", 2), ("Was war im März?", 3), ("¿Y en abril?", 4)):
            found = [said[each.seq] for each in await session.recall(asked, limit=8)]
            assert sum(each.month == month for each in found) >= len(found) - 2 > 5
        day = BEGIN + timedelta(days=40)
        question = Message("user", "What was it last week?", timestamp=day)
        context = await session.append_and_read(question, recall=350)
        monday = day.date() - timedelta(days=day.weekday() + 7)
        found = [each.timestamp.date() for each in context.recalled]
        assert sum(0 <= (each - monday).days < 7 for each in found) >= len(found) - 2 > 1
        assert await session.recall("What was it in 1999?") == []
