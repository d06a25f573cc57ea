"""A damaged history stops no agent, and no agent gets the history of another person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from agent_framework import Message as FrameworkMessage
from agent_framework import WorkflowCheckpoint
from langchain_core.messages import HumanMessage
from llama_index.core.llms import ChatMessage
from support.stored import keys_of

from redismem import Memory, OwnerMismatch
from redismem.adapters.agent_framework import CheckpointStorage, HistoryProvider
from redismem.adapters.langchain import ChatMessageHistory
from redismem.adapters.langgraph import RedismemStore
from redismem.adapters.llama_index import ChatStore
from redismem.adapters.openai_agents import Session


class Adapter(NamedTuple):
    """The calls with which a framework writes and reads through its adapter."""

    make: Callable[..., Any]
    write: Callable[[Any], Awaitable[Any]]
    read: Callable[[Any], Awaitable[Any]]


ADAPTERS = {
    "agent framework": Adapter(
        lambda memory, **options: HistoryProvider(memory=memory, **options),
        lambda kept: kept.save_messages("a", [FrameworkMessage("user", ["x"])]),
        lambda kept: kept.get_messages("a"),
    ),
    "agent framework's checkpoints": Adapter(
        lambda memory, **options: CheckpointStorage("a", memory=memory, **options),
        lambda kept: kept.save(WorkflowCheckpoint("w", "h")),
        lambda kept: kept.list_checkpoints(workflow_name="w"),
    ),
    "langchain": Adapter(
        lambda memory, **options: ChatMessageHistory("a", memory, **options),
        lambda kept: kept.aadd_messages([HumanMessage("x")]),
        lambda kept: kept.aget_messages(),
    ),
    "langgraph": Adapter(
        lambda memory, **options: RedismemStore(memory=memory, **options),
        lambda kept: kept.aput(("a",), "k", {"x": 1}),
        lambda kept: kept.aget(("a",), "k"),
    ),
    "llama index": Adapter(
        lambda memory, **options: ChatStore(memory=memory, **options),
        lambda kept: kept.add_message("a", ChatMessage("x")),
        lambda kept: kept.get_messages("a"),
    ),
    "openai agents": Adapter(
        lambda memory, **options: Session("a", memory=memory, **options),
        lambda kept: kept.add_items([{"role": "user", "content": "x"}]),
        lambda kept: kept.get_items(),
    ),
}


async def damage(memory: Memory, raw: Any) -> None:
    """Damage the only session or record."""
    for key in await keys_of(raw, memory.store.keys.namespace):
        if b":messages:" in key:
            await raw.lset(key, 0, b"\xc1")
        elif b":record:" in key:
            await raw.hset(key, "", b"garbage")


@pytest.mark.parametrize("name", ADAPTERS)
async def test_an_agent_goes_on_after_damage(memory: Memory, raw: Any, name: str) -> None:
    adapter = ADAPTERS[name]
    await adapter.write(adapter.make(memory))
    await damage(memory, raw)
    assert not await adapter.read(adapter.make(memory))
    assert [key for key in await keys_of(raw, memory.store.keys.namespace) if b":quarantine" in key]
    await adapter.write(adapter.make(memory))
    assert await adapter.read(adapter.make(memory))


@pytest.mark.parametrize("name", ADAPTERS)
async def test_another_owner_is_refused(memory: Memory, name: str) -> None:
    adapter = ADAPTERS[name]
    await adapter.write(adapter.make(memory, owner="ann"))
    for call in (adapter.read, adapter.write):
        with pytest.raises(OwnerMismatch):
            await call(adapter.make(memory, owner="bob"))
    assert await adapter.read(adapter.make(memory, owner="ann"))
