"""The SDK's encrypting and compacting sessions work on top of ours."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from agents import OpenAIResponsesCompactionSession
from agents.extensions.memory import EncryptedSession
from cryptography.fernet import Fernet
from support.compaction import needs_snapshots
from support.edited import summarize

from redismem import Memory
from redismem.adapters import openai_agents
from redismem.workers import planning

ITEMS: list[Any] = [{"role": "user", "content": f"secret {number}"} for number in range(14)]


async def test_an_encrypted_session_keeps_its_items_from_everybody_else(memory: Memory) -> None:
    below: Any = openai_agents.Session("a", memory=memory)
    session: Any = EncryptedSession("a", below, Fernet.generate_key().decode())
    await session.add_items(ITEMS)
    await summarize(memory)
    assert await session.get_items() == ITEMS
    assert await session.get_items(3) == ITEMS[-3:]
    assert await session.pop_item() == ITEMS[-1]
    stored = await memory.session("agents:session:a").tail(99)
    assert [set(message.to_openai()) for message in stored] == [{"__enc__", "v", "kid", "payload"}] * 13
    await session.clear_session()
    assert await session.get_items() == []


async def test_ciphertext_is_never_summarised(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[Any] = [{"role": "user", "content": f"secret {number}"} for number in range(41)]
    below: Any = openai_agents.Session("a", memory=memory, summarise=True)
    session: Any = EncryptedSession("a", below, Fernet.generate_key().decode())
    await session.add_items(items[:20])
    await summarize(memory)
    await session.add_items(items[20:])
    await summarize(memory)
    assert await session.get_items() == items
    assert (await memory.session("agents:session:a").info()).policy.keep_whole
    # An earlier release has summarised such a session.
    await session.clear_session()
    await session.add_items(items)
    monkeypatch.setattr(planning, "is_sealed", lambda _: False)
    assert await summarize(memory) > 0
    assert len((await memory.session("agents:session:a").read()).messages) < 41
    assert await session.get_items() == items


async def test_a_compacted_history_is_never_summarised(memory: Memory) -> None:
    session: Any = openai_agents.Session("a", memory=memory, summarise=True)
    items = [{"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}, *ITEMS]
    await session.add_items(items)
    await summarize(memory)
    assert await session.get_items() == items


@needs_snapshots
async def test_a_compaction_replaces_the_history_in_one_step(memory: Memory) -> None:
    below: Any = openai_agents.Session("a", memory=memory)
    compacted = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    compact = AsyncMock(return_value=SimpleNamespace(output=[compacted], usage=None))
    client: Any = SimpleNamespace(responses=SimpleNamespace(compact=compact))
    session = OpenAIResponsesCompactionSession("a", below, client=client, compaction_mode="input")
    await session.add_items(ITEMS)
    before = await memory.session("agents:session:a").read()
    await session.run_compaction({"force": True})
    assert await below.get_items() == [compacted]
    after = await memory.session("agents:session:a").read()
    assert after.epoch == before.epoch  # it was never cleared
