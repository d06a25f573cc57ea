"""The embedder that works offline: it finds other words with the weights in its wheel, and opens no connection."""

from __future__ import annotations

import asyncio
import importlib.machinery
import importlib.util
import socket
from typing import Any

import numpy as np
import pytest
from recall.test_recall import create_summarised_session, seqs
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import InvalidSettings, Memory, Settings
from redismem.blocking import memory as blocking
from redismem.recall import wordllama
from redismem.recall.wordllama import DIMENSIONS, WordLlama

FACTS = {3: "We sold our automobile to a neighbour.", 40: "My sister is a physician in Leeds."}
QUESTION = {"role": "user", "content": "Who bought the car?"}


def settings(**changed: Any) -> Settings:
    return Settings(shards=2, embed_timeout_s=20, **PATIENCE, **changed)


async def test_a_car_is_an_automobile_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    wordllama._load.cache_clear()
    async with Memory.connect("memory://", settings=settings(), embed="wordllama") as memory:
        session = await create_summarised_session(memory, FACTS)
        assert seqs(await session.recall("car", limit=1)) == [2, 3, 4]
        context = await session.append_and_read(QUESTION, recall=200)
        assert 3 in seqs(context.recalled)
    async with Memory.connect("memory://", settings=settings()) as memory:
        session = await create_summarised_session(memory, FACTS)
        assert await session.recall("car", limit=1) == []


async def test_a_blocking_memory_finds_it_too(redis_server: RedisServer, namespace: str) -> None:
    given = settings(embed="wordllama", embed_dimensions=64)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=given) as memory:
        await create_summarised_session(memory, FACTS)

    def ask() -> list[int]:
        with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=given) as memory:
            return seqs(memory.session("a").recall("car", limit=1))

    assert await asyncio.to_thread(ask) == [2, 3, 4]


async def test_any_text_has_a_vector_and_long_ones_take_linear_time() -> None:
    texts = ["", "\ud800 half an emoji", "a" * 6_000, "汽车", "car"]
    vectors = np.array(await WordLlama(64)(texts))
    assert vectors.shape == (5, 64)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx([0, 1, 1, 1, 1])
    whole = np.array(await WordLlama()(texts))
    cut = whole[1:, :64] / np.linalg.norm(whole[1:, :64], axis=1, keepdims=True)
    assert cut == pytest.approx(vectors[1:], abs=1e-3), "64 dimensions are the first of 256"
    assert {WordLlama(size).name for size in (0, *DIMENSIONS)} == {f"wordllama/{size}" for size in DIMENSIONS}


def test_a_wrong_name_or_size_is_refused_and_names_what_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(embed: Any, **changed: Any) -> str:
        with pytest.raises(InvalidSettings) as error:
            Memory.connect("memory://", settings=settings(**changed), embed=embed)
        return str(error.value)

    assert "openai:MODEL, gemini:MODEL, wordllama or" in refused("wordlama")
    assert "must be 64, 128, 256 or 0" in refused("wordllama", embed_dimensions=100)
    empty = importlib.machinery.ModuleSpec("wordllama", None, is_package=True)
    empty.submodule_search_locations = ["/nowhere"]
    monkeypatch.setattr(wordllama, "find_spec", lambda name: empty)
    assert "lacks tokenizers/" in refused("wordllama")
