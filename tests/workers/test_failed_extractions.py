"""A caller's model that fails on a conversation: an attempt is counted, and the error's text is not logged."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from support.checks import CANARY, Panic, user
from support.clock import ProjectClock

from redismem import Memory
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
