"""Recall over all conversations of an owner finds what was said in any of them, and never what another person said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import redis.asyncio
from support.faulty import RECALL_FAILURES, fail_after_first_call
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES, Store
from support.worked import open_with
from support.writers import Echo, call_message, chat_message, result_message

from redismem import InvalidSessionId, Memory, Message, RedismemError
from redismem.blocking import memory as blocking
from redismem.workers.summaries import Worker

ODD = "9:a:1"
FACTS = {"a": "My dog Biscuit is from Leeds.", ODD: "I moved to Lisbon.", "b": "The dog Rex of Lisbon bites."}
OWNERS = {"a": "ann", ODD: "ann", "b": "ann:"}


async def tell(memory: Memory, session_id: str, owner: str | None, fact: str, day: int = 8) -> None:
    session, at = memory.session(session_id, owner=owner), datetime(2023, 5, day, 12, tzinfo=UTC)
    texts = [fact, "Noted.", *(f"small talk {number}" for number in range(40))]
    roles = ("user", "assistant")
    await session.append(*(Message(roles[place % 2], text, timestamp=at) for place, text in enumerate(texts)))


async def tell_all(memory: Memory) -> None:
    for day, (session_id, fact) in enumerate(FACTS.items(), 8):
        await tell(memory, session_id, OWNERS[session_id], fact, day)
    await tell(memory, "nobody's", None, "A dog of Lisbon.")
    await Worker(memory.store, Echo()).drain()


def places(messages: Any) -> list[tuple[str | None, int]]:
    return [(message.session_id, message.seq) for message in messages]


async def test_it_finds_what_was_said_in_any_conversation_of_the_owner_alone(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        await tell_all(memory)
        new = memory.session("new", owner="ann")
        assert places(await new.recall("dog Lisbon", 2, scope="owner")) == [("a", 1), ("a", 2), (ODD, 1), (ODD, 2)]
        assert await memory.session("x", owner="eve").recall("dog Lisbon", scope="owner") == []
        context = await new.append_and_read(
            chat_message(1, "Has my dog been to Lisbon?"), recall=140, recall_scope="owner"
        )
        assert {("a", 1), (ODD, 1)} <= set(places(context.recalled))
        assert {name for name, _ in places(context.recalled)} == {"a", ODD}
        (quoted,) = [shown for shown in context.to_openai() if "<recalled>" in shown["content"]]
        lines = quoted["content"].split("<recalled>\n")[1].splitlines()
        assert lines[:2] == ["Monday 8 May 2023, conversation 1:", f"user: {FACTS['a']}"]
        assert f"Tuesday 9 May 2023, conversation 2:\nuser: {FACTS[ODD]}" in quoted["content"]
        assert len(quoted["content"].encode()) // 4 <= 140
        again = await memory.session("a", owner="ann").append_and_read(
            chat_message(1, "Biscuit?"), recall=200, recall_scope="owner"
        )
        (quoted,) = [shown for shown in again.to_openai() if "<recalled>" in shown["content"]]
        assert "Monday 8 May 2023, this conversation:" in quoted["content"]


async def test_without_an_owner_it_is_refused_and_nothing_is_written(memory: Memory) -> None:
    session = memory.session("a")
    with pytest.raises(InvalidSessionId, match="needs the owner"):
        await session.recall("dog", scope="owner")
    with pytest.raises(InvalidSessionId, match="needs the owner"):
        await session.append_and_read(chat_message(1), recall=100, recall_scope="owner")
    owned: Any = memory.session("a", owner="ann")
    for options in ({"recall": 100, "recall_scope": "user"}, {"recall_scope": "owner"}):
        with pytest.raises(ValueError, match="scope"):
            await owned.append_and_read(chat_message(1), **options)
    assert not await session.exists()


async def test_calls_of_two_sessions_with_equal_ids_are_no_pair(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        for session_id, word in (("a", "zebra"), ("b", "walrus")):
            session = memory.session(session_id, owner="ann")
            await session.append(
                chat_message(1, word), call_message("same"), result_message("same"), *map(chat_message, range(1, 40))
            )
        await Worker(memory.store, Echo()).drain()
        found = await memory.session("new", owner="ann").recall("zebra", 1, scope="owner")
        assert places(found) == [("a", 1), ("a", 2), ("a", 3)]


@pytest.mark.parametrize("failure", RECALL_FAILURES, ids=lambda failure: type(failure).__name__)
async def test_a_failing_recall_costs_the_turn_nothing_else(
    store: Store, namespace: str, caplog: pytest.LogCaptureFixture, failure: RedismemError
) -> None:
    async with open_with(store, namespace) as memory:
        session = memory.session("a", owner="ann")
        with fail_after_first_call(memory.store.transport, failure):
            context = await session.append_and_read(chat_message(1, "dog"), recall=100, recall_scope="owner")
        assert (context.recalled, context.total_messages) == ([], 1)
        assert "recall failed, the turn goes on without it" in caplog.text


async def test_a_full_redis_serves_a_search(redis_server: RedisServer, namespace: str) -> None:
    async with (
        redis.asyncio.Redis(port=redis_server.port) as admin,
        Memory.connect(redis_server.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
    ):
        await tell_all(memory)
        await admin.config_set("maxmemory", 1)
        try:
            found = await memory.session("new", owner="ann").recall("dog Lisbon", 2, scope="owner")
        finally:
            await admin.config_set("maxmemory", 0)
        assert places(found) == [("a", 1), ("a", 2), (ODD, 1), (ODD, 2)]


def test_the_blocking_memory_recalls_from_them_too(namespace: str) -> None:
    with blocking.Memory.connect("memory://", namespace=namespace) as memory:
        session = memory.session("a", owner="ann")
        session.append(*(chat_message(number) for number in range(1, 40)))
        context = session.append_and_read(chat_message(1, "dog"), recall=100, recall_scope="owner")
        assert context.recalled == []
        assert session.recall("dog", scope="owner") == []
        new = memory.session("new", owner="ann")
        assert ("a", 40) in places(new.recall("dog", scope="owner"))
        context = new.append_and_read(chat_message(1, "dog?"), recall=100, recall_scope="owner")
        assert ("a", 40) in places(context.recalled)
        session.clear()
        assert new.recall("dog", scope="owner") == []
