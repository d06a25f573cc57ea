"""Misbehaving embedders of a caller: the turn goes on, and no log quotes their texts.

tests/workers/test_vectors.py has the tests for workers.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from recall.test_recall import create_summarised_session, seqs
from support.checks import CANARY, Panic, until
from support.embedders import Words
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store

from redismem import Memory, Settings
from redismem.blocking import memory as blocking
from redismem.blocking.embedder import BlockingEmbedder
from redismem.errors import ProviderUnavailable
from redismem.recall.embedder import Embedder

FACTS = {3: f"My dog Biscuit {CANARY} sleeps in the kitchen."}
QUESTION = {"role": "user", "content": "Where does Biscuit sleep?"}
LONG_S = 30
"""A wait that counts as endless."""


class Deaf(Words):
    """An embedder that ignores cancellation until its gate opens, then raises an error that quotes the texts."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        if self.gate is None:
            return await super().__call__(texts)
        asyncio.get_running_loop().call_later(LONG_S, self.gate.set)
        self.asked.append(texts)
        while not self.gate.is_set():
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                continue
        self.ended.set()
        raise Panic(CANARY)


@pytest.fixture(autouse=True)
def nothing_is_quoted(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check the logs: no quoted text, and no asyncio error that was never retrieved."""
    yield
    gc.collect()
    assert CANARY not in caplog.text
    assert "never retrieved" not in caplog.text


async def make_deaf(memory: Memory, words: Deaf, timeout_s: float) -> asyncio.Event:
    embedder: Any = memory.store.embedder
    assert embedder is not None
    embedder._question_timeout_s = timeout_s
    words.gate = asyncio.Event()
    return words.gate


async def test_nobody_waits_for_one_that_ignores_that_it_is_cancelled(store: Store, namespace: str) -> None:
    words = Deaf()
    async with store.memory(namespace, Settings(shards=2), embed=words) as memory:
        session = await create_summarised_session(memory, FACTS)
        gate = await make_deaf(memory, words, 0.01)
        context = await session.append_and_read(QUESTION, recall=200)
        assert 3 in seqs(context.recalled), "by the words"
        assert not gate.is_set(), "the turn has not waited for it"
        gate.set()
        await words.ended.wait()


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_turn_is_cancelled_whatever_its_embedder_does(store: Store, namespace: str, is_known: bool) -> None:
    words = Deaf()
    async with (
        store.memory(namespace, Settings(shards=2), embed=words) as memory,
        store.memory(namespace, Settings(shards=2), embed=words) as other,
    ):
        session = await create_summarised_session(memory, FACTS)
        await session.recall("Biscuit")
        place = memory if is_known else other
        gate = await make_deaf(place, words, 2 * LONG_S)
        asked_count = len(words.asked)
        turn = asyncio.create_task(place.session("a").append_and_read(QUESTION, recall=200))

        async def is_asked() -> bool:
            return len(words.asked) > asked_count

        await until(is_asked)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert not gate.is_set(), "at once"
        gate.set()
        await words.ended.wait()


@pytest.mark.parametrize("kind", [asyncio.CancelledError, Panic])
def test_without_an_event_loop_it_fails_no_recall_either(
    redis_server: RedisServer, namespace: str, kind: type[BaseException]
) -> None:
    words, settings = Words(), Settings(shards=2, tick_s=0.05, **PATIENCE)
    with blocking.Memory.connect(
        redis_server.url, namespace=namespace, settings=settings, embed=words, workers=True
    ) as memory:
        session = memory.session("a")
        for text in [FACTS[3]] + ["something else"] * 39:
            session.append({"role": "user", "content": text})

        async def has_vectors() -> bool:
            session.recall("the hound", limit=1)
            return ["the hound"] in words.asked

        asyncio.run(until(has_vectors))
        words.is_down, words.fault = True, kind(CANARY)
        assert 1 in seqs(session.recall("Biscuit", limit=1))
        session.clear()


def test_closing_ends_a_question_that_another_thread_waits_for() -> None:
    """Otherwise the thread would wait for an event loop that has stopped."""
    words = Words()
    words.gate = asyncio.Event()
    embedder = BlockingEmbedder(lambda: Embedder(words, "words", LONG_S))
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            asyncio.run(BlockingEmbedder.question(embedder, "the hound"))
        except RuntimeError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()

    async def is_asked() -> bool:
        return words.asked == [["the hound"]]

    asyncio.run(until(is_asked))
    asyncio.run(embedder.aclose())
    asking.join(60)
    assert not asking.is_alive()
    assert [str(error) for error in failures] == ["this memory is closed"]


async def test_an_embedder_that_asks_for_a_pause_is_left_alone_for_so_long() -> None:
    now_s, words = [0.0], Words()
    embedder = Embedder(words, "words", LONG_S, clock_s=lambda: now_s[0])
    for wanted_s, pause_s in ((60.0, 60.0), (None, 2.0), (10_000_000.0, 3_600.0), (0.0, 8.0)):
        words.is_down, words.fault = True, ProviderUnavailable("x", reason="429", retry_after_s=wanted_s)
        with pytest.raises(ProviderUnavailable):
            await embedder.question("the hound")
        words.is_down = False
        asked_count, begun_s = len(words.asked), now_s[0]
        for passed_s in (0.0, pause_s / 2, pause_s - 0.1):
            now_s[0] = begun_s + passed_s
            assert await embedder.question("the hound") is None
        assert len(words.asked) == asked_count
        now_s[0] = begun_s + pause_s
    assert await embedder.question("the hound") is not None
