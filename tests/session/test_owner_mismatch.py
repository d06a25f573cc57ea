"""A handle that names another owner than the session's is refused by every method, and nothing is read or written."""

from __future__ import annotations

from typing import Any

import pytest
from support.edited import summarize
from support.operations import OPERATIONS
from support.stored import read_namespace
from support.stores import Store
from support.writers import chat_message

from redismem import OwnerMismatch, Settings
from redismem.blocking import memory as blocking
from redismem.transport.redis_py.given_client import is_embedded

KEEPING = Settings(shards=1, keep_originals=True, threshold=8, recent_limit=2)
OWNERS = {"ann": "of another person", None: "of nobody"}


def check_refusal(refused: pytest.ExceptionInfo[OwnerMismatch], name: str) -> None:
    assert refused.value.session_id == "a", name
    assert not any(word in str(refused.value) for word in ("ann", "bob")), name


@pytest.mark.parametrize("owner", OWNERS, ids=OWNERS.values())
async def test_every_method_is_refused_and_nothing_changes(
    store: Store, namespace: str, raw: Any, owner: str | None
) -> None:
    async with store.memory(namespace, KEEPING) as memory:
        session = memory.session("a", owner=owner)
        await session.append(chat_message(1), chat_message(2), pin=True)
        await session.append(*map(chat_message, range(3, 40)), merge={"a": 1}, id="b")
        assert await summarize(memory) == 1
        before = await read_namespace(raw, namespace)
        for name, row in OPERATIONS.items():
            if name == "append with confirm" and is_embedded(raw):  # the embedded store has no replicas
                continue
            with pytest.raises(OwnerMismatch) as refused:
                await row.call(memory.session("a", owner="bob"))
            check_refusal(refused, name)
        assert await read_namespace(raw, namespace) == before


def test_every_method_of_the_blocking_session_is_refused(namespace: str) -> None:
    with blocking.Memory.connect("memory://", namespace=namespace) as memory:
        memory.session("a", owner="ann").append(chat_message(1), chat_message(2))
        for name, row in OPERATIONS.items():
            if name == "append with confirm":  # the embedded store has no replicas
                continue
            with pytest.raises(OwnerMismatch) as refused:
                row.call(memory.session("a", owner="bob"))
            check_refusal(refused, name)
        assert memory.session("a").info().total_messages == 2


async def test_recall_over_an_owner_reads_nothing_of_the_session(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        await memory.session("a", owner="ann").append(chat_message(1))
        theirs = memory.session("a", owner="bob")
        assert await theirs.recall(chat_message(1)["content"], scope="owner") == []
        with pytest.raises(OwnerMismatch):
            await theirs.append_and_read(chat_message(1), recall=100, recall_scope="owner")


async def test_the_owner_and_a_handle_without_one_open_it_and_a_missing_session_reads_as_empty(
    store: Store, namespace: str
) -> None:
    async with store.memory(namespace) as memory:
        await memory.session("a", owner="ann @home").append(chat_message(1))
        for owner in ("ann @home", None):
            session = memory.session("a", owner=owner)
            context = await session.append_and_read(chat_message(2))
            assert (await session.read()).last_seq == context.last_seq
        missing = memory.session("b", owner="bob")
        assert not (await missing.read()).messages
        assert not await missing.exists()
        assert not await missing.clear()


async def test_who_begins_a_cleared_session_owns_it(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        theirs, mine = memory.session("a", owner="ann"), memory.session("a", owner="bob")
        await theirs.append(chat_message(1))
        await theirs.clear()
        await mine.merge({"a": 1})
        with pytest.raises(OwnerMismatch):
            await theirs.state()


async def test_a_broken_state_of_another_owner_is_refused_and_a_lost_one_begun_anew(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace) as memory:
        await memory.session("a", owner="ann").append(chat_message(1))
        keys = memory.store.keys.session("a")
        for change in (raw.hset(keys.state, "counters", "broken"), raw.hdel(keys.state, "counters")):
            await change
            before = await read_namespace(raw, namespace)
            with pytest.raises(OwnerMismatch):
                await memory.session("a", owner="bob").append(chat_message(1))
            assert await read_namespace(raw, namespace) == before
        await raw.delete(keys.state)
        assert (await memory.session("a", owner="bob").append(chat_message(1))).created
