"""A caller's model that fails on a conversation: an attempt is counted, and the error's text is not logged."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.checks import CANARY, Panic, user
from support.clock import ProjectClock

from redismem import Memory
from redismem.errors import ProviderUnavailable
from redismem.workers.project_extraction import ExtractionWorker


class Broken(Exception):
    """An error with a text of its own."""

    text = CANARY


@pytest.fixture
def clock() -> ProjectClock:
    return ProjectClock()


@pytest.mark.parametrize("kind", [Broken, asyncio.CancelledError, Panic])
async def test_whatever_a_model_of_ones_own_raises_is_a_failed_attempt_and_not_quoted(
    memory: Memory, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    async def reply(messages: list[dict[str, Any]], *, max_tokens: int) -> str:
        raise kind(CANARY)

    caplog.set_level("INFO")
    apollo = memory.project("apollo")
    talk = await apollo.conversations.start()
    await apollo.conversations.add(talk.id, user())
    await apollo.conversations.end(talk.id, extract=True)
    model: Any = SimpleNamespace(name="own", reply=reply)
    assert await ExtractionWorker(memory.store, model).drain() == 0
    assert (await apollo._items.get(talk.id)).state["attempts"] == 1
    assert f"failed, 0 items {kind.__name__}" in caplog.text
    assert CANARY not in caplog.text


async def test_a_conversation_that_is_never_answered_is_not_the_only_probe(memory: Memory, clock: ProjectClock) -> None:
    """Each probe takes one at random: with the oldest each time, the provider would stay paused for all others."""

    async def reply(messages: list[dict[str, Any]], *, max_tokens: int) -> str:
        if "poison" in str(messages):
            raise ProviderUnavailable("x", reason="p answered 503")
        return "{}"

    apollo = memory.project("apollo")
    talks = []
    for text in ("poison", "a", "b"):
        talks.append((await apollo.conversations.start()).id)
        await apollo.conversations.add(talks[-1], user(text))
        await apollo.conversations.end(talks[-1], extract=True)
        clock.tick()
    model: Any = SimpleNamespace(name="own", provider="p", reply=reply)
    worker = ExtractionWorker(memory.store, model, concurrency=1)
    states = []
    for _ in range(100):  # the oldest is the first of three, a hundred times, once in 10 ** 47 runs
        await worker.drain()
        clock.tick(61)
        states = [(await apollo._items.get(talk)).state["extraction"] for talk in talks]
        if states[1:] == ["done", "done"]:
            break
    assert states[1:] == ["done", "done"]
    assert states[0] == "due"
