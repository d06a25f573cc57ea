"""Recall by meaning: a question finds an answer in other words, and no fault of the embedder fails the turn."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import Any

import pytest
from recall.test_recall import create_summarised_session, seqs, trips_of
from support.checks import Panic, until
from support.embedders import Words
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store
from support.writers import Echo, chat_message, fill

from benchmarks.remembered.dated import dated
from benchmarks.remembered.evidence import tell
from redismem import InvalidSettings, Memory, Settings
from redismem.blocking import memory as blocking
from redismem.events import Event
from redismem.inspection.check import check_session
from redismem.session.session import Session
from redismem.workers.summaries import Worker

FACTS = {3: "My dog Biscuit sleeps in the kitchen.", 40: "My sister is a doctor in Leeds."}
QUESTION = "Which room has the hound?"
FEW = {"shards": 2, "embed_timeout_s": 20}


def open_with(store: Store, namespace: str, embed: Any = None, **changed: Any) -> Any:
    return store.memory(namespace, Settings(**FEW | changed), embed=embed or Words())


async def first(session: Session, query: str = QUESTION) -> list[int]:
    return seqs(await session.recall(query, limit=1))


async def test_other_words_are_found_with_an_embedder_and_not_without(store: Store, namespace: str) -> None:
    words = Words()
    async with open_with(store, namespace, words) as memory:
        session = await create_summarised_session(memory, FACTS)
        assert await check_session(memory.store, "a") == []
        asked_count = len(words.asked)
        assert await first(session) == [2, 3, 4]
        assert await first(session, "the physician") == [39, 40, 41]
        assert words.asked[asked_count:] == [[QUESTION], ["the physician"]]
        context = await session.append_and_read({"role": "user", "content": QUESTION}, recall=100)
        assert 3 in seqs(context.recalled)
        assert await first(session, "") == []
    async with store.memory(namespace, Settings(shards=2)) as memory:
        session = memory.session("a")
        assert await first(session) == []
        assert await first(session, "Biscuit") == [2, 3, 4], "the words alone"


class Chance:
    """An embedder that draws a vector for each text."""

    async def __call__(self, texts: list[str]) -> list[list[float]]:
        return [[chosen.gauss() for _ in range(32)] for chosen in map(random.Random, texts)]


async def test_a_useless_embedder_changes_nothing_that_the_words_find(namespace: str) -> None:
    told = dated("en", 240)
    found: list[list[list[int]]] = []
    for embed in (None, Chance()):
        settings = Settings(shards=1, threshold=4, recent_limit=2, embed_timeout_s=20)
        async with Memory.connect("memory://", namespace=namespace, settings=settings, embed=embed) as memory:
            session = await tell(memory, told)
            texts = [question.text for question in told.questions[:40]]
            found.append([seqs(await session.recall(text, max_tokens=350)) for text in texts])
            cached = memory.recall_cache.get(session.id)
            assert cached is not None
            assert bool(cached.vectors) is bool(embed)
            assert cached.trusts_vectors() is (embed is None)
    assert found[0] == found[1]


async def test_words_and_meaning_are_fused(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        facts = {3: "The dog Biscuit.", 40: "The dog there.", 70: "Biscuit likes cold water in summer."}
        session = await create_summarised_session(memory, facts)
        assert await first(session, "hound Biscuit") == [2, 3, 4], "near in both rankings"


async def test_it_takes_no_round_trip_more(store: Store, namespace: str) -> None:
    for max_recalled_bytes, trips in ((0, [2, 2]), (10_000_000, [2, 1, 1])):
        words = Words()
        async with open_with(store, namespace, words, max_recalled_bytes=max_recalled_bytes) as memory:
            session = memory.session("new")
            await session.append(chat_message(1))
            with trips_of(memory) as sent:
                await session.append_and_read({"role": "user", "content": QUESTION}, recall=500)
            assert len(sent) == 1
            session = await create_summarised_session(memory, FACTS)
            for wanted in trips:
                with trips_of(memory) as sent:
                    context = await session.append_and_read({"role": "user", "content": QUESTION}, recall=500)
                assert 3 in seqs(context.recalled)
                assert len(sent) == wanted
            await session.clear()


@pytest.mark.parametrize("how", ["down", "cancelled", "panicking", "late", "nonsense"])
async def test_without_a_vector_the_words_decide(
    store: Store, namespace: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.recall.embedder._FIRST_PAUSE_S", 60.0)  # a busy machine may take a second
    told: list[Event] = []
    words = Words()
    async with store.memory(namespace, Settings(**FEW), embed=words, on_event=told.append) as memory:
        session = await create_summarised_session(memory, FACTS)
        embedder: Any = memory.store.embedder
        assert embedder is not None
        embedder._question_timeout_s = 0.01 if how == "late" else 20
        words.is_down = how in ("down", "cancelled", "panicking")
        words.fault = {"cancelled": asyncio.CancelledError(), "panicking": Panic()}.get(how, words.fault)
        words.gate = asyncio.Event() if how == "late" else None
        words.dimensions = 5_000 if how == "nonsense" else 256
        context = await session.append_and_read({"role": "user", "content": "Biscuit? " + QUESTION}, recall=200)
        assert 3 in seqs(context.recalled)
        (event,) = [each for each in told if each.op == "embed"]
        assert event.outcome == ("ModelFailed" if how == "nonsense" else "ProviderUnavailable")
        assert event.session
        context = await session.append_and_read({"role": "user", "content": "Biscuit"}, recall=200)
        assert 3 in seqs(context.recalled), "at once, if it has just failed"
        outcomes = [each.outcome for each in told if each.op == "embed"]
        assert outcomes[1:] == (["ModelFailed"] if how == "nonsense" else ["nothing"])


async def test_a_turn_does_not_wait_for_a_vector_that_nobody_needs(store: Store, namespace: str) -> None:
    words = Words()
    words.gate = asyncio.Event()  # never set: a call that waits for it waits 20 seconds
    async with open_with(store, namespace, words, embed_timeout_s=30) as memory:
        session = memory.session("new")
        async with asyncio.timeout(25):
            for _ in range(3):
                context = await session.append_and_read({"role": "user", "content": QUESTION}, recall=500)
                assert list(context.recalled) == []
        assert words.asked == [], "no vector is requested either"


async def test_vectors_of_another_model_or_size_are_not_mixed(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace, Words(name="one")) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        assert await first(session) == [2, 3, 4]
    async with open_with(store, namespace, Words(name="another")) as memory:
        assert await first(memory.session("a")) == []
    larger = Words(300, name="one")
    async with open_with(store, namespace, larger) as memory:
        await memory.store.agreement.override_record("one")
        session = memory.session("a")
        assert await first(session) == []
        assert await first(session, "Biscuit") == [2, 3, 4]
        for _ in range(2):  # eight blocks each
            await fill(session, 11)
            await Worker(memory.store, Echo()).drain()
        for _ in range(4):  # a question looks for three blocks'
            found = await first(session)
        assert found == [2, 3, 4], "later commits have made them anew"
        assert await check_session(memory.store, "a") == []
        sizes = {len(value) for field, value in (await raw.hgetall(keys.originals)).items() if field[:1] == b"v"}
        assert min(size for size in sizes) > 300


@pytest.mark.parametrize("theirs", [{"dimensions": 300}, {"name": "another"}], ids=["dimensions", "model"])
async def test_two_embedders_do_not_undo_each_others_vectors(
    store: Store, namespace: str, raw: Any, caplog: pytest.LogCaptureFixture, theirs: dict[str, Any]
) -> None:
    ours, other_words = Words(), Words(**theirs)
    async with open_with(store, namespace, ours) as memory, open_with(store, namespace, other_words) as other:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        workers = [Worker(each.store, Echo()) for each in (memory, other)]

        async def drain(number: int) -> None:
            await fill(session, 11)
            await workers[number].drain()

        async def full_blocks() -> dict[bytes, bytes]:
            fields = (await raw.hgetall(keys.originals)).items()
            return {name: vectors for name, vectors in fields if name in (b"v0", b"v1", b"v2")}

        before = await full_blocks()
        for turn in range(6):
            await drain(turn % 2)
        assert await full_blocks() == before != {}
        # Until a worker knows the dimensions of its vectors, it has to ask: for one block.
        assert len(other_words.asked) <= (2 if "dimensions" in theirs else 0)
        assert await first(session) == [2, 3, 4]
        (warning,) = [text for text in caplog.messages if "embeds nothing with" in text]
        assert f"by words of 256 dimensions, so this worker embeds nothing with {other_words.name}" in warning
        # An operator changes the embedder.
        await other.store.agreement.override_record(other_words.name)
        counts = len(ours.asked), len(other_words.asked)
        for number in (1, 0, 1, 0):
            await drain(number)
        assert (len(ours.asked), len(other_words.asked) > counts[1]) == (counts[0], True)
        assert "so this worker embeds nothing with words of 256 dimensions" in caplog.text


async def test_foreign_vectors_cost_only_themselves(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        await raw.hset(keys.originals, "v0", "foreign")
        assert 3 not in await first(session)
        assert await first(session, "Biscuit") == [2, 3, 4]
        assert await first(session, "physician") == [39, 40, 41]
        assert "vectors of block 0" in str(await check_session(memory.store, "a"))
        assert len(await session.messages(include_originals=True)) == 120
        for _ in range(2):
            await fill(session, 11)
            await Worker(memory.store, Echo()).drain()
        assert await check_session(memory.store, "a") == [], "they were made anew"
        assert await first(session) == [2, 3, 4]
        await raw.hset(keys.originals, "v99", "foreign")
        assert "other fields" in str(await check_session(memory.store, "a"))


async def test_they_go_with_their_messages(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        assert await first(session) == [2, 3, 4]
        assert await session.prune(3)
        assert await first(session) == []
        assert not await raw.exists(keys.originals)
        await session.clear()
        session = await create_summarised_session(memory, FACTS)
        assert await first(session) == [2, 3, 4]
        assert await raw.pexpiretime(keys.originals) == (await session.info()).expires_ms
        await session.clear()
        assert await first(session) == []
        assert not await raw.exists(keys.originals)


async def test_what_a_changed_message_meant_is_forgotten(store: Store, namespace: str, raw: Any) -> None:
    async with open_with(store, namespace) as memory:
        session, worker, keys = memory.session("a"), Worker(memory.store, Echo()), memory.store.keys.session("a")
        await session.append({"role": "user", "content": "The dog sleeps in the kitchen."}, pin=True)
        await fill(session, 40)
        await worker.drain()
        assert await raw.hexists(keys.originals, "v0")
        await session.replace(1, {"role": "user", "content": "The car stands in the garage."})
        assert not await raw.hexists(keys.originals, "v0")
        await session.unpin(1)
        await fill(session, 11)
        await worker.drain()
        assert await first(session, "automobile") == [1, 2]
        assert await first(session, "hound") == []


async def test_vectors_that_come_later_are_seen(store: Store, namespace: str) -> None:
    words = Words()
    async with open_with(store, namespace, words) as memory:
        words.is_down = True
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        for seq in range(1, 121):
            await session.append({"role": "user", "content": FACTS.get(seq, f"message {seq}")})
        await worker.drain()
        words.is_down = False
        assert await first(session) == []
        await fill(session, 11)
        embedder: Any = memory.store.embedder
        assert embedder is not None
        embedder._work.record_success("words")
        await worker.drain()
        for _ in range(8):  # a question looks for three blocks' at a time
            await session.recall(QUESTION, limit=1)
        assert await first(session) == [2, 3, 4]


async def test_a_long_conversation_is_searched_within_bounds(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, max_window_count=10_000) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        for first_seq in range(1, 1_501, 500):
            await session.append(*(chat_message(seq) for seq in range(first_seq, first_seq + 500)))
            await worker.drain()
        await session.append({"role": "user", "content": FACTS[3]})
        for _ in range(8):
            await fill(session, 11)
            await worker.drain()
        assert 1501 in await first(session)


def test_a_blocking_memory_recalls_the_same(redis_server: RedisServer, namespace: str) -> None:
    words, settings = Words(), Settings(**FEW, **PATIENCE, tick_s=0.05)
    url = redis_server.url
    with blocking.Memory.connect(url, namespace=namespace, settings=settings, embed=words, workers=True) as memory:
        session = memory.session("a")
        for seq in range(1, 41):
            session.append(chat_message(seq) | ({"content": FACTS[3]} if seq == 3 else {}))

        async def is_found() -> bool:
            return seqs(session.recall(QUESTION, limit=1)) == [2, 3, 4]

        asyncio.run(until(is_found))
    with blocking.Memory.connect(url, namespace=namespace, settings=settings) as memory:
        assert seqs(memory.session("a").recall(QUESTION, limit=1)) == []
        memory.session("a").clear()


def test_nothing_of_it_is_loaded_without_an_embedder(redis_server: RedisServer, namespace: str) -> None:
    program = """
import asyncio, sys
from redismem import Memory, blocking
from redismem.workers.summaries import Worker
from redismem.workers.strategies import Trim

async def main():
    async with Memory.connect(sys.argv[1], namespace=sys.argv[2]) as memory:
        session = memory.session("a")
        for number in range(40):
            await session.append({"role": "user", "content": f"message {number}"})
        await Worker(memory.store, Trim()).drain()
        assert await session.recall("message 3")
        await session.append_and_read({"role": "user", "content": "message 4"}, recall=100)
        await session.clear()

asyncio.run(main())
rooms = {"recall.nearest", "recall.embedder", "workers.embedding", "blocking.embedder"}
loaded = {"numpy", *(f"redismem.{room}" for room in rooms)}
print(sorted(loaded & set(sys.modules)))
"""
    words = [sys.executable, "-c", program, redis_server.url, namespace]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert ran.stdout == "[]\n"  # the embedded store's fakeredis imports numpy if there is one


def test_what_is_no_embedder_is_refused() -> None:
    for wanted in ("anthropic:model", "openai:", 7):
        with pytest.raises(InvalidSettings, match=r"embed|needs its name"):
            Memory.connect("memory://", embed=wanted)  # type: ignore[arg-type]
        with pytest.raises(InvalidSettings, match=r"embed|needs its name"):
            blocking.Memory.connect("memory://", embed=wanted)  # type: ignore[arg-type]
