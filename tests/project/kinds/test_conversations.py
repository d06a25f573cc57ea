"""Conversations: sessions that belong to a project, which keeps the last hundred."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.clock import ProjectClock

from redismem import InvalidItem, InvalidSessionId, ItemNotFound, Memory
from redismem.project.extraction.extraction import Outcome
from redismem.project.project import Project


async def test_a_conversation_is_a_session(apollo: Project, memory: Memory, clock: ProjectClock) -> None:
    talk = await apollo.conversations.start("planning", tags=["Week 1"])
    await apollo.conversations.add(talk.id, {"role": "user", "content": "Use Redis."})
    receipt = await apollo.conversations.add(talk.id, {"role": "assistant", "content": "Noted."})
    assert receipt.last_seq == 2
    session = memory.session(apollo.conversations.session_id(talk.id))
    assert [message.content for message in await session.messages()] == ["Use Redis.", "Noted."]
    decision = await apollo.decisions.create("Use Redis")
    clock.tick()
    ended = await apollo.conversations.end(talk.id, "We use Redis.", [decision.id])
    assert (ended.summary, ended.extracted, ended.message_count) == ("We use Redis.", (decision.id,), 2)
    assert ended.ended_at == ended.valid_until == clock.now
    for change in (apollo.conversations.add(talk.id, {"role": "user"}), apollo.conversations.end(talk.id)):
        with pytest.raises(InvalidItem, match="has ended"):
            await change
    assert [each.id for each in await apollo.conversations.recent()] == [talk.id]
    assert [each.id for each in await apollo.conversations.list(text="redis", tags=["week 1"])] == [talk.id]
    await apollo.conversations.delete(talk.id)
    assert not await session.exists()
    with pytest.raises(ItemNotFound):
        await apollo.conversations.add(talk.id, {"role": "user"})


async def test_messages_with_an_owner_are_forgotten_with_the_person(apollo: Project, memory: Memory) -> None:
    talks = apollo.conversations
    mine, hers, later = [await talks.start(title) for title in ("mine", "hers", "later")]
    await talks.add(mine.id, {"role": "user", "content": "I live in Ulm."}, owner="me")
    await talks.add(hers.id, {"role": "user", "content": "I live in Bonn."}, owner="her")
    await talks.session(later.id, owner="me").append({"role": "user", "content": "I moved to Kiel."})
    with pytest.raises(InvalidSessionId):
        await talks.add(mine.id, {"role": "user", "content": "x"}, owner="")
    assert (await memory.forget(owner="me")).session_count == 2
    assert [await talks.session(each.id).exists() for each in (mine, hers, later)] == [False, True, False]
    assert [await talks.exists(each.id) for each in (mine, hers, later)] == [False, True, False]


async def test_the_last_hundred_are_kept(apollo: Project, clock: ProjectClock) -> None:
    made = []
    for number in range(103):
        clock.tick()
        made.append((await apollo.conversations.start(f"talk {number}")).id)
        if number == 0:
            await apollo.conversations.add(made[0], {"role": "user", "content": "old"})
            first = apollo.conversations.session(made[0])
            assert await first.exists()
    assert await apollo.conversations.count() == 100
    assert [each.id for each in await apollo.conversations.list(limit=1_000)] == made[:2:-1]
    assert not await first.exists()
    assert not await apollo.conversations.exists(made[2])
    assert await apollo.conversations.clear() == 100


class Notes:
    """A model that creates a task from any text."""

    provider = "own"

    def __init__(self) -> None:
        self.count = 0

    async def reply(self, messages: Sequence[dict[str, Any]], *, max_tokens: int) -> str:
        del messages, max_tokens
        self.count += 1
        return json.dumps({"tasks": [{"title": f"Task {self.count}"}]})


async def test_what_is_said_after_its_messages_have_gone_is_read_and_nothing_that_came_of_it_is_forgotten(
    apollo: Project,
) -> None:
    talk = await apollo.conversations.start()
    notes: Any = Notes()
    said = {"role": "user", "content": "We need a task."}
    await apollo.conversations.add(talk.id, said, said, said)
    (first,) = (await apollo.extract(talk.id, notes)).item_ids
    await apollo.conversations.session(talk.id).clear()
    await apollo.conversations.add(talk.id, said)
    decision = await apollo.decisions.create("Use Redis")
    ended = await apollo.conversations.end(talk.id, extracted=[decision.id], extract=True)
    assert (ended.extraction, ended.extracted) == ("due", (first, decision.id))
    (did,) = await apollo.extract_due(notes)
    assert did.item_ids not in ((), (first,))
    assert (await apollo.conversations.get(talk.id)).extracted == (first, decision.id, *did.item_ids)
    assert (await apollo.extract(talk.id, notes)).outcome is Outcome.ALREADY


async def test_what_does_not_fit_is_refused(apollo: Project) -> None:
    talk = await apollo.conversations.start()
    for ids in (["x"], ["d-"], [5]):
        with pytest.raises(InvalidItem):
            await apollo.conversations.end(talk.id, extracted=ids)  # type: ignore[arg-type]
    assert (await apollo.conversations.end(talk.id)).message_count == 0
