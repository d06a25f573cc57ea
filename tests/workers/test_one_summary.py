"""The extractive summariser keeps one summary of all that left the window, and a sketch of the session's words."""

from __future__ import annotations

import pytest
from support.stores import Store
from support.worked import open_with, ranges
from support.writers import Echo, fill

from redismem import Settings
from redismem.models import Draft, open_extractive
from redismem.protocol import layout
from redismem.protocol.queue.calls import Job
from redismem.session.session import Session
from redismem.text.word_counts import Sketch, hash_of
from redismem.workers.strategies import Summarize, fallback_for, from_settings
from redismem.workers.summaries import Worker


class Asked:
    """A model that records the token limit it was given."""

    name = "some-model"

    def __init__(self) -> None:
        self.rooms_tokens: list[int] = []

    async def summarize(self, messages: object, previous: str | None, max_tokens: int) -> Draft:
        self.rooms_tokens.append(max_tokens)
        return Draft(previous or "told " * 40, 0, 0, self.name)

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


async def _sketch(session: Session) -> Sketch | None:
    store = session._store
    keys = store.keys.session("a")
    (packed,) = await store.transport.run_independent((("HGET", keys.state, layout.SKETCH),), 60)
    return None if packed is None else Sketch.unpack(packed)


async def test_there_is_one_summary_and_what_was_said_first_is_in_it(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, summary_tokens_total=150) as memory:
        session = memory.session("a")
        worker = Worker(memory.store, from_settings(memory.settings) or Echo())
        await session.append({"role": "user", "content": "My order W-4711 goes to Aunt Judith in Tromsø."})
        for number in range(12):
            await fill(session, 6, f"so that is that, number {number} it is,")
            await worker.drain()
        context = await session.read()
        (summary,) = context.summaries
        assert (summary.first_seq, summary.last_seq) == (1, context.first_seq - 1)
        assert (summary.model, len(summary.text.encode()) <= 600) == ("extractive", True)
        assert "user: My order W-4711 goes to Aunt Judith in Tromsø." in summary.text
        assert summary.message_ids[0].endswith(f":1-{summary.last_seq - len(summary.message_ids) + 1}")
        assert summary.start_ms < summary.end_ms <= context.messages[0].time_ms
        assert (await session.info()).summaries_count == 1


async def test_the_sketch_knows_what_was_summarised_and_goes_with_the_session(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Summarize(open_extractive()))
        await fill(session, 10, "ferry")
        await worker.drain()
        assert await _sketch(session) is None, "nothing was summarised"
        rarities = []
        for _ in range(2):
            await fill(session, 6, "lamp")
            await worker.drain()
            sketch = await _sketch(session)
            assert sketch is not None
            rarities.append([sketch.rarity(hash_of(word)) for word in ("ferri", "lamp")])
        assert rarities[0][0] < 1 == rarities[0][1], "the lamps are in the window"
        assert rarities[1][1] < 1
        await session.clear()
        await fill(session, 2)
        assert await _sketch(session) is None


async def test_a_claim_brings_the_sketch_and_a_commit_without_one_leaves_it(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = memory.session("a")
        calls = memory.store.queue_calls("a")
        await fill(session, 11)
        job = await memory.store.run(calls.claim())
        assert isinstance(job, Job)
        assert job.sketch == b""
        await memory.store.run(calls.commit(job, job.context.messages[:2], None, sketch=b"words"))
        await fill(session, 6)
        for expected in (b"words", b"words"):
            job = await memory.store.run(calls.claim())
            assert isinstance(job, Job)
            assert job.sketch == expected
            await memory.store.run(calls.commit(job, job.context.messages[:1], None))
            await fill(session, 6)


@pytest.mark.parametrize("stored", [b"", b"\x01", b"\x07junk", b"\xff" * 9000], ids=["none", "short", "other", "long"])
async def test_a_sketch_that_cannot_be_read_stops_no_summary(store: Store, namespace: str, stored: bytes) -> None:
    async with open_with(store, namespace) as memory:
        session, worker = memory.session("a"), Worker(memory.store, Summarize(open_extractive()))
        await fill(session, 11)
        keys = memory.store.keys.session("a")
        await memory.store.transport.run_independent((("HSET", keys.state, layout.SKETCH, stored),), 60)
        assert await worker.drain() == 1
        assert await ranges(session) == [(1, 5)]
        assert await _sketch(session) is not None


async def test_a_models_folds_share_one_room(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        model = Asked()
        session, worker = memory.session("a"), Worker(memory.store, Summarize(model, 100, 400))
        await fill(session, 6)
        for _ in range(5):
            await fill(session, 5)
            await worker.drain()
        others_tokens = sum(summary.tokens for summary in (await session.read()).summaries[1:])
        assert model.rooms_tokens == [100] * 5 + [400 - others_tokens]


async def test_beside_a_models_summaries_the_extractive_one_has_what_they_leave(store: Store, namespace: str) -> None:
    async with open_with(store, namespace, summary_tokens_total=200) as memory:
        session = memory.session("a")
        await fill(session, 11)
        await Worker(memory.store, Summarize(Asked())).drain()
        (told,) = (await session.read()).summaries
        instead = fallback_for(Summarize(Asked()), memory.settings)
        assert instead is not None
        await fill(session, 30, "order W123 for Ada, who waits for it in the long queue at the harbour,")
        await Worker(memory.store, instead).drain()
        first, second = (await session.read()).summaries
        assert (first.text, second.model) == (told.text, "extractive")
        assert len(second.text.encode()) // 4 <= 200 - told.tokens


async def test_no_total_is_larger_than_what_may_be_stored(store: Store, namespace: str) -> None:
    settings = Settings(shards=2, max_summary_bytes=64, summary_tokens_total=100_000)
    strategy = from_settings(settings)
    assert strategy is not None
    async with store.memory(namespace, settings) as memory:
        session = memory.session("a")
        for _ in range(3):
            await fill(session, 11, "a long story about order W123 and the people who wait for it,")
            assert await Worker(memory.store, strategy).drain() == 1
        (summary,) = (await session.read()).summaries
        assert len(summary.text.encode()) <= 64
