"""Recall caches and dictionaries, broken on purpose one line at a time: each fault must be noticed.

A fault is seeded in the text of one function. Text that is not there exactly once fails the test: a fault that is not
seeded must not count as caught. What notices it is a story that is told on the embedded store.
"""

from __future__ import annotations
import __future__

import inspect
import random
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from support.clock import Clock
from support.dictionaries import OTHER_WORDS, WORDS, make_message
from support.writers import Echo, chat_message

from redismem import Memory, RedismemError, Session, Settings
from redismem.inspection.check import check
from redismem.originals import phrases
from redismem.originals.blocks import dictionary_of
from redismem.originals.dictionaries import SETTLED_MS, Dictionary
from redismem.protocol.namespace import dictionaries
from redismem.protocol.session import leaving
from redismem.recall.cache import RecallCache
from redismem.recall.cached import CachedSession, SelectedMessages
from redismem.recall.postings import Postings
from redismem.recall.segments import Segment
from redismem.store import dictionaries as loading
from redismem.workers import dictionaries as training
from redismem.workers import samples
from redismem.workers.dictionaries import Trainer
from redismem.workers.summaries import Worker

FACT = {"role": "user", "content": "My dog Biscuit came from the shelter in Leeds."}
ASKED = {"Biscuit": "dog Biscuit shelter", "Zora": "parrot Zora", "Rex": "cat Rex", "Otto": "Otto"}


class Namespace:
    """A namespace of the embedded store, with any number of processes."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.clock = Clock()
        self.raw = client

    def process(self, **changed: Any) -> Memory:
        settings = Settings(shards=2, max_summary_bytes=1024 * 1024, threshold=4, recent_limit=4, **changed)
        return Memory.connect(client=self._client, namespace="n", settings=settings, clock=self.clock)


@asynccontextmanager
async def namespace() -> AsyncIterator[Namespace]:
    from fakeredis import FakeAsyncRedis

    async with FakeAsyncRedis() as client:
        yield Namespace(client)


async def check_recall(there: Namespace, process: Memory, session: Session) -> None:
    """A process with a warm cache finds the same as one without, and the same as the originals."""
    first_seq = (await session.info()).first_seq
    kept = {each.seq: each for each in await session.messages(include_originals=True) if each.seq < first_seq}
    fresh = there.process()
    for word, query in ASKED.items():
        found = await process.session("a").recall(query, limit=24)
        assert [each.to_openai() for each in found] == [kept[each.seq].to_openai() for each in found]
        wanted = {seq for seq, each in kept.items() if word in str(each.content) and not each.pinned}
        assert wanted <= {each.seq for each in found}, query
        assert wanted or not any(word in str(each.content) for each in found)
        anew = await fresh.session("a").recall(query, limit=24)
        assert [each.seq for each in anew] == [each.seq for each in found]
    known, read = process.recall_cache.get("a"), fresh.recall_cache.get("a")
    assert known is not None
    assert read is not None
    assert known.postings.count == read.postings.count


async def recalls(there: Namespace) -> None:
    """Whatever other processes do, one with a warm cache finds the current originals."""
    process, other, without = there.process(), there.process(), there.process(keep_originals=False)
    session = other.session("a")
    worker = Worker(other.store, Echo())
    looked_at = partial(check_recall, there, process, session)
    await session.append({"role": "user", "content": "The cat is Tom."}, pin=True)
    for number in range(2, 60):
        await session.append(FACT if number == 3 else chat_message(number, "Otto" if number > 40 else "message"))
        if number % 9 == 0 or 40 < number < 60:
            await worker.drain()
            await looked_at()
    await session.append({"role": "user", "content": "The parrot Zora ate a fig."}, *map(chat_message, range(61, 81)))
    await worker.drain()
    await looked_at()
    await session.replace(1, {"role": "user", "content": "The cat is Rex, and Rex is a cat."})
    await session.unpin(1)
    await looked_at()
    await without.store.agreement.override_record()
    for keeper in (without, other):
        await session.append(*map(chat_message, range(20)))
        await Worker(keeper.store, Echo()).drain()
    await looked_at()
    await session.append(*map(chat_message, range(40)), FACT, *map(chat_message, range(9)))
    await worker.drain()
    await looked_at()
    await session.clear()
    await session.append(*(FACT if number == 9 else chat_message(number) for number in range(60)))
    await worker.drain()
    await looked_at()


async def forgets(there: Namespace) -> None:
    """Originals dropped by another process leave the cache, even without a partial block that would show it."""
    process, other, without = there.process(), there.process(), there.process(keep_originals=False)
    session = other.session("a")
    await session.append(*(FACT if number == 3 else chat_message(number) for number in range(1, 37)))
    await Worker(other.store, Echo()).drain()
    assert (await session.info()).first_seq == 33
    await check_recall(there, process, session)
    await without.store.agreement.override_record()
    for keeper in (without, other):
        await session.append(*map(chat_message, range(20)))
        await Worker(keeper.store, Echo()).drain()
    await check_recall(there, process, session)


async def keeps(there: Namespace) -> None:
    """The cache is bounded, whatever is recalled."""
    process = there.process(max_recalled_sessions=2)
    worker = Worker(process.store, Echo())
    for name in "abcab":
        await process.session(name).append(*map(chat_message, range(30)))
        await worker.drain()
        await process.session(name).recall("message")
        hot = process.recall_cache
        kept = [each for other in "abc" if (each := hot.get(other)) is not None]
        assert len(kept) == len(hot) <= 2
        assert hot.size_bytes == sum(each.size_bytes for each in kept)
        assert hot.get(name) is not None


class Telling:
    """The messages appended to a namespace's sessions, and a check that they can be read."""

    def __init__(self, there: Namespace, process: Memory) -> None:
        self._there = there
        self._process = process
        self.worker = Worker(process.store, Echo())
        self.told: dict[str, list[Any]] = {}

    async def tell(self, name: str, count: int = 40, words: list[str] = WORDS) -> None:
        before = self.told.setdefault(name, [])
        seqs = range(len(before), len(before) + count)
        news = [make_message(at, f"mine{name}") if words is WORDS else other_words(at, words) for at in seqs]
        before += [each["content"] for each in news]
        await self._process.session(name).append(*news)
        await self.worker.drain()

    async def check(self) -> None:
        for name, texts in self.told.items():
            session = self._there.process().session(name)
            assert [each.content for each in await session.messages(include_originals=True)] == texts
        assert [found async for found in check(self._there.process().store)] == []

    async def dictionaries_of(self, name: str) -> set[int]:
        return {dictionary_of(block) or 0 for block in await blocks(self._there, self._process, name)}


async def compresses(there: Namespace) -> None:
    """A namespace that trains, loses and regains dictionaries: nothing is lost, and none has a word of one session."""
    process, other, key = there.process(), there.process(), there.process().store.keys.dictionaries
    telling_on = Telling(there, process)
    tell = telling_on.tell
    for name in "abcdef":
        await tell(name)
    assert await there.raw.hkeys(key) == [b"1"]
    first = await there.raw.hget(key, "1")
    assert b"mine" not in first
    telling_on.worker = Worker(other.store, Echo())
    await tell("g", 80)
    assert await telling_on.dictionaries_of("g") == {0}
    there.clock.now_ms += SETTLED_MS
    await tell("g", 21)
    await tell("g", 20)
    assert await telling_on.dictionaries_of("g") == {0, 1}
    await telling_on.check()
    await there.raw.delete(key)
    there.clock.now_ms += SETTLED_MS
    await tell("h")
    assert await there.raw.hgetall(key) == {b"1": first}
    late = Dictionary(1, 5, first[8:])
    assert not await other.store.run(dictionaries.add(other.store.keys, late))
    assert await there.raw.hget(key, "1") == first
    telling_on.worker = Worker(process.store, Echo())
    there.clock.now_ms += 86_400_000
    for name in "ijklmn":
        await tell(name, 50, OTHER_WORDS)
    assert sorted(await there.raw.hkeys(key)) == [b"1", b"2"]
    there.clock.now_ms += SETTLED_MS
    await tell("o")
    assert await telling_on.dictionaries_of("o") == {2}
    await telling_on.check()
    await loses_one(there, key, telling_on.told["g"])


async def loses_one(there: Namespace, key: bytes, told: list[Any]) -> None:
    """The dictionary is replaced by another: only blocks compressed with it are skipped."""
    await there.raw.hset(key, "1", b"\0" * 8 + (await there.raw.hget(key, "2"))[8:])
    gone = await there.process().session("g").messages(include_originals=True)
    assert {each.content for each in gone} < set(told)
    assert not [name async for name in there.raw.scan_iter("*quarantine*")]


def other_words(number: int, words: list[str]) -> dict[str, Any]:
    return {"role": "user", "content": " ".join(random.Random(number).choices(words, k=14))}


async def blocks(there: Namespace, process: Memory, name: str) -> list[bytes]:
    found = await there.raw.hgetall(process.store.keys.session(name).originals)
    return [block for field, block in found.items() if field.isdigit()]


class Mutant(NamedTuple):
    owner: Any
    name: str
    fault: str
    sound: str
    broken: str
    story: Callable[[Namespace], Awaitable[None]]


MUTANTS = [
    Mutant(CachedSession, "is_current", "blocks that are gone", "is_there = ", "is_there = True or ", forgets),
    Mutant(
        CachedSession,
        "is_current",
        "messages that were replaced",
        "(epoch, version,",
        "(epoch, self._version,",
        recalls,
    ),
    Mutant(
        CachedSession, "add_signatures", "taken up again and again", "self.stop = max(self.stop, stop)", "pass", recalls
    ),
    Mutant(CachedSession, "add_signatures", "nothing to know it by", "self._last = number, encoded", "pass", forgets),
    Mutant(CachedSession, "grow", "never grows", "(number, encoded) == self._growing", "self._growing", recalls),
    Mutant(CachedSession, "missing_blocks", "a block as it was", "block.is_whole", "True", recalls),
    Mutant(SelectedMessages, "_decode", "its neighbour", "block.elements[seq -", "block.elements[-1 + seq -", recalls),
    Mutant(CachedSession, "missing_blocks", "one short", ">= window_seq", ">= window_seq - 1", recalls),
    Mutant(Postings, "segments", "not the block that grows", "growing is None", "True", recalls),
    Mutant(Segment, "add", "the last of its blocks alone", 'get(hashed, b"") + packed', "packed", recalls),
    Mutant(Segment, "_collect", "in another block", "position * BLOCK_COUNT", "(position + 1) * BLOCK_COUNT", recalls),
    Mutant(RecallCache, "_put", "without end", "len(self._sessions) > self._max_count", "False", keeps),
    Mutant(RecallCache, "_put", "the newest goes", "last=False", "last=True", keeps),
    Mutant(RecallCache, "_put", "what has gone counts", "self.size_bytes -= oldest.counted_bytes", "pass", keeps),
    Mutant(phrases, "_count_people", "words of one", ">= PEOPLE_COUNT", ">= 1", compresses),
    Mutant(training, "_is_settled", "used at once", ">= SETTLED_MS", ">= 0", compresses),
    Mutant(Trainer, "_load_settled", "the oldest for ever", "max(settled", "min(settled", compresses),
    Mutant(Trainer, "_sync", "lost for ever", "store.dictionaries.keys() - set(listing.versions)", "()", compresses),
    Mutant(Trainer, "_train", "over an older one", "newest + 1", "max(1, newest)", compresses),
    Mutant(dictionaries, "add", "over an older one", "HSETNX", "HSET", compresses),
    Mutant(leaving, "_elements_before", "without its dictionary", "*block, begun.dictionaries", "*block", compresses),
    Mutant(loading, "load_versions", "whatever was read", "store.dictionaries.update(loaded)", "pass", compresses),
]


def seeded(mutant: Mutant) -> Any:
    """Return the function with the fault."""
    function = getattr(mutant.owner, mutant.name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.sound) == 1, f"{mutant.name} has {mutant.sound!r} {source.count(mutant.sound)} times"
    broken = source.replace(mutant.sound, mutant.broken)
    scope: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    module = sys.modules[function.__module__].__dict__
    exec(compile(broken, mutant.name, "exec", flags=flags), module | {}, scope)
    return scope[mutant.name]


@pytest.fixture(autouse=True)
def _soon_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MIN_SAMPLE_BYTES", 10_000)
    monkeypatch.setattr(samples, "MIN_SESSIONS", 5)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.name}: {mutant.fault}")
async def test_a_fault_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutant.owner, mutant.name, seeded(mutant))
    with pytest.raises((AssertionError, RedismemError, LookupError, ValueError)):
        async with namespace() as there:
            await mutant.story(there)


def test_each_fault_has_its_place() -> None:
    """They are played at night, so a place that is gone is noticed here."""
    assert all(map(seeded, MUTANTS))


@pytest.mark.parametrize("story", [recalls, forgets, keeps, compresses])
async def test_the_stories_are_true(story: Callable[[Namespace], Awaitable[None]]) -> None:
    async with namespace() as there:
        await story(there)
