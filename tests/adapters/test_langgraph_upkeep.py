"""LangGraph's threads over time: delta channels, copies, expiry, owners, sizes, and other users of one Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from support.checks import until
from support.edited import summarize
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from redismem import Memory, RecordConflict, Settings, StoreUnavailable
from redismem.adapters.langgraph import RedismemSaver, RedismemStore
from redismem.workers.eviction import Eviction


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


def extend(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class State(TypedDict):
    words: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=7)]
    rare: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=4)]
    last: str


def build(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"words": [f"one {len(state['words'])}"], "rare": ["one"], "last": "one"})
    builder.add_node("two", lambda state: {"words": [f"two {len(state['words'])}"], "last": "two"})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    builder.add_edge("two", END)
    return builder.compile(checkpointer=saver)


def at(thread_id: str, **configurable: Any) -> Any:
    return {"configurable": {"thread_id": thread_id, **configurable}}


async def put(
    saver: RedismemSaver | InMemorySaver, thread_id: str, number: int, parent: int | None = None, **metadata: Any
) -> Any:
    checkpoint: Any = {
        "id": f"{number:06}",
        "channel_values": {"m": number},
        "channel_versions": {"m": number},
        "versions_seen": {},
    }
    config = (
        at(thread_id, checkpoint_ns="")
        if parent is None
        else at(thread_id, checkpoint_ns="", checkpoint_id=f"{parent:06}")
    )
    about: Any = {"step": number, **metadata}
    stored = await saver.aput(config, checkpoint, about, {"m": number})
    await saver.aput_writes(stored, [("m", number + 1)], "task")
    return stored


async def test_a_delta_channel_is_read_in_one_call_and_no_prune_severs_it(
    proxy: Proxy, memory: Memory, namespace: str
) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=memory.settings) as proxied:
        saver, model = RedismemSaver(proxied), InMemorySaver()
        graph, other = build(saver), build(model)
        for turn in range(9):
            for each in (graph, other):
                durability: Any = ("async", "exit", "sync")[turn % 3]
                await each.ainvoke({"words": [f"turn {turn}"], "last": ""}, at("a"), durability=durability)
                if turn == 5:
                    await each.aupdate_state(at("a"), {"words": ["an edit"]})
            if turn in (3, 8):
                state = await graph.aget_state(at("a"))
                await saver.aprune(["a"])
                assert (await graph.aget_state(at("a"))) == state
        expected = (await other.aget_state(at("a"))).values
        assert (await graph.aget_state(at("a"))).values == expected
        assert len(expected["words"]) == 28
        left = [each async for each in saver.alist(at("a"))]
        assert 1 < len(left) < len([*model.list(at("a"))]), "the newest, and its ancestors down to the snapshots"
        proxy.forget()
        history = await saver.aget_delta_channel_history(config=left[0].config, channels=["words", "last"])
        assert len(proxy.sent) == 1
        assert history == await super(RedismemSaver, saver).aget_delta_channel_history(
            config=left[0].config, channels=["words", "last"]
        )


async def test_a_copy_appears_whole_or_not_at_all_and_can_be_repeated(
    proxy: Proxy, memory: Memory, namespace: str
) -> None:
    saver = RedismemSaver(memory)
    for number in range(40):
        await put(saver, "a", number, number - 1 if number else None, run_id="r")
    source = [each async for each in saver.alist(at("a"))]
    for part in (b"b:\0m", b"w:\x000", b"r:r", b"c:\x000"):  # the writes of values, writes, runs, checkpoints
        async with Memory.connect(proxy.url, namespace=namespace, settings=memory.settings) as cut:
            proxy.forget()
            proxy.break_next("hole", to=part)
            copying = asyncio.create_task(RedismemSaver(cut).acopy_thread("a", "b"))
            await until(lambda: proxy.broken_count)
            with short_deadlines(cut):
                await proxy.refuse()
                with pytest.raises(StoreUnavailable):
                    await copying
            await proxy.accept_again()
        assert [each async for each in saver.alist(at("b"))] == []
        assert await memory.record("langgraph:b").exists() is (part != b"b:\0m")
    await saver.acopy_thread("a", "b")
    await saver.acopy_thread("a", "b")
    copied = [each async for each in saver.alist(at("b"))]
    assert [each[1:3] + each[4:] for each in copied] == [each[1:3] + each[4:] for each in source]
    assert [each.parent_config and each.parent_config["configurable"]["checkpoint_id"] for each in copied] == [
        each.parent_config and each.parent_config["configurable"]["checkpoint_id"] for each in source
    ]
    await put(saver, "c", 7, run_id="other")
    with pytest.raises(RecordConflict, match="of its own"):
        await saver.acopy_thread("a", "c")
    with pytest.raises(ValueError, match="onto itself"):
        await saver.acopy_thread("a", "a")
    await saver.adelete_for_runs(["r"])
    assert [each async for each in saver.alist(None)] == [each async for each in saver.alist(at("c"))] != []


async def test_prune_and_delete_leave_nothing_and_cost_few_calls(proxy: Proxy, memory: Memory, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=memory.settings) as proxied:
        saver = RedismemSaver(proxied)
        for number in range(60):
            await put(saver, "a", number, number - 1 if number else None, run_id=f"r{number}")
        record = proxied.record("langgraph:a")
        proxy.forget()
        await saver.aprune(["a"])
        assert len(proxy.sent) < 12
        members = [found.member for found in (await record.page()).found]
        assert members == [b"c:\x00000059", b"r:r59\0\x00000059", b"w:\x00000059\x00task\x000"]
        values = await record.get(b"b:\0m\0i58", b"b:\0m\0i59")
        assert [value is None for value in values] == [True, False]
        await saver.adelete_thread("a")
        assert not await record.exists()
        assert await saver.aget_tuple(at("a")) is None


async def test_a_copy_never_brings_a_text_into_a_thread_of_another_owner(memory: Memory) -> None:
    saver = RedismemSaver(memory, owner_key="user_id")
    checkpoint: Any = {"id": "1", "channel_values": {"m": "a canary"}, "channel_versions": {"m": 1}}
    await saver.aput(at("a", checkpoint_ns="", user_id="ann"), checkpoint, {}, {"m": 1})
    for name, people in (("of bo", {"user_id": "bo"}), ("nobody's", {}), ("a1", {"user_id": "ann"})):
        # Such a thread has no checkpoint yet, so nothing else tells that it is another one's.
        place = at(name, checkpoint_ns="", checkpoint_id="0", **people)
        await saver.aput_writes(place, [("m", "its own")], "task")
    for name in ("of bo", "nobody's"):
        with pytest.raises(RecordConflict, match="another owner"):
            await saver.acopy_thread("a", name)
    await saver.acopy_thread("a", "a1")
    assert (await memory.forget(owner="ann")).record_count == 2
    for name in ("of bo", "nobody's"):
        record = memory.record(f"langgraph:{name}")
        assert [found.member for found in (await record.page()).found] == [b"w:\x000\0task\x000"]
    await saver.acopy_thread("a", "of bo")  # a thread that does not exist has nothing to copy


async def test_a_thread_expires_after_its_last_use_and_its_owner_can_be_forgotten(
    memory: Memory, redis_server: RedisServer
) -> None:
    saver = RedismemSaver(memory, ttl={"default_ttl": 10}, owner_key="user_id")
    await put(saver, "a", 1)
    record = memory.record("langgraph:a")

    def left_ms() -> list[int]:
        return [int(redis_server.say("PTTL", key)) for key in (record.keys.record, record.keys.order)]

    assert all(500_000 < ms <= 600_000 for ms in left_ms())
    for key in (record.keys.record, record.keys.order):
        redis_server.say("PEXPIRE", key, 60_000)
    await RedismemSaver(memory, ttl={"default_ttl": 10, "refresh_on_read": False}).aget_tuple(at("a"))
    assert max(left_ms()) <= 60_000
    await saver.aget_tuple(at("a"))
    assert min(left_ms()) > 500_000
    checkpoint: Any = {"id": "1", "channel_values": {"m": "a canary"}, "channel_versions": {"m": 1}}
    await saver.aput(at("b", checkpoint_ns="", user_id="ann"), checkpoint, {}, {"m": 1})
    store = RedismemStore(memory)
    for name in ("ann", "anna"):
        await store.aput(("people", name), "tea", {"likes": "a canary"})
    await saver.acopy_thread("b", "copy")
    assert (await memory.forget(owner="ann")).record_count == 2
    assert (await memory.forget(prefix="langgraph-store.people.ann.")).record_count == 1
    assert [entry.id for entry in (await memory.records()).records] == [
        "langgraph-store.people.anna..tea",
        "langgraph:a",
    ]
    assert [item.namespace[1] for item in await store.asearch(("people",))] == ["anna"]


async def test_a_thread_still_expires_after_each_kind_of_upkeep(memory: Memory, redis_server: RedisServer) -> None:
    saver = RedismemSaver(memory, ttl={"default_ttl": 10})
    for number in range(3):
        await put(saver, "a", number, number - 1 if number else None, run_id=f"r{number}")
    await saver.acopy_thread("a", "b")
    await saver.adelete_for_runs(["r0"])
    await saver.aprune(["a"])
    await saver.acopy_thread("a", "c")
    for thread_id, left in (("a", ["000002"]), ("b", ["000002", "000001"]), ("c", ["000002"])):
        assert [each.checkpoint["id"] async for each in saver.alist(at(thread_id))] == left
        keys = memory.record(f"langgraph:{thread_id}").keys
        assert all(500_000 < int(redis_server.say("PTTL", key)) <= 600_000 for key in (keys.record, keys.order))


async def test_a_task_that_is_repeated_replaces_only_its_errors_and_interrupts(memory: Memory) -> None:
    saver, model = RedismemSaver(memory), InMemorySaver()
    for each in (saver, model):
        config = await put(each, "a", 1)
        for text in ("first", "again"):
            writes = [("m", text), ("__error__", text), ("__interrupt__", text), ("n", text)]
            await each.aput_writes(config, writes, "task 2")
    found, wanted = await saver.aget_tuple(at("a")), model.get_tuple(at("a"))
    assert found is not None
    assert wanted is not None
    assert sorted(found.pending_writes or ()) == sorted(wanted.pending_writes or ())
    assert {each[1:] for each in found.pending_writes or () if each[0] == "task 2"} == {
        ("m", "first"),
        ("n", "first"),
        ("__error__", "again"),
        ("__interrupt__", "again"),
    }


@pytest.mark.parametrize("count", [600, pytest.param(10_000, marks=pytest.mark.nightly)])
async def test_reading_the_newest_checkpoint_costs_the_same_in_a_long_thread(
    memory: Memory, redis_server: RedisServer, count: int
) -> None:
    saver = RedismemSaver(memory)

    async def cost(thread_id: str) -> tuple[dict[str, Any], int]:
        redis_server.say("CONFIG", "RESETSTAT")
        for _ in range(10):
            await saver.aget_tuple(at(thread_id))
        facts = redis_server.say("INFO", "everything").decode().splitlines()
        lines = dict(line.split(":", 1) for line in facts if ":" in line)
        calls = {name: value.split(",")[0] for name, value in lines.items() if name.startswith("cmdstat_")}
        return calls, int(lines["total_net_output_bytes"]) // 1_000

    for number in range(count):
        await put(saver, "long", number, number - 1 if number else None)
    await put(saver, "short", count)
    for thread_id in ("long", "short"):
        await saver.aget_tuple(at(thread_id))
    assert await cost("long") == await cost("short")


async def test_twenty_graphs_at_once_beside_workers_and_a_full_memory(
    redis_server: RedisServer, namespace: str
) -> None:
    settings = Settings(max_sessions=1, threshold=4, recent_limit=2, **PATIENCE)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        saver = RedismemSaver(memory)
        graph = build(saver)

        async def talk(number: int) -> list[str]:
            for turn in range(3):
                await memory.session(f"s{number}").append(*[{"role": "user", "content": "hi"}] * 3)
                await graph.ainvoke({"words": [f"{number} {turn}"], "last": ""}, at(f"t{number}"))
            words: list[str] = (await graph.aget_state(at(f"t{number}"))).values["words"]
            return words

        talks = asyncio.gather(*map(talk, range(20)))
        await summarize(memory)
        await Eviction(memory.store).enforce()
        found = await talks
        await summarize(memory)
        await Eviction(memory.store).enforce()
        for number, words in enumerate(found):
            turns = ((f"{number} {turn}", f"one {3 * turn + 1}", f"two {3 * turn + 2}") for turn in range(3))
            assert words == [word for words in turns for word in words]
        states = [(await graph.aget_state(at(f"t{number}"))).values["words"] for number in range(20)]
        assert states == found
        # Twenty writers of one checkpoint: of each task the first write counts.
        config = await put(saver, "shared", 1)
        await asyncio.gather(*(saver.aput_writes(config, [("m", number)], f"t{number % 5}") for number in range(20)))
        whole = await saver.aget_tuple(config)
        assert whole is not None
        assert sorted(write[0] for write in whole.pending_writes or ()) == ["t0", "t1", "t2", "t3", "t4", "task"]


async def test_what_is_too_much_for_one_call_is_read_copied_and_removed_in_parts(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "adapters.langgraph.threads._RANGE_COUNT",
        "protocol.record.reads.RANGE_COUNT",
        "adapters.langgraph.threads._PAGE_LIMIT",
        "adapters.langgraph.upkeep._BLOBS_COUNT",
        "adapters.langgraph.upkeep._CHANGE_COUNT",
        "adapters.langgraph.upkeep._WRITES_LIMIT",
        "protocol.record.reads.DROP_COUNT",
    ):
        monkeypatch.setattr(f"redismem.{name}", 3)
    saver, model = RedismemSaver(memory), InMemorySaver()
    for number in range(8):
        for each in (saver, model):
            config = await put(each, "a", number, number - 1 if number else None, run_id=f"r{number % 2}")
            await each.aput_writes(config, [(f"channel {at}", at) for at in range(8)], "many")
    await saver.acopy_thread("a", "b")
    everything = [*model.list(at("a"))]
    assert [each async for each in saver.alist(at("a"))] == everything
    assert [each[1:3] + each[4:] async for each in saver.alist(at("b"))] == [
        each[1:3] + each[4:] for each in everything
    ]
    await saver.adelete_for_runs(["r0"])
    left = [each async for each in saver.alist(at("b"))]
    assert [each.metadata["run_id"] for each in left] == ["r1"] * 4
    await saver.aprune(["a", "b"])
    members = [found.member for found in (await memory.record("langgraph:b").page()).found]
    assert len(members) == 1 + 1 + 9, "a checkpoint, its run, and its writes"
    assert len([each async for each in saver.alist(None)]) == 2
