"""LangGraph's store: it answers as LangGraph's store in memory does, and items expire by themselves."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import GetOp, InvalidNamespaceError, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, Memory, OwnerMismatch, Settings, blocking
from redismem.adapters.langgraph import RedismemStore

numbers = itertools.count()
SPACES = [("a",), ("a", "b"), ("a", "b", "c"), ("a", "bc"), ("x", "b"), ("é",)]
KEYS = ["1", ".", "..", "k..1", "a.b"]
PREFIXES = [(), *SPACES, ("none",)]
PATTERNS = [("a",), ("*", "b"), ("b",), ("a", "*", "c"), ("c",)]
values = st.dictionaries(
    st.sampled_from("mn"),
    st.none()
    | st.integers(-3, 3)
    | st.sampled_from(["1", "x"])
    | st.dictionaries(st.sampled_from("pq"), st.integers(0, 1)),
    max_size=2,
)
numeric = st.tuples(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), st.integers(-2, 2))
filters = (
    st.none() | st.dictionaries(st.sampled_from("mn"), numeric.map(lambda each: dict([each])), max_size=1) | values
)
paging = st.fixed_dictionaries({"limit": st.integers(0, 4), "offset": st.integers(0, 2)})
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(SPACES), st.sampled_from(KEYS), st.none() | values),
        st.tuples(st.just("search"), st.sampled_from(PREFIXES), filters),
        st.tuples(
            st.just("spaces"),
            st.none() | st.sampled_from(PATTERNS),
            st.none() | st.sampled_from(PATTERNS),
            st.none() | st.integers(1, 3),
            paging,
        ),
    ),
    max_size=16,
)


def describe(items: Any) -> list[Any]:
    return sorted((each.namespace, each.key, str(each.value)) for each in items)


def play(store: Any, step: Any) -> Any:
    match step:
        case "put", space, key, None:
            return store.delete(space, key)
        case "put", space, key, value:
            store.put(space, key, value)
            item = store.get(space, key)
            return item.value, item.key, item.namespace
        case "search", prefix, wanted:
            try:
                return describe(store.search(prefix, filter=wanted, limit=1_000))
            except (TypeError, ValueError):
                return "a value that is no number"
        case "spaces", prefix, suffix, depth, options:
            return store.list_namespaces(prefix=prefix, suffix=suffix, max_depth=depth, **options)


@pytest.fixture
def blocked(redis_server: RedisServer, namespace: str) -> Iterator[blocking.Memory]:
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


@given(steps=steps)
def test_any_sequence_answers_as_the_store_in_memory(blocked: blocking.Memory, steps: Any) -> None:
    store, model = RedismemStore(blocked, key_prefix=f"example-{next(numbers)}"), InMemoryStore()
    for step in steps:
        mine, theirs = play(store, step), play(model, step)
        # One value that is no number ends a whole search in memory; here its item does not fit.
        assert theirs in ("a value that is no number", mine), step
        for space in [space for space, items in model._data.items() if not items]:
            del model._data[space]  # it would list empty namespaces
    assert describe(store.search((), limit=1_000)) == describe(model.search((), limit=1_000))
    pages = [store.search((), limit=3, offset=at) for at in range(0, 18, 3)]
    assert describe(item for page in pages for item in page) == describe(model.search((), limit=1_000))


async def test_a_search_reads_pages_of_items_not_each_item(memory: Memory, redis_server: RedisServer) -> None:
    store = RedismemStore(memory)
    await store.abatch([PutOp(("a", f"{number % 3}"), str(number), {"n": number}) for number in range(300)])
    wanted: Any
    for wanted, read_count in ((None, 5), ({"n": {"$gte": 0}}, 32)):
        redis_server.say("CONFIG", "RESETSTAT")
        assert len(await store.asearch(("a",), filter=wanted, limit=5)) == 5
        assert f"cmdstat_hmget:calls={read_count}," in redis_server.say("INFO", "commandstats").decode()
    many = await store.asearch(("a",), filter={"n": {"$gte": 290}}, limit=100)
    assert sorted(item.value["n"] for item in many) == [*range(290, 300)]
    first = await store.aget(("a", "0"), "0")
    await store.aput(("a", "0"), "0", {"n": -1})
    again = await store.aget(("a", "0"), "0")
    assert first is not None
    assert again is not None
    assert (again.created_at, again.value) == (first.created_at, {"n": -1})
    assert again.updated_at > first.updated_at


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_a_batch_takes_a_few_round_trips_and_its_last_write_of_an_item_counts(
    redis_server: RedisServer, namespace: str, is_blocking: bool
) -> None:
    calls: list[str] = []
    make: Any = blocking.Memory if is_blocking else Memory
    memory = make.connect(redis_server.url, namespace=namespace, on_event=lambda event: calls.append(event.op))
    store = RedismemStore(memory)
    spaces = [("a",), ("a", "b"), ("c",)]
    puts = [PutOp(spaces[number % 3], f"{number}", {"n": number}) for number in range(999)]
    assert await store.abatch([*puts, PutOp(("a",), "0", {"n": -1}), PutOp(("c",), "2", None)]) == [None] * 1_001
    assert calls.count("record_write") <= 12
    calls.clear()
    got: Any = await store.abatch([GetOp(op.namespace, op.key) for op in puts])
    assert calls == ["record_get"] * 4
    assert [item and item.value["n"] for item in got] == [-1, 1, None, *range(3, 999)]
    mixed: Any = await store.abatch([PutOp(("a",), "0", {"n": 7}), GetOp(("a",), "0"), SearchOp(("c",), limit=2)])
    assert (mixed[0], mixed[1].value, [item.key for item in mixed[2]]) == (None, {"n": -1}, ["101", "104"])
    last: Any = await store.abatch([GetOp(("a",), "0")])
    assert last[0].value == {"n": 7}
    if is_blocking:
        memory.close()
    else:
        await memory.aclose()


async def test_a_batch_of_reads_finds_nothing_of_a_damaged_item_and_all_others(
    memory: Memory, redis_server: RedisServer
) -> None:
    store = RedismemStore(memory)
    await store.abatch([PutOp(("a",), f"{number}", {"n": number}) for number in range(5)])
    redis_server.say("SET", memory.record("langgraph-store.a..3", tag="langgraph-store.a").keys.record, "damaged")
    got: Any = await store.abatch([GetOp(("a",), f"{number}") for number in range(5)])
    assert [item and item.value["n"] for item in got] == [0, 1, 2, None, 4]


async def test_a_search_finds_nothing_of_a_neighbour_whose_name_begins_alike(memory: Memory) -> None:
    store, other = RedismemStore(memory), RedismemStore(memory, key_prefix="langgraph-store2")
    for name in ("ann", "anna", "an"):
        for each in (store, other):
            await each.aput(("users", name), "tea", {"of": name})
            await each.aput(("users", name, "likes"), "tea", {"of": name})
    found = [*await store.asearch(("users", "ann")), *await store.asearch(("users", "ann"), filter={"of": {"$ne": ""}})]
    assert [item.value["of"] for item in found] == ["ann"] * 4
    assert await store.alist_namespaces(prefix=("users", "ann")) == [("users", "ann"), ("users", "ann", "likes")]
    assert await store.asearch(("user",)) == []
    assert len(await store.asearch((), limit=99)) == 6


async def test_an_item_expires_after_its_last_use(memory: Memory, redis_server: RedisServer) -> None:
    store = RedismemStore(memory, ttl={"default_ttl": 10})
    await store.aput(("a",), "k", {})
    await store.aput(("a",), "for ever", {}, ttl=None)
    key = memory.record("langgraph-store.a..k", tag="langgraph-store.a").keys.record

    def left_ms() -> int:
        return int(redis_server.say("PTTL", key))

    assert 500_000 < left_ms() <= 600_000
    for use, is_renewed in (
        (store.aget(("a",), "k"), True),
        (store.asearch(("a",)), True),
        (store.aget(("a",), "k", refresh_ttl=False), False),
        (store.asearch(("a",), refresh_ttl=False), False),
    ):
        redis_server.say("PEXPIRE", key, 60_000)
        await use
        assert (left_ms() > 60_000) is is_renewed
    redis_server.say("PEXPIRE", key, 0)
    assert await store.aget(("a",), "k") is None
    assert [item.key for item in await store.asearch(("a",))] == ["for ever"]
    await store.adelete(("a",), "for ever")
    assert await store.alist_namespaces() == []


def embed(texts: Any) -> list[list[float]]:
    return [[text.count("tea"), text.count("dog"), 0.1] for text in texts]


async def test_a_query_ranks_items_by_their_vectors_and_changes_nothing_without_an_index(memory: Memory) -> None:
    index: Any = {"dims": 3, "embed": embed, "fields": ["text", "more[*]"]}
    store, model = RedismemStore(memory, index=index), InMemoryStore(index=index)
    assert store.index_config == index
    for each in (store, model):
        await each.aput(("a",), "1", {"text": "a dog"})
        await each.aput(("a",), "2", {"text": "nothing", "more": ["dog dog tea", "tea tea tea"]})
        await each.aput(("a",), "3", {"text": "dog"}, index=False)
        await each.aput(("a",), "4", {"other": "without texts"})
    for query in ("tea", "dog"):
        mine = await store.asearch(("a",), query=query)
        theirs = await model.asearch(("a",), query=query)
        assert [(item.key, item.score and round(item.score, 5)) for item in mine] == [
            (item.key, item.score and round(item.score, 5)) for item in theirs
        ]
        assert [item.key for item in mine if item.score is None] == ["3", "4"]
    await store.aput(("a",), "1", {"other": "no text any more"})
    assert [item.key for item in await store.asearch(("a",), query="dog")] == ["2", "1", "3", "4"]
    plain = RedismemStore(memory)
    for options in ({}, {"limit": 2}, {"filter": {"text": "dog"}}):
        found = await plain.asearch(("a",), query="tea", **options)
        assert found == await plain.asearch(("a",), **options) != []
        assert [item.score for item in found] == [None] * len(found)
    short: Any = index | {"embed": lambda texts: [[1.0] for _ in texts]}
    with pytest.raises(InvalidSettings, match="3 dimensions"):
        await RedismemStore(memory, index=short).aput(("a",), "5", {"text": "x"})
    for wrong in ({"embed": embed}, {"dims": 3}, {"dims": "3", "embed": embed}):
        with pytest.raises(InvalidSettings, match="index needs"):
            RedismemStore(memory, index=wrong)  # type: ignore[arg-type]


async def test_mistakes_are_refused_before_anything_of_a_batch_is_written(memory: Memory) -> None:
    store = RedismemStore(memory)
    good = PutOp(("a",), "1", {"n": 1})
    for wrong, error in (
        (PutOp(("a.b",), "1", {}), InvalidNamespaceError),
        (PutOp(("a", ""), "1", {}), InvalidNamespaceError),
        (PutOp(("a",), "x" * 1_100, {}), InvalidRecord),
        (PutOp(("a",), "1", {}, ttl=-1), InvalidSettings),
        (PutOp(("b",), "1", {"n": object()}), TypeError),
    ):
        with pytest.raises(error):
            await store.abatch([good, wrong])
    with pytest.raises(TypeError, match="ainvoke"):
        store.get(("a",), "1")
    assert (await memory.records()).records == []
    with RedismemStore.from_conn_string("memory://") as own:
        own.setup()
        own.put(("a",), "1", {"n": 1})
        item = await own.aget(("a",), "1")
        assert item is not None
        assert item.value == {"n": 1}


@pytest.mark.parametrize("is_embedded", [False, True])
def test_items_are_forgotten_with_the_person_whom_their_namespace_names(
    blocked: blocking.Memory, is_embedded: bool
) -> None:
    with blocking.Memory.connect("memory://") if is_embedded else blocked as memory:
        store = RedismemStore(memory, owner=lambda namespace: namespace[1] if namespace[0] == "people" else None)
        for space in (("people", "ann"), ("people", "ann", "likes"), ("people", "bo"), ("facts", "ann")):
            store.put(space, "tea", {"text": "green"})
        store.put(("people", "ann"), "gone", {"text": "green"})
        store.delete(("people", "ann"), "gone")
        store.put(("people", "ann"), "tea", {"text": "black"})
        assert [each.id for each in memory.records(owner="ann").records] == [
            "langgraph-store.people.ann..tea",
            "langgraph-store.people.ann.likes..tea",
        ]
        assert memory.forget(owner="ann").record_count == 2
        assert describe(store.search((), limit=10)) == [
            (("facts", "ann"), "tea", "{'text': 'green'}"),
            (("people", "bo"), "tea", "{'text': 'green'}"),
        ]
        RedismemStore(memory, owner="cy").put(("facts", "cy"), "tea", {})
        assert memory.forget(owner="cy").record_count == 1


async def test_a_wrong_owner_is_refused_before_anything_of_a_batch_is_written(memory: Memory) -> None:
    for owner in ("", " ann", "a" * 257, 7, ("ann",)):
        with pytest.raises(InvalidSessionId, match="an owner is"):
            RedismemStore(memory, owner=owner)  # type: ignore[arg-type]
    store = RedismemStore(memory, owner=lambda namespace: namespace[1])
    good = PutOp(("people", "ann"), "1", {})
    for wrong, error in (
        (PutOp(("people",), "1", {}), IndexError),
        (PutOp(("people", " "), "1", {}), InvalidSessionId),
    ):
        with pytest.raises(error):
            await store.abatch([good, wrong])
    assert (await memory.records()).records == []
    # A store without an owner finds and removes every item; one with a function asks it for reads and deletes, too.
    every = RedismemStore(memory)
    await every.aput(("people", "ann"), "1", {})
    for call in (store.aget(("people", "ann"), "1"), store.adelete(("people", "ann"), "1")):
        with pytest.raises(OwnerMismatch):
            await call
    assert await store.asearch(("people", "ann")) == []
    assert len(await every.asearch(())) == 1
    await every.adelete(("people", "ann"), "1")
    assert await every.asearch(()) == []
