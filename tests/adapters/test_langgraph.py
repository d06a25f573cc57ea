"""LangGraph: the saver passes LangGraph's conformance suite, and answers as its saver in memory does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from support.langgraph_suite import PASSED, SyncTwins, run_suite
from support.proxy import How, Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, Memory, Settings, StoreUnavailable, blocking
from redismem.adapters.langgraph import RedismemSaver


async def test_all_81_tests_of_the_suite_pass(direct_memory: Memory) -> None:
    assert await run_suite(lambda: RedismemSaver(direct_memory)) == (PASSED, [])


async def test_all_81_pass_on_the_embedded_store_where_async_methods_run_in_a_thread() -> None:
    assert await run_suite(lambda: RedismemSaver.from_conn_string("memory://")) == (PASSED, [])


async def test_all_81_pass_without_await(blocked: blocking.Memory) -> None:
    assert await run_suite(lambda: SyncTwins(blocked)) == (PASSED, [])


numbers = itertools.count()
IDS = ["1", "2", "3", "10", "é"]
THREADS, SPACES, CHANNELS = ["a", "b"], ["", "sub", "sub|x:1"], ["m", "n", "__error__", "__resume__"]
values = st.none() | st.integers(-9, 9) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2)
sources = st.fixed_dictionaries({"source": st.sampled_from(["loop", "input"]), "step": st.integers(0, 2)})
versions = st.integers(1, 3) | st.sampled_from(["1", "01", "x:y"])


def one(options: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(options)


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            one(THREADS),
            one(SPACES),
            one(IDS),
            st.none() | one(IDS),
            sources,
            st.dictionaries(one(CHANNELS[:2]), st.tuples(versions, st.just([]) | st.lists(values, max_size=1))),
        ),
        st.tuples(
            st.just("writes"),
            one(THREADS),
            one(SPACES),
            one(IDS),
            st.lists(st.tuples(one(CHANNELS), values), max_size=3),
            one(["t1", "t2"]),
            one(["", "p", "q"]),
        ),
        st.tuples(
            st.just("list"),
            one(THREADS),
            one(SPACES),
            st.none() | one(IDS),
            st.none() | one(IDS),
            st.none() | sources.map(lambda each: {"step": each["step"]}),
            st.none() | st.integers(0, 3),
        ),
        st.tuples(st.just("delete"), one(THREADS)),
    ),
    max_size=14,
)


def place(thread: Any, space: str, checkpoint_id: str | None = None) -> Any:
    configurable = {"thread_id": thread, "checkpoint_ns": space}
    return {"configurable": configurable | ({} if checkpoint_id is None else {"checkpoint_id": checkpoint_id})}


def play(saver: Any, step: Any) -> Any:
    match step:
        case "put", thread, space, checkpoint_id, parent, metadata, channels:
            if parent is not None and parent >= checkpoint_id:
                parent = None  # the delta history of InMemorySaver never ends in a circle
            checkpoint = {
                "v": 1,
                "id": checkpoint_id,
                "ts": "",
                "channel_values": {name: value[0] for name, (_, value) in channels.items() if value},
                "channel_versions": {name: version for name, (version, _) in channels.items()},
                "versions_seen": {},
            }
            return saver.put(place(thread, space, parent), checkpoint, metadata, checkpoint["channel_versions"])
        case "writes", thread, space, checkpoint_id, writes, task_id, task_path:
            return saver.put_writes(place(thread, space, checkpoint_id), writes, task_id, task_path)
        case "list", thread, space, checkpoint_id, before, wanted, limit:
            config = place(thread, space, checkpoint_id)
            end = None if before is None else place(thread, space, before)
            return [*saver.list(config, filter=wanted, before=end, limit=limit)]
        case "delete", thread:
            return saver.delete_thread(thread)


def see(saver: Any) -> Iterator[Any]:
    """The answers of a saver about all places."""
    for thread in THREADS:
        for space in SPACES:
            newest: CheckpointTuple | None = saver.get_tuple(place(thread, space))
            yield newest
            if newest is not None:
                yield saver.get_tuple(newest.config)
                yield saver.get_delta_channel_history(config=newest.config, channels=CHANNELS[:2])


@pytest.fixture
def blocked(redis_server: RedisServer, namespace: str) -> Iterator[blocking.Memory]:
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


@given(steps=steps)
def test_any_sequence_answers_as_the_saver_in_memory(blocked: blocking.Memory, steps: Any) -> None:
    saver, model = RedismemSaver(blocked, key_prefix=f"example-{next(numbers)}"), InMemorySaver()
    for step in steps:
        assert play(saver, step) == play(model, step), step
    assert [*see(saver)] == [*see(model)]
    for thread in THREADS:
        config: Any = {"configurable": {"thread_id": thread}}
        ids = [each.checkpoint["id"] for each in saver.list(config)]
        assert ids == sorted((each.checkpoint["id"] for each in model.list(config)), reverse=True)
    assert sorted(map(str, saver.list(None))) == sorted(map(str, model.list(None)))


async def test_mistakes_are_refused_before_anything_is_written(namespace: str, redis_server: RedisServer) -> None:
    wrong: list[dict[str, Any]] = [
        {"memory": "redis://127.0.0.1"},
        {"key_prefix": "a:b"},
        {"key_prefix": ""},
        {"ttl": 60},
        {"ttl": {"default_ttl_s": 60}},
        {"ttl": {"default_ttl": "60"}},
        {"ttl": {"default_ttl": 0}},
        {"ttl": {"refresh_on_read": 1}},
        {"url": ""},
        {"url": "postgres://localhost"},
    ]
    for options in wrong:
        with pytest.raises(InvalidSettings):
            RedismemSaver(**options)
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        with pytest.raises(InvalidSettings, match="one of memory and url"):
            RedismemSaver(memory, url="memory://")
        saver = RedismemSaver(memory)
        checkpoint: Any = {"id": "1", "channel_values": {}, "channel_versions": {}}
        for thread_id, space, error in (
            ("", "", InvalidSessionId),
            (None, "", InvalidSessionId),
            ("a", "\0", InvalidRecord),
        ):
            with pytest.raises(error):
                await saver.aput(place(thread_id, space), checkpoint, {}, {})
        with pytest.raises(InvalidSessionId, match="names no thread"):
            await saver.aget_tuple({"configurable": {"checkpoint_ns": ""}})
        with pytest.raises(TypeError, match="ainvoke"):
            saver.get_tuple(place("a", ""))
        with pytest.raises(ValueError, match="strategy"):
            await saver.aprune(["a"], strategy="keep")
        assert (await memory.records()).records == []
    with RedismemSaver.from_conn_string("memory://") as own, pytest.raises(ValueError, match="onto itself"):
        own.copy_thread("a", "a")


async def test_a_closed_saver_opens_no_connection(redis_server: RedisServer) -> None:
    async with RedismemSaver(url=redis_server.url) as saver:
        assert await saver.aget_tuple(place("a", "")) is None
        assert saver.get_tuple(place("a", "")) is None
    with pytest.raises(RuntimeError, match="is closed"):
        await saver.aget_tuple(place("a", ""))
    with pytest.raises(RuntimeError, match="is closed"):
        saver.get_tuple(place("a", ""))


async def test_versions_grow_and_continue_those_of_other_savers() -> None:
    saver = RedismemSaver(url="memory://")
    first = saver.get_next_version(None, None)
    second = saver.get_next_version(first, None)
    assert first < second != saver.get_next_version(first, None)
    theirs = InMemorySaver().get_next_version(None, None)
    assert theirs < saver.get_next_version(theirs, None)


async def test_an_outage_raises_and_lost_replies_store_nothing_twice(proxy: Proxy, namespace: str) -> None:
    settings = Settings(shards=1, **PATIENCE)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        saver = RedismemSaver(memory)
        await saver.asetup()
        config = place("a", "")
        hows: tuple[How, ...] = ("close", "reset", "truncate")
        for how in hows:
            proxy.break_next(how)
            checkpoint: Any = {"id": how, "channel_values": {"m": how}, "channel_versions": {"m": how}}
            config = await saver.aput(config, checkpoint, {}, {"m": how})
            proxy.break_next(how)
            await saver.aput_writes(config, [("m", how), ("n", how)], "t")
        assert proxy.broken_count == 6
        found = [each async for each in saver.alist(place("a", ""))]
        assert [(each.checkpoint["channel_values"], len(each.pending_writes or ())) for each in found] == [
            ({"m": how}, 2) for how in ("truncate", "reset", "close")
        ]
        await proxy.refuse()
        with short_deadlines(memory), pytest.raises(StoreUnavailable):
            await saver.aget_tuple(place("a", ""))
