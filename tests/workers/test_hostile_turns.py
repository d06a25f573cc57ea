"""Hostile text in one session beside turns of other sessions: no summary blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from redismem import Memory, Message
from redismem.models import Draft, open_extractive
from redismem.models.extractive import summarizer
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

HOSTILE = {
    "question marks": "?" * 15_999 + "a",
    "numbers": "12 13 " * 2_600,
    "points of a list": "5. " * 5_300,
    "an open tag and spaces": "<" + " " * 200_000 + "x",
    "one long word": "a" * 16_000 + "1",
}


class Watched:
    """The extractive summariser, counting event-loop iterations while it works."""

    name = "watched"

    def __init__(self) -> None:
        self.rounds_at_work: list[int] = []
        self._rounds = 0
        self._model = open_extractive()

    async def count_rounds(self) -> None:
        while True:
            await asyncio.sleep(0)
            self._rounds += 1

    async def summarize(self, messages: Sequence[Message], previous: str | None, max_tokens: int) -> Draft:
        before = self._rounds
        draft = await self._model.summarize(messages, previous, max_tokens)
        self.rounds_at_work.append(self._rounds - before)
        return draft

    async def aclose(self) -> None:
        await self._model.aclose()


@pytest.mark.parametrize("shape", HOSTILE)
async def test_others_have_their_turns_while_hostile_text_is_summarised(
    direct_memory: Memory, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summarizer, "_TURN_S", 0.0)  # how long a step takes depends on the machine
    session = direct_memory.session("hostile")
    for _ in range(22):
        await session.append({"role": "user", "content": HOSTILE[shape]})
    model = Watched()
    counting = asyncio.create_task(model.count_rounds())
    work = asyncio.create_task(Worker(direct_memory.store, Summarize(model)).attend("hostile"))

    async def talk(name: str) -> int:
        turns = 0
        while not work.done() or not turns:
            context = await direct_memory.session(name).append_and_read({"role": "user", "content": "hi"})
            turns += 1
            assert context.total_messages == turns
        return turns

    turns = await asyncio.gather(*(talk(f"user-{number}") for number in range(5)))
    counting.cancel()
    # Once for each of the sixteen messages at least, and so never a whole window at once.
    assert sum(model.rounds_at_work) >= 16
    assert await work == "ok"
    assert min(turns) >= 1
    assert len((await session.read()).summaries) == 1
