"""The names of speakers, however a format writes them, are in summaries and recall."""

from __future__ import annotations

from typing import Any

import pytest
from support.edited import summarize
from support.stores import Store

from redismem import Settings

SETTINGS = Settings(shards=1, threshold=4, recent_limit=2, keep_originals=True)


def plain(name: str, text: str) -> dict[str, Any]:
    return {"role": "user", "name": name, "content": text}


def langchain(name: str, text: str) -> dict[str, Any]:
    return {"type": "human", "data": {"type": "human", "content": text, "name": name}}


def agent_framework(name: str, text: str) -> dict[str, Any]:
    return {"role": "user", "author_name": name, "contents": [{"type": "text", "text": text}]}


@pytest.mark.parametrize("write", [plain, langchain, agent_framework])
async def test_who_said_it_is_in_the_summary_and_in_recall(store: Store, namespace: str, write: Any) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("s")
        await session.append(write("Alice", "I am allergic to walnuts."), write("Bob", "I always eat walnuts."))
        await session.append(*[write("Carol", f"Line {number}.") for number in range(6)])
        assert await summarize(memory) == 1
        context = await session.append_and_read(write("Bob", "Which walnuts may I eat?"), recall=300)
        (summary,) = context.summaries
        assert "Alice: I am allergic to walnuts." in summary.text
        assert "Bob: I always eat walnuts." in summary.text
        quoted = next(each["content"] for each in context.to_openai() if "<recalled>" in str(each.get("content")))
        assert "user Alice: I am allergic to walnuts." in quoted
        assert "user Bob: I always eat walnuts." in quoted
        assert [message.seq for message in await session.recall("Alice", limit=1)][:1] == [1]
