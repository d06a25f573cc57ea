"""A standing rule is recalled with each question that it concerns, until it is replaced or forgotten."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from support.stores import Store
from support.worked import open_with

from redismem import Memory
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker

RULE = "When I ask about a hotel, always give me the price in Swiss francs."
NEWER = "From now on give me the price of a hotel in Japanese yen."
ADVICE = "Always compare the price of a hotel near the lake, whenever you travel."
QUESTION = {"role": "user", "content": "Which hotel near the lake is good?"}


async def tell(memory: Memory, texts: dict[int, str], count: int = 200) -> Any:
    """Talk of hotels near the lake, so that the words of the rule are common. The assistant gives advice."""
    session, worker = memory.session("a", owner="anna"), Worker(memory.store, Trim())
    for at in range(0, count, 20):
        said = [
            {"role": "user", "content": f"{texts.get(seq, 'Fine.')} The hotel near the lake number {seq} was good."}
            if seq % 2
            else {"role": "assistant", "content": f"{ADVICE} Hotel {seq} near the lake is good, number {seq} too."}
            for seq in range(at + 1, at + 21)
        ]
        await session.append(*said)
        await worker.drain()
    await session.append(*({"role": "user", "content": f"({at})"} for at in range(40)))
    await worker.drain()
    return session


@pytest.mark.parametrize("scope", ["session", "owner"])
async def test_a_rule_is_recalled_with_what_it_concerns_until_a_newer_one_replaces_it(
    store: Store, namespace: str, scope: Literal["session", "owner"]
) -> None:
    async with open_with(store, namespace) as memory:
        session = await tell(memory, {5: RULE, 9: "I prefer trains over flights."})

        async def ask(text: str) -> str:
            found = await session.recall(text, max_tokens=600, scope=scope)
            context = await session.append_and_read({"role": "user", "content": text}, recall=600, recall_scope=scope)
            assert {each.seq for each in found} >= {each.seq for each in context.recalled if RULE in each.content}
            await session.pop()
            return " ".join(each.content for each in context.recalled)

        asked = "Which hotel near the lake is good?"
        assert RULE in await ask(asked)
        assert "trains" not in await ask(asked), "a rule of another subject is not"
        assert RULE not in await ask("Was the lake good?"), "another sentence of its message does not make it match"
        await session.clear()
        session = await tell(memory, {5: RULE, 121: NEWER})
        found = await ask(asked)
        assert NEWER in found
        assert RULE not in found


async def test_a_forgotten_rule_is_recalled_no_more(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await tell(memory, {5: RULE})
        assert RULE in " ".join(each.content for each in await session.recall(QUESTION["content"], max_tokens=300))
        await session.forget(5)
        assert "Swiss" not in str(await session.recall(QUESTION["content"], max_tokens=3_000))
        assert "Swiss" not in str((await session.append_and_read(QUESTION, recall=3_000)).to_openai())
