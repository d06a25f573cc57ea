"""Vectors of kept messages: made behind the commits, which neither wait for them nor fail with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.checks import Panic, until
from support.embedders import Words
from support.provider_server import ProviderServer
from support.quarantined import quarantine_of
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message, fill

from redismem import Memory, Settings
from redismem.errors import ModelFailed
from redismem.inspection import quarantine
from redismem.inspection.check import check_session
from redismem.originals.blocks import BLOCK_COUNT, decode_block
from redismem.originals.vectors import Vectors, decode_vectors
from redismem.protocol.keys import SessionKeys
from redismem.recall.embedder import TEXT_CHARS, TEXTS_LIMIT
from redismem.workers.scheduler import Scheduler
from redismem.workers.strategies import Trim
from redismem.workers.summaries import Worker


def open_with(store: Store, namespace: str, words: Any, **changed: Any) -> Any:
    return store.memory(namespace, Settings(shards=2, **changed), embed=words)


async def vectors_of(raw: Any, keys: SessionKeys) -> dict[int, Vectors]:
    fields = await raw.hgetall(keys.originals)
    found = {int(field[1:]): decode_vectors(value) for field, value in fields.items() if field[:1] == b"v"}
    return {number: each for number, each in found.items() if each is not None}


def resume(memory: Memory) -> None:
    """End the embedder's pause."""
    embedder: Any = memory.store.embedder
    embedder._work.record_success("words")


async def test_each_message_is_given_once_and_has_a_vector(store: Store, namespace: str, raw: Any) -> None:
    words = Words()
    async with open_with(store, namespace, words, train_dictionaries=False) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Trim()), memory.store.keys.session("a")
        await session.append({"role": "user", "content": "yarn " * TEXT_CHARS}, {"role": "assistant", "content": ""})
        for _ in range(7):
            await fill(session, 7)
            await worker.drain()
        window = (await session.read()).first_seq
        given = [text for texts in words.asked for text in texts]
        assert len(given) == window - 1 - 1, "none twice, and nothing for the one without a text"
        assert max(map(len, given)) == TEXT_CHARS
        assert max(map(len, words.asked)) <= TEXTS_LIMIT
        found = await vectors_of(raw, keys)
        for number, each in found.items():
            first_seq, elements = decode_block(number, await raw.hget(keys.originals, number))
            assert (each.place, each.stop) == (first_seq - 16 * number - 1, first_seq - 16 * number - 1 + len(elements))
        assert len(found) == (window - 2) // 16 + 1
        assert found[0].scales[4:8] == bytes(4)
        assert found[0].scales[:4] != bytes(4)
        assert await check_session(memory.store, "a") == []


async def test_after_a_burst_every_block_has_vectors(store: Store, namespace: str, raw: Any) -> None:
    words = Words()
    async with open_with(store, namespace, words, train_dictionaries=False) as memory:
        sessions, worker = [memory.session(name) for name in ("a", "b")], Worker(memory.store, Trim())
        for session in sessions:
            await session.append(*(chat_message(seq) for seq in range(600)))
        await worker.drain()
        for session in sessions:
            first_seq = (await session.read()).first_seq
            found = await vectors_of(raw, memory.store.keys.session(session.id))
            assert sum(each.stop - each.place for each in found.values()) == first_seq - 1 > 560
        asked_count = len(words.asked)
        await fill(sessions[0], 11)
        await worker.drain()
        assert len(words.asked) - asked_count <= 3, "nothing is embedded twice"


async def test_no_summary_waits_for_an_embedder(store: Store, namespace: str, raw: Any) -> None:
    words = Words()
    words.gate = asyncio.Event()
    async with open_with(store, namespace, words) as memory:
        worker = Worker(memory.store, Echo())
        for name in ("a", "b", "c"):
            await fill(memory.session(name), 11)
        first = asyncio.create_task(worker.drain())

        async def are_summarised() -> bool:
            return all([(await memory.session(name).read()).summaries for name in ("a", "b", "c")])

        await until(are_summarised)
        await fill(memory.session("d"), 11)
        assert await worker.drain() == 1, "while the first still waits"
        assert not first.done()
        words.gate.set()
        await first
        for name in ("a", "b", "c", "d"):
            assert await vectors_of(raw, memory.store.keys.session(name))


@pytest.mark.parametrize("kind", [OSError, asyncio.CancelledError, Panic])
async def test_what_failed_is_made_when_the_embedder_is_back(
    store: Store,
    namespace: str,
    raw: Any,
    caplog: pytest.LogCaptureFixture,
    kind: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("redismem.recall.embedder._FIRST_PAUSE_S", 60.0)
    words = Words()
    words.is_down, words.fault = True, kind("canary-text")
    async with open_with(store, namespace, words) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 40, "canary-text")
        assert await worker.drain() == 1
        assert await check_session(memory.store, "a") == []
        assert len(words.asked) == 1
        await worker.drain()
        assert len(words.asked) == 1, "it is paused"
        words.is_down = False
        await worker.drain()
        assert await vectors_of(raw, keys) == {}
        resume(memory)
        await worker.stand_by()
        assert sorted(await vectors_of(raw, keys)) == [0, 1, 2]
        assert "canary-text" not in caplog.text
        assert f"words failed with {kind.__name__}" in caplog.text


async def test_what_another_worker_missed_is_made_with_a_later_commit(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, Settings(shards=2)) as memory:
        session = memory.session("a")
        await fill(session, 250)
        await Worker(memory.store, Echo()).drain()
    words = Words()
    async with open_with(store, namespace, words) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        for _ in range(2):
            await fill(session, 11)
            await worker.drain()
            kept_count = (await session.read()).first_seq - 1
            assert len(await vectors_of(raw, keys)) == -(-kept_count // BLOCK_COUNT)


async def test_a_text_that_the_embedder_refuses_costs_its_session_alone(
    store: Store, namespace: str, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    words = Words()
    words.failures = [ModelFailed("refused", reason="refused", permanent=True)]
    async with open_with(store, namespace, words) as memory:
        worker = Worker(memory.store, Echo())
        for name in ("a", "b"):
            await fill(memory.session(name), 11)
        assert await worker.drain() == 2
        found = [len(await vectors_of(raw, memory.store.keys.session(name))) for name in ("a", "b")]
        assert sorted(found) == [0, 1]
        assert "recall finds it by words only" in caplog.text


async def test_a_block_that_changed_meanwhile_gets_no_vectors(store: Store, namespace: str, raw: Any) -> None:
    words = Words()
    words.gate = asyncio.Event()
    async with open_with(store, namespace, words) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await session.append(chat_message(0), pin=True)
        await fill(session, 20)
        drain = asyncio.create_task(worker.drain())

        async def is_asked() -> bool:
            return bool(words.asked)

        await until(is_asked)
        await session.replace(1, {"role": "user", "content": "another"})
        words.gate.set()
        await drain
        assert await vectors_of(raw, keys) == {}
        await session.clear()
        await fill(session, 3)
        assert not await raw.exists(keys.originals)


async def test_a_scheduler_has_them_made_too_and_stops_at_once(store: Store, namespace: str, raw: Any) -> None:
    words = Words()
    options: dict[str, Any] = {"workers": lambda store: Scheduler(store, Echo(), stop_s=0.01)}
    async with store.memory(namespace, Settings(shards=2, tick_s=0.02), embed=words, **options) as memory:
        await fill(memory.session("a"), 11)

        async def is_made() -> bool:
            return bool(await vectors_of(raw, memory.store.keys.session("a")))

        await until(is_made)
        words.gate = asyncio.Event()
        await fill(memory.session("b"), 11)

        async def is_asked() -> bool:
            return len(words.asked) > 1

        await until(is_asked)


@pytest.mark.parametrize("provider", ["openai", "gemini"])
async def test_a_provider_makes_them_when_it_answers_again(
    redis_server: RedisServer, namespace: str, provider: str
) -> None:
    with ProviderServer() as server:
        given = {"embed_base_url": server.base_url, "model_allow_http": True, "embed_timeout_s": 20}
        settings = Settings(shards=2, deadline_s=60, reply_timeout_s=20, embed=f"{provider}:some-model", **given)
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
            session, worker = memory.session("a"), Worker(memory.store, Echo())
            await session.append({"role": "user", "content": "The dog sleeps in the kitchen."})
            await fill(session, 40)
            server.mode = "500"
            assert await worker.drain() == 1
            assert await session.recall("hound", limit=1) == []
            server.mode = "ok"
            resume(memory)
            await worker.drain()
            found = await session.recall("hound", limit=1)
            assert [message.seq for message in found] == [1, 2]
            assert {asked.provider for asked in server.asked} == {provider}
            await session.clear()


async def test_they_come_back_with_their_session_out_of_quarantine(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace, Words()) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await fill(session, 40)
        await worker.drain()
        before = await vectors_of(raw, keys)
        counters = await raw.hget(keys.state, "counters")
        await raw.hset(keys.state, "counters", "foreign")
        assert await session.set_aside()
        assert await vectors_of(raw, keys) == {}
        (state,) = [key async for key in raw.scan_iter(quarantine_of(keys) + b":*:state")]
        await raw.hset(state, "counters", counters)
        await quarantine.restore(memory.store, await quarantine.find(memory.store, "a", None))
        assert await vectors_of(raw, keys) == before
        assert await check_session(memory.store, "a") == []
