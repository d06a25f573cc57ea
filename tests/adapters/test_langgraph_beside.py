"""LangGraph's threads while others write them: what a copy, a prune or a run leaves is whole, or it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
import redis.asyncio
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import Memory, RecordConflict, Settings
from redismem.adapters.langgraph import RedismemSaver
from redismem.record import Record

Action = Callable[[], Awaitable[Any]]


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


@pytest.fixture
async def raw(redis_server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        yield raw


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_BLOBS_COUNT", "_WRITES_LIMIT"):
        monkeypatch.setattr(f"redismem.adapters.langgraph.upkeep.{name}", 3)


class Interruption:
    """An action that runs before one of the calls about records that another call makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._count, self._at = 0, 0
        self._action: Action | None = None
        original: Any = Record._run

        async def run(record: Record, *arguments: Any) -> Any:
            self._count += 1
            if self._count == self._at and self._action is not None:
                action, self._action = self._action, None
                await action()
            return await original(record, *arguments)

        monkeypatch.setattr(Record, "_run", run)

    async def before(self, at: int, action: Action, call: Awaitable[Any]) -> bool:
        """Await a call, with the action before one of its calls. Return False if it has fewer calls."""
        self._count, self._at, self._action = 0, at, action
        try:
            await call
        finally:
            left, self._action = self._action, None
        return left is None


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Interruption:
    return Interruption(monkeypatch)


def at(thread_id: str, checkpoint_id: int | None = None) -> Any:
    place = {"thread_id": thread_id, "checkpoint_ns": ""}
    return {"configurable": place | ({} if checkpoint_id is None else {"checkpoint_id": f"{checkpoint_id:03}"})}


async def put(saver: RedismemSaver, thread_id: str, number: int, parent: int | None, **metadata: Any) -> None:
    """Put a checkpoint with a value of its own, one that all checkpoints of odd numbers share, and a write."""
    version = f"odd {number % 2}"
    values = {"own": f"value {number}", "shared": version}
    versions: Any = {"own": f"{number}", "shared": version}
    checkpoint: Any = {"id": f"{number:03}", "channel_values": values, "channel_versions": versions}
    new = versions if number < 2 else {"own": versions["own"]}
    about: Any = {"run_id": f"run {number}", **metadata}
    stored = await saver.aput(at(thread_id, parent), checkpoint, about, new)
    await saver.aput_writes(stored, [("own", number)], "task")


async def fill(saver: RedismemSaver, thread_id: str) -> None:
    for number in range(6):
        await put(saver, thread_id, number, number - 1 if number else None)


async def numbers(saver: RedismemSaver, thread_id: str) -> list[int]:
    """Return the numbers of the checkpoints, each of which must be whole, with its write."""
    found = [each async for each in saver.alist(at(thread_id))]
    for each in found:
        number = int(each.checkpoint["id"])
        assert each.checkpoint["channel_values"] == {"own": f"value {number}", "shared": f"odd {number % 2}"}
        assert each.pending_writes == [("task", "own", number)]
    return [int(each.checkpoint["id"]) for each in found]


@pytest.mark.parametrize("removal", ["delete", "prune", "runs"])
async def test_a_copy_beside_a_removal_is_whole_or_refused_and_then_leaves_nothing(
    memory: Memory, interruption: Interruption, removal: str
) -> None:
    saver = RedismemSaver(memory)
    removals: dict[str, Action] = {
        "delete": lambda: saver.adelete_thread("a"),
        "prune": lambda: saver.aprune(["a"]),
        "runs": lambda: saver.adelete_for_runs(["run 1", "run 3"]),
    }
    outcomes = []
    for place in range(1, 100):
        await fill(saver, "a")
        try:
            went_on = await interruption.before(place, removals[removal], saver.acopy_thread("a", "b"))
            outcomes.append(await numbers(saver, "b"))
        except RecordConflict:
            went_on = True
            assert not await memory.record("langgraph:b").exists()
            outcomes.append([-1])
        await saver.adelete_thread("b")
        await saver.adelete_thread("a")
        if not went_on:
            break
    whole, left = [5, 4, 3, 2, 1, 0], {"delete": [], "prune": [5], "runs": [5, 4, 2, 0]}[removal]
    assert [each for each in outcomes if each not in (whole, left, [-1])] == []
    assert [-1] in outcomes
    assert whole in outcomes


async def names(memory: Memory, raw: Any, thread_id: str) -> tuple[set[bytes], list[bytes]]:
    """Return the fields and the members of a thread."""
    keys = memory.record(f"langgraph:{thread_id}").keys
    return set(await raw.hkeys(keys.record)), await raw.zrange(keys.order, 0, -1)


@pytest.mark.parametrize("action", ["put", "delete", "copy"])
async def test_a_copy_into_a_thread_that_another_writes_or_deletes_is_refused_and_leaves_nothing(
    memory: Memory, raw: Any, interruption: Interruption, action: str
) -> None:
    saver = RedismemSaver(memory)
    await fill(saver, "a")
    actions: dict[str, Action] = {
        "put": lambda: put(saver, "b", 1, None),
        "delete": lambda: saver.adelete_thread("b"),
        "copy": lambda: saver.acopy_thread("a", "b"),
    }
    await put(saver, "other", 1, None)
    left = {
        (): (set(), []),
        (1,): await names(memory, raw, "other"),
        (5, 4, 3, 2, 1, 0): await names(memory, raw, "a"),
    }
    refused = 0
    for place in range(1, 100):
        try:
            if not await interruption.before(place, actions[action], saver.acopy_thread("a", "b")):
                break
        except RecordConflict:
            refused += 1
            found = tuple(await numbers(saver, "b"))
            assert await names(memory, raw, "b") == left[found]
        await saver.adelete_thread("b")
    assert refused > 2


async def test_a_refused_copy_leaves_the_pending_writes_of_others(
    memory: Memory, raw: Any, interruption: Interruption
) -> None:
    saver = RedismemSaver(memory)
    await saver.aput_writes(at("b", 7), [("own", 7)], "task")
    before = await names(memory, raw, "b")
    for place in range(1, 100):
        await fill(saver, "a")
        try:
            if not await interruption.before(place, lambda: saver.adelete_thread("a"), saver.acopy_thread("a", "b")):
                break
        except RecordConflict:
            assert await names(memory, raw, "b") == before
    assert await numbers(saver, "b") == [5, 4, 3, 2, 1, 0]


async def test_a_removal_spares_the_values_of_a_checkpoint_that_is_put_meanwhile(
    memory: Memory, interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.adapters.langgraph.upkeep._CHANGE_COUNT", 3)
    saver = RedismemSaver(memory)
    for removal, left in (
        (lambda: saver.aprune(["a"]), {(5,), (8,), (8, 5)}),
        (lambda: saver.adelete_for_runs(["run 0", "run 2", "run 4"]), {(8, 5, 3, 1)}),
    ):
        for place in range(1, 100):
            await fill(saver, "a")
            went_on = await interruption.before(place, lambda: put(saver, "a", 8, 2), removal())
            assert not went_on or tuple(await numbers(saver, "a")) in left
            record = memory.record("langgraph:a")
            runs = [found.member.split(b"\0")[0] for found in (await record.page(b"r:")).found]
            assert sorted(runs) == sorted(b"r:run %d" % number for number in await numbers(saver, "a"))
            await saver.adelete_thread("a")
            if not went_on:
                break


async def test_a_removal_gives_up_where_others_never_stop_to_write(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = RedismemSaver(memory)
    await fill(saver, "a")
    original: Any = Record.get

    async def get(record: Record, *fields: bytes) -> Any:
        found = await original(record, *fields)
        await put(saver, "a", 9, 5)
        return found

    monkeypatch.setattr(Record, "get", get)
    with pytest.raises(RecordConflict, match="keep writing"):
        await saver.aprune(["a"])
    assert await numbers(saver, "a") == [9, 5, 4, 3, 2, 1, 0]


async def test_a_run_whose_thread_was_deleted_does_not_bring_it_back(memory: Memory) -> None:
    saver = RedismemSaver(memory)
    await fill(saver, "a")
    await saver.adelete_thread("a")
    with pytest.raises(RecordConflict, match="deleted or pruned while the run went on"):
        await put(saver, "a", 6, 5)
    assert not await memory.record("langgraph:a").exists()


def extend(state: list[str], writes: list[list[str]]) -> list[str]:
    return [*state, *(word for write in writes for word in write)]


class Plain(TypedDict):
    name: str
    words: list[str]


class Rebuilt(TypedDict):
    name: str
    words: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=50)]


def build(schema: Any, saver: RedismemSaver, node: Any) -> Any:
    builder = StateGraph(schema)
    builder.add_node("one", node)
    builder.add_edge(START, "one")
    builder.add_edge("one", END)
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["exit", "sync", "async"])
@pytest.mark.parametrize("schema", [Plain, Rebuilt])
async def test_a_run_from_an_older_checkpoint_survives_a_prune_or_is_refused(
    memory: Memory, durability: Any, schema: Any
) -> None:
    saver = RedismemSaver(memory)
    prunes: list[str] = []

    async def node(state: Any) -> Any:
        if prunes:
            await saver.aprune(prunes)
        return {"words": ["a word"]}

    graph = build(schema, saver, node)
    await graph.ainvoke({"name": "ann", "words": []}, at("a"))
    older = (await graph.aget_state(at("a"))).config
    for _ in range(3):
        await graph.aupdate_state(at("a"), {"name": "bo"})
    prunes.append("a")
    try:
        await graph.ainvoke({"words": ["more"]}, older, durability=durability)
    except RecordConflict:
        assert schema is Rebuilt
        assert (await graph.aget_state(at("a"))).values == {"name": "bo", "words": ["a word"]}
    else:
        words = ["a word"] if schema is Plain else ["a word", "more", "a word"]
        assert (await graph.aget_state(at("a"))).values == {"name": "ann", "words": words}
