"""The recall cache: it is bounded, and never stale."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis.asyncio
from hypothesis import given
from hypothesis import strategies as st
from recall.test_recall import create_summarised_session, seqs, trips_of
from support.dictionaries import append_messages
from support.redis_server import RedisServer
from support.stores import Store
from support.worked import open_with
from support.writers import Echo, fill

from redismem import Session
from redismem.blocking import memory as blocking
from redismem.originals.signatures import (
    WEIGHTS,
    Signature,
    decode_signature,
    encode_signature,
    join_signatures,
    split_signatures,
    stem_hash,
)
from redismem.recall import recall
from redismem.recall.cache import UNUSED_S, RecallCache
from redismem.recall.cached import CachedSession
from redismem.recall.owner.cached import CachedOwner
from redismem.recall.postings import Postings
from redismem.recall.segments import SEGMENT_BLOCKS
from redismem.workers.summaries import Worker


async def test_what_came_since_is_found_without_reading_the_rest_again(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session, worker = await create_summarised_session(memory), Worker(memory.store, Echo())
        assert 3 in seqs(await session.recall("dog Biscuit"))
        for step in range(6):
            seq = (await session.append({"role": "user", "content": f"The parrot Zora{step} ate a fig."})).last_seq
            await fill(session, 9)
            await worker.drain()
            with trips_of(memory) as sent:
                assert seq in seqs(await session.recall(f"Zora{step}", limit=1))
            assert len(sent) == 2
            assert len(sent[0][1]) <= 2 + 6, "a few signatures at most"
            assert len(sent[1][0]) <= 2 + 4, "the block, that of a neighbour, and the merged blocks they may be in"
            assert 3 in seqs(await session.recall("dog Biscuit"))


async def test_the_blocks_beside_it_in_a_merged_one_are_not_read_again(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await create_summarised_session(memory, {3: "The dog is Biscuit.", 60: "The parrot is Zora."})
        assert 3 in seqs(await session.recall("Biscuit", limit=1))
        cached = memory.recall_cache.get("a")
        assert (sorted(cached.contents), sorted(cached.siblings)) == ([0], [1, 2, 3])
        before = cached.size_bytes
        with trips_of(memory) as sent:
            assert 60 in seqs(await session.recall("Zora", limit=1))
        assert len(sent) == 1, "the signatures alone"
        assert (sorted(cached.contents), sorted(cached.siblings)) == ([0, 3], [1, 2])
        texts_bytes = sum(len(element) for _, elements in cached.siblings.values() for element in elements)
        assert before - texts_bytes > memory.recall_cache.size_bytes - before > 0, "counted once"


async def test_of_a_session_that_grew_by_much_the_rest_is_read(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session, worker = await create_summarised_session(memory), Worker(memory.store, Echo())
        assert 3 in seqs(await session.recall("dog Biscuit"))
        await fill(session, 200)
        await session.append({"role": "user", "content": "The parrot Zora ate a fig."})
        await fill(session, 20)
        await worker.drain()
        assert 321 in seqs(await session.recall("parrot"))
        assert 3 in seqs(await session.recall("dog Biscuit"))


REMOVALS: list[Callable[[Session], Awaitable[object]]] = [
    lambda session: session.clear(),
    lambda session: session.forget(3),
    lambda session: session.rewrite(3, [{"role": "user", "content": "Hello"}]),
    lambda session: session.prune(0),
    lambda session: session.pop(1),
]


@pytest.mark.parametrize("remove", REMOVALS)
async def test_a_removal_leaves_nothing_in_its_process(
    store: Store, namespace: str, remove: Callable[[Session], Awaitable[object]]
) -> None:
    async with open_with(store, namespace) as memory:
        await create_summarised_session(memory)
        session = memory.session("a")  # begun without an owner
        begun = memory.session("b", owner="ann")
        await fill(begun, 40)
        await Worker(memory.store, Echo()).drain()
        await begun.recall("question", scope="owner")
        await begun.recall("question")
        await session.recall("dog Biscuit")
        assert len(memory.recall_cache) == 3
        await remove(session)
        assert memory.recall_cache.get("a") is None
        assert len(memory.recall_cache) == 2, "of another session, and its owner, who is not of this one"
        await remove(begun)
        assert len(memory.recall_cache) == memory.recall_cache.size_bytes == 0
        assert memory.recall_cache.get_owner("ann") is None


async def test_what_no_search_uses_is_dropped_after_ten_minutes(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        now_s = 0.0
        memory.recall_cache = cache = RecallCache(10, 1 << 20, clock_s=lambda: now_s)
        await create_summarised_session(memory)
        session = memory.session("a")
        await session.recall("dog Biscuit")
        now_s = UNUSED_S - 1
        cache.drop_unused()
        await session.recall("dog Biscuit")
        now_s = 2 * UNUSED_S - 2
        cache.drop_unused()
        assert cache.get("a") is not None, "used since"
        now_s += 1
        cache.drop_unused()
        assert len(cache) == cache.size_bytes == 0


async def test_a_closed_memory_caches_nothing(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await create_summarised_session(memory)
        await session.recall("dog Biscuit")
        assert len(memory.recall_cache) == 1
    assert len(memory.recall_cache) == memory.recall_cache.size_bytes == 0


async def test_what_another_process_did_is_known(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory, open_with(store, namespace) as other:
        session, there = await create_summarised_session(memory), other.session("a")
        assert 3 in seqs(await session.recall("dog Biscuit"))
        await there.prune(3)
        assert await session.recall("dog Biscuit") == []
        await there.clear()
        assert await session.recall("dog Biscuit") == []
        await create_summarised_session(other, {5: "My dog Biscuit came home."})
        (found,) = [each for each in await session.recall("dog Biscuit", limit=1) if each.seq == 5]
        assert found.content == "My dog Biscuit came home."


async def test_after_a_prune_and_new_messages_the_old_ones_are_not_recalled(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory, open_with(store, namespace) as other:
        session, there = await create_summarised_session(memory), other.session("a")
        assert 3 in seqs(await session.recall("dog Biscuit"))
        await there.prune(3)
        await fill(there, 40)
        await Worker(other.store, Echo()).drain()
        assert 3 not in seqs(await session.recall("dog Biscuit"))


async def test_originals_that_were_not_kept_for_a_while_are_gone(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory, open_with(store, namespace, keep_originals=False) as other:
        session = await create_summarised_session(memory)
        assert 3 in seqs(await session.recall("dog Biscuit"))
        await other.store.agreement.override_record()
        for kept_by in (other, memory):
            await fill(session, 20)
            await Worker(kept_by.store, Echo()).drain()
        assert 3 not in seqs(await session.recall("dog Biscuit"))


async def test_a_message_that_was_replaced_is_recalled_as_it_is_now(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory, open_with(store, namespace) as other:
        session, worker = memory.session("a"), Worker(memory.store, Echo())
        await session.append({"role": "user", "content": "The dog is Biscuit."}, pin=True)
        await fill(session, 40)
        await worker.drain()
        await session.recall("dog number")
        there = other.session("a")
        await there.replace(1, {"role": "user", "content": "The dog is Rex."})
        await there.unpin(1)
        found = await session.recall("Rex", limit=1, max_tokens=20)
        assert found[0].content == "The dog is Rex."


async def test_what_a_failover_has_lost_is_not_recalled(store: Store, namespace: str, raw: Any) -> None:
    """This holds although the new messages have the same length, and their block ends at the same seq."""
    async with open_with(store, namespace) as memory, open_with(store, namespace) as other:
        session, theirs, keys = memory.session("a"), other.session("a"), memory.store.keys.session("a")
        worker = Worker(other.store, Echo())
        await append_messages(theirs, 11)
        await worker.drain()
        replicated = {key: await raw.dump(key) for key in (keys.state, keys.messages, keys.originals)}
        for pin in ("1111", "2222"):
            await theirs.append({"role": "user", "content": f"My PIN is {pin} today"})
            await append_messages(theirs, 6, begin=100)
            await worker.drain()
            assert [message.content for message in await session.recall("PIN", limit=1)][-1] == f"My PIN is {pin} today"
            for key, found in replicated.items():
                await raw.delete(key)
                await raw.restore(key, 0, found)


async def test_a_block_that_is_large_unpacked_is_read_in_a_thread(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode_contents, read_in = recall.decode_contents, dict[int, int]()

    def record(block: Any, *rest: Any) -> Any:
        read_in[block.number] = threading.get_ident()
        return decode_contents(block, *rest)

    monkeypatch.setattr(recall, "decode_contents", record)
    async with open_with(store, namespace, max_summary_bytes=1 << 20) as memory:
        session = await create_summarised_session(memory, {3: "Biscuit " * 20_000, 40: "I moved to Lisbon."})
        assert 3 in seqs(await session.recall("Biscuit"))
        assert 40 in seqs(await session.recall("Lisbon", limit=1))
    assert read_in[0] != threading.get_ident() == read_in[2]


def test_of_very_many_messages_only_the_first_are_a_question() -> None:
    given = iter([{"role": "user", "content": "where is Biscuit? " * 100}] * 1_000)
    assert recall.extract_query(given).startswith("where is Biscuit? ")
    assert len(list(given)) > 900


async def test_the_lines_of_a_block_count_once(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await create_summarised_session(memory)
        await session.recall("the dog Biscuit")
        kept = memory.recall_cache.get("a")
        assert kept is not None
        before = kept.size_bytes
        texts_bytes = sum(len(line) for block in kept.contents.values() for line in block.lines.values())
        assert before > texts_bytes > 0
        context = await session.append_and_read({"role": "user", "content": "the dog Biscuit"}, recall=700)
        assert "Biscuit came from the shelter" in str(context.to_openai())
        assert memory.recall_cache.size_bytes == kept.size_bytes == before


async def test_messages_that_were_given_are_the_callers_own(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await create_summarised_session(memory)
        for _ in range(2):
            (found,) = [each for each in await session.recall("dog Biscuit", limit=1) if each.seq == 3]
            assert found.content == "My dog Biscuit came from the shelter in Leeds."
            found.to_openai()["content"] = "changed"


async def test_many_questions_at_once(store: Store, namespace: str) -> None:
    async with open_with(store, namespace) as memory:
        session = await create_summarised_session(memory, count=600)
        for _ in range(2):
            found = await asyncio.gather(*(session.recall("dog Biscuit", limit=1) for _ in range(8)))
            assert [seqs(each) for each in found] == [[2, 3, 4]] * 8
        kept = memory.recall_cache.get("a")
        assert kept is not None
        assert kept.postings.count == 594
        assert memory.recall_cache.size_bytes == kept.size_bytes


async def test_threads_that_ask_for_the_same_session(redis_server: RedisServer, namespace: str) -> None:
    store = Store(lambda: redis.asyncio.Redis(port=redis_server.port), None)
    async with open_with(store, namespace) as memory:
        await create_summarised_session(memory, count=300)
        with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=memory.settings) as other:
            session = other.session("a")
            with ThreadPoolExecutor(4) as threads:
                asked = threads.map(lambda _: seqs(session.recall("dog Biscuit", limit=1)), range(40))
                assert list(await asyncio.to_thread(list, asked)) == [[2, 3, 4]] * 40
            kept = other._twin.recall_cache.get("a")
            assert kept is not None
            assert kept.postings.count == 294


@pytest.mark.parametrize("limits", [{"max_recalled_sessions": 0}, {"max_recalled_bytes": 0}, {"max_recalled_bytes": 1}])
async def test_nothing_is_kept_where_nothing_may_be(limits: dict[str, int], store: Store, namespace: str) -> None:
    async with open_with(store, namespace, **limits) as memory:
        session = await create_summarised_session(memory)
        for _ in range(2):
            assert 3 in seqs(await session.recall("dog Biscuit"))
            assert len(memory.recall_cache) == memory.recall_cache.size_bytes == 0


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=40),
    st.integers(0, 4),
    st.integers(0, 12_000),
)
def test_what_is_kept_is_bounded(asked: list[tuple[str, int]], max_count: int, max_bytes: int) -> None:
    hot = RecallCache(max_count, max_bytes)
    for session_id, number in asked:
        kept = hot.get(session_id) or CachedSession("e", "", 0)
        stored = {at: encode_signature(0, [["word " * at]], 0) for at in range(number)}
        kept.add_signatures({at: decode_signature(each) for at, each in stored.items()}, stored, number)
        hot.put(session_id, kept, hot.removals_count)
        known = [each for name in "abcdef" if (each := hot.get(name)) is not None]
        assert hot.size_bytes == sum(each.size_bytes for each in known) <= max_bytes
        assert len(known) == len(hot) <= max_count
        assert not known or hot.get(session_id) is kept, "the last one stays longest"
        if number % 3 == 0:
            hot.forget(session_id)
            assert hot.get(session_id) is None


def test_what_a_search_has_read_before_a_removal_is_not_cached() -> None:
    cache = RecallCache(2_000, 1 << 20)
    since = cache.removals_count
    owned = CachedOwner({})
    owned.states = dict.fromkeys("a")  # type: ignore[assignment]  # only its keys count
    cache.forget("a")
    cache.put("a", CachedSession("e", "", 0), since)
    cache.put("b", CachedSession("e", "", 0), since)
    cache.put_owner("ann", owned, since)
    assert [cache.get("a"), cache.get_owner("ann")] == [None, None]
    assert cache.get("b") is not None
    cache.put("a", CachedSession("e", "", 0), cache.removals_count)
    assert cache.get("a") is not None
    for number in range(1_500):  # more than it remembers
        cache.forget(f"other-{number}")
    cache.put("c", CachedSession("e", "", 0), since)
    assert cache.get("c") is None
    since = cache.removals_count
    cache.clear()
    cache.put("c", CachedSession("e", "", 0), since)
    assert len(cache) == 0


def test_the_index_stays_current_when_its_last_block_is_merged() -> None:
    four = [encode_signature(0, [[f"the parrot sings {at}"]] * 16, 100) for at in range(4)]
    decoded = dict(enumerate(map(decode_signature, four)))
    (kept := CachedSession("e", "", 0)).add_signatures(decoded, dict(enumerate(four)), 4)
    merged = split_signatures(join_signatures(four))
    assert kept.is_current("e", "", None, {3: merged[3]})
    assert not kept.is_current("e", "", None, {3: merged[2]})
    assert not kept.is_current("e", "", None, {3: None})


def test_a_block_that_begins_as_the_one_before_it_did_is_taken_up() -> None:
    begun, full = (encode_signature(0, [["the parrot sings"]] * count, 100 * count) for count in (4, 16))
    kept = CachedSession("e", "", 0)
    kept.grow(0, begun, decode_signature(begun))
    kept.add_signatures({0: decode_signature(full)}, {0: full}, 1)
    kept.grow(1, begun, decode_signature(begun))
    assert kept.postings.of(stem_hash("parrot")) == [*range(1, 21)]


def test_what_is_known_holds_while_a_block_grows_and_not_once_another_begins_there() -> None:
    def signed(place: int, *texts: str) -> bytes:
        return encode_signature(place, [[text] for text in texts], 100)

    kept, begun = CachedSession("e", "", 0), signed(0, "the dog", "the cat sleeps")
    kept.grow(0, begun, decode_signature(begun))
    assert kept.is_current("e", "", None, {0: begun})
    assert kept.is_current("e", "", None, {0: signed(0, "the dog", "the cat sleeps", "the parrot")})
    assert not kept.is_current("e", "", None, {0: None}), "pruned"
    assert not kept.is_current("e", "", None, {0: signed(2, "the parrot")}), "pruned, and begun anew"


WORDS = st.lists(st.sampled_from(["red", "green", "blue", "iron", "gold", "silver"]), max_size=4).map(" ".join)


def seqs_with(hashed: int, signatures: Iterable[tuple[int, Signature]]) -> list[int]:
    masks = [(number, one.places().get(hashed, 0)) for number, one in signatures]
    return [number * 16 + place + 1 for number, mask in masks for place in range(16) if mask >> place & 1]


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=16), min_size=1, max_size=40),
    st.integers(0, 30) | st.integers(SEGMENT_BLOCKS - 40, SEGMENT_BLOCKS),
    st.booleans(),
)
def test_postings_say_what_the_signatures_say(blocks: list[list[str]], first: int, grows: bool) -> None:
    found = [
        (number, decode_signature(encode_signature(0, [[text] for text in texts], len(texts))))
        for number, texts in enumerate(blocks, first)
    ]
    postings, whole = Postings(), found[:-1] if grows else found
    for at in range(0, len(whole), 3):
        postings.add(whole[at : at + 3])
    if grows:
        postings.grow(found[-1][0], found[0][1])  # as it was before
        postings.grow(*found[-1])
    assert postings.count == sum(signature.count for _, signature in found)
    for number, signature in found:
        assert postings.block_bytes(number) == signature.block_bytes
        assert tuple(WEIGHTS[each] for each in postings.weight_classes(number)) == signature.weights
    for word in ("red", "silver", "tin"):
        assert postings.of(stem_hash(word)) == seqs_with(stem_hash(word), found)
    if postings.segment_count:
        start = postings.drop_oldest()
        stay = {number: one for number, one in found if number >= start or (grows and number == found[-1][0])}
        assert postings.count == sum(signature.count for signature in stay.values())
        assert postings.of(stem_hash("red")) == seqs_with(stem_hash("red"), stay.items())
