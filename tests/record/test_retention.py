"""Policies of records, which workers apply: what goes, what never goes, and what is written meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict
from unittest.mock import AsyncMock

import pytest
from agent_framework import WorkflowCheckpoint
from google.adk.events.event import Event as AdkEvent
from google.adk.events.event_actions import EventActions
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from pydantic_ai.conversation_store import ConversationRecord
from support.checks import until
from support.redis_server import RedisServer
from support.stores import PATIENCE
from support.waiting import START_S

import redismem
from redismem import InvalidRecord, Memory, RecordConflict, Settings
from redismem.adapters import claude_agent_sdk
from redismem.adapters.agent_framework import CheckpointStorage
from redismem.adapters.claude_agent_sdk import SessionStore
from redismem.adapters.google_adk import SessionService
from redismem.adapters.langgraph import RedismemSaver
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.adapters.strands import Storage
from redismem.record import Change, Record, trimming
from redismem.workers.eviction import Eviction

STATES_OF_ALL = EventActions(state_delta={"app:a": 1, "user:u": 2, "s": 3})
THREAD: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict):
    words: Annotated[list[str], lambda old, new: [*old, *new]]
    note: str


def extend(words: list[str], writes: list[list[str]]) -> list[str]:
    return [*words, *(word for write in writes for word in write)]


class Delta(TypedDict):
    words: Annotated[list[str], DeltaChannel(extend, list, snapshot_frequency=50)]


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


def build(saver: RedismemSaver | None, schema: Any = State, *, asks: bool = False) -> Any:
    builder = StateGraph(schema)
    builder.add_node("one", lambda state: {"words": [f"one {len(state['words'])}"]})
    builder.add_node("two", lambda _: {"words": [interrupt("which?") if asks else "two"]})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    return builder.compile(checkpointer=saver)


async def ids_of(saver: RedismemSaver) -> list[str]:
    return [found.config["configurable"]["checkpoint_id"] async for found in saver.alist(THREAD)]


async def members_of(memory: Memory) -> list[bytes]:
    return [found.member for found in (await memory.record("langgraph:t").page(limit=1_000)).found]


async def test_a_worker_keeps_the_newest_checkpoints_whole_with_their_interrupt_and_nothing_of_older_ones(
    memory: Memory, redis_server: RedisServer
) -> None:
    saver = RedismemSaver(memory, keep_last=3, ttl={"default_ttl": 60})
    graph = build(saver, asks=True)
    for turn in range(4):
        await graph.ainvoke({"words": [f"question {turn}"], "note": "x" * 50}, THREAD)
        if turn < 3:
            await graph.ainvoke(Command(resume=f"answer {turn}"), THREAD)
    before, key = await ids_of(saver), memory.record("langgraph:t").keys.record
    state, expires_ms = await graph.aget_state(THREAD), redis_server.say("PEXPIRETIME", key)
    settings = Settings(**PATIENCE, tick_s=0.05)
    namespace = memory.store.keys.namespace
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings, workers=True):
        order = memory.record("langgraph:t").keys.order
        await until(lambda: redis_server.say("ZLEXCOUNT", order, "[c:", "(c;") == 3, START_S)
    await Eviction(memory.store).sweep()
    assert (await ids_of(saver), redis_server.say("PEXPIRETIME", key)) == (before[:3], expires_ms)
    for found in [found async for found in saver.alist(THREAD)]:
        assert found.checkpoint["channel_values"]["note"] == "x" * 50
    of_checkpoints = [member for member in await members_of(memory) if member[:2] in (b"c:", b"w:", b"r:")]
    assert all(any(kept.encode() in member for kept in before[:3]) for member in of_checkpoints)
    assert (await graph.aget_state(THREAD)).values == state.values
    done = await graph.ainvoke(Command(resume="the last"), THREAD)
    assert done["words"][-1] == "the last"
    assert len(done["words"]) == 12
    await build(RedismemSaver(memory)).aupdate_state(THREAD, {"note": "y"})  # without a policy, nothing goes
    kept = await ids_of(saver)
    await Eviction(memory.store).sweep()
    assert await ids_of(saver) == kept


async def test_an_age_leaves_the_newest_checkpoint_and_no_delta_channel_is_cut(memory: Memory) -> None:
    saver = RedismemSaver(memory, max_age=0.001)
    graph = build(saver)
    await graph.ainvoke({"words": ["a"], "note": ""}, THREAD)
    [newest, *_] = await ids_of(saver)
    await until_older(memory)
    await Eviction(memory.store).sweep()
    assert await ids_of(saver) == [newest]
    await saver.adelete_thread("t")
    delta = build(saver, Delta)
    for turn in range(3):
        state = await delta.ainvoke({"words": [str(turn)]}, THREAD)
    ids = await ids_of(saver)
    await until_older(memory)
    await Eviction(memory.store).sweep()
    assert await ids_of(saver) == ids
    assert (await delta.aget_state(THREAD)).values == state


async def test_a_subgraph_goes_with_the_checkpoint_that_began_it_and_an_interrupt_in_it_stays(memory: Memory) -> None:
    saver = RedismemSaver(memory, keep_last=2)
    inner = build(None, asks=True)
    graph = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)
    for turn in range(4):
        await graph.ainvoke({"words": [f"question {turn}"], "note": ""}, THREAD)
        await Eviction(memory.store).sweep()
        done = await graph.ainvoke(Command(resume=f"answer {turn}"), THREAD)
        assert done["words"][-1] == f"answer {turn}"
    await Eviction(memory.store).sweep()
    members = [member[2:].split(b"\0")[0] for member in await members_of(memory) if member[:2] in (b"c:", b"w:")]
    namespaces = set(members)
    assert len(namespaces) == 2, "the graph, and the subgraph of its last turn"
    assert b"" in namespaces


async def test_a_run_from_an_older_checkpoint_finds_the_state_of_its_subgraph(memory: Memory) -> None:
    saver = RedismemSaver(memory, keep_last=4)
    inner = StateGraph(State)
    for name in ("a", "b", "c"):
        inner.add_node(name, lambda state, name=name: {"words": [f"{name} {len(state['words'])}"]})
    inner.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c")
    graph = StateGraph(State).add_node("inner", inner.compile(checkpointer=True)).add_edge(START, "inner")
    compiled = graph.compile(checkpointer=saver)
    for turn in range(3):
        done = await compiled.ainvoke({"words": [f"question {turn}"], "note": ""}, THREAD)
    counts = []
    for sweeps in (0, 2):
        for _ in range(sweeps):
            await Eviction(memory.store).sweep()
        history = [state async for state in compiled.aget_state_history(THREAD)]
        [before] = [state for state in history[:4] if state.next == ("inner",)][-1:]
        counts.append(len(history))
        assert (await compiled.ainvoke(None, before.config))["words"] == done["words"]
    assert (counts[0] > 4, counts[1]) == (True, 4)


async def test_a_checkpoint_that_another_writer_saves_from_removal_has_its_writes(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = RedismemSaver(memory, keep_last=1)
    await build(saver).ainvoke({"words": ["a"], "note": ""}, THREAD)
    before = [found async for found in saver.alist(THREAD)]
    with monkeypatch.context() as patched:
        patched.setattr(Record, "write", AsyncMock(side_effect=RecordConflict("", record_id="t")))
        await Eviction(memory.store).sweep()
    assert [found async for found in saver.alist(THREAD)] == before
    await Eviction(memory.store).sweep()
    assert [member for member in await members_of(memory) if member[:2] in (b"r:", b"w:")] == []


async def test_nothing_of_removed_checkpoints_is_left_by_a_worker_that_was_killed(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = RedismemSaver(memory, keep_last=1)
    await build(saver).ainvoke({"words": ["a"], "note": ""}, {**THREAD, "metadata": {"run_id": "r"}})
    with monkeypatch.context() as patched:
        patched.setattr(Record, "drop", AsyncMock(side_effect=asyncio.CancelledError))
        with pytest.raises(asyncio.CancelledError):
            await Eviction(memory.store).sweep()
    assert len(await ids_of(saver)) == 1
    assert {member[:2] for member in await members_of(memory)} == {b"c:", b"r:", b"w:"}
    coming: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "2"}}
    await saver.aput_writes(coming, [("note", "x")], "task")  # LangGraph stores it beside its checkpoint
    await Eviction(memory.store).sweep()
    assert [member[:2] for member in await members_of(memory)] == [b"c:", b"r:", b"w:"]
    assert await memory.record("langgraph:t").get(b"x") == [None]


async def until_older(memory: Memory) -> None:
    """Wait until the server's clock is some milliseconds further."""
    begun_ms = await memory.server_time_ms()
    await until(lambda: time.time() * 1_000 > begun_ms + 3, START_S)


async def test_checkpoints_that_are_written_meanwhile_are_whole(memory: Memory, redis_server: RedisServer) -> None:
    saver, is_done = RedismemSaver(memory, keep_last=2), asyncio.Event()
    namespace = memory.store.keys.namespace

    async def write() -> None:
        for number in range(12):
            await build(saver).ainvoke({"words": [str(number)], "note": f"note {number}"}, THREAD)
        is_done.set()

    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as other:
        writing, sweeper = asyncio.create_task(write()), Eviction(other.store)
        while not is_done.is_set() and not writing.done():
            await sweeper.sweep()
        await writing
        while len(await ids_of(saver)) > 2:
            await sweeper.sweep()
    found = [each async for each in saver.alist(THREAD)]
    assert [len(each.checkpoint["channel_values"]["words"]) for each in found] == [36, 35]
    assert {each.checkpoint["channel_values"]["note"] for each in found} == {"note 11"}


async def test_checkpoints_of_workflows_and_sessions_of_projects_go_by_number_and_by_age(memory: Memory) -> None:
    now = datetime.now(UTC)
    for name, options in (("count", {"keep_last": 2}), ("age", {"max_age": 3_600})):
        storage = CheckpointStorage(name, memory=memory, **options)  # type: ignore[arg-type]
        for hours in (5, 3, 2, 0.5):
            at = (now - timedelta(hours=hours)).isoformat()
            for workflow in ("a", "b:c"):
                point = WorkflowCheckpoint(workflow, "hash", checkpoint_id=f"{workflow}:{hours}", timestamp=at)
                await storage.save(point)
        store = SessionStore(memory=memory, key_prefix=name, **options)  # type: ignore[arg-type]
        for session_id in "abc":
            for key in ({"session_id": session_id}, {"session_id": session_id, "subpath": "subagents/x"}):
                await store.append({"project_key": "p", **key}, [{"type": "user", "uuid": "u"}])  # type: ignore[typeddict-item]
    await Eviction(memory.store).sweep()
    for workflow in ("a", "b:c"):
        for name, kept in (("count", (2, 0.5)), ("age", (0.5,))):
            storage = CheckpointStorage(name, memory=memory)
            assert await storage.list_checkpoint_ids(workflow_name=workflow) == [f"{workflow}:{at}" for at in kept]
            with pytest.raises(Exception, match="No checkpoint"):
                await storage.load(f"{workflow}:5")
    for name, left in (("count", ["b", "c"]), ("age", ["a", "b", "c"])):
        rows = await SessionStore(memory=memory, key_prefix=name).list_sessions("p")
        assert sorted(row["session_id"] for row in rows) == left


async def test_the_entries_of_a_subagent_keep_its_session(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    key: Any = {"project_key": "p", "session_id": "s"}
    old: Any
    later: Any
    sub: Any
    old, later, sub = ({**key, **part} for part in ({"session_id": "old"}, {"session_id": "later"}, {"subpath": "x"}))
    store = SessionStore(memory=memory, max_age=3_600)
    with monkeypatch.context() as patched:
        patched.setattr(claude_agent_sdk, "time", SimpleNamespace(time_ns=lambda: time.time_ns() - 7_200 * 10**9))
        await store.append(key, [{"type": "user", "uuid": "a"}])
        await store.append(old, [{"type": "user", "uuid": "a"}])
    await store.append(sub, [{"type": "assistant", "uuid": "b"}])
    await Eviction(memory.store).sweep()
    assert [row["session_id"] for row in await store.list_sessions("p")] == ["s"]
    counted = SessionStore(memory=memory, keep_last=1)
    await counted.append(later, [{"type": "user", "uuid": "a"}])
    await counted.append(sub, [{"type": "assistant", "uuid": "c"}])
    await Eviction(memory.store).sweep()
    assert [row["session_id"] for row in await store.list_sessions("p")] == ["s"]

    async def append_meanwhile(*_: object) -> bool:
        await store.append(sub, [{"type": "assistant", "uuid": "d"}])
        return True

    monkeypatch.setattr(trimming, "_is_beyond", append_meanwhile)
    await counted.append(key, [{"type": "user", "uuid": "e"}])
    await Eviction(memory.store).sweep()
    assert [len(await store.load(each) or ()) for each in (key, sub)] == [2, 3]


async def test_conversations_of_a_longer_prefix_count_for_none_of_a_shorter_one(memory: Memory) -> None:
    for prefix, others in (("team", "team:x"), ("", "x")):
        ours, theirs = (ConversationStore(memory=memory, key_prefix=name, keep_last=2) for name in (prefix, others))
        for number, store in enumerate((ours, ours, ours, theirs, theirs)):
            record = ConversationRecord(
                head_id=None, conversation_id=f"{number}", revision="1", scope="ann",
                updated_at=datetime(2026, 1, 1 + number, tzinfo=UTC),
            )  # fmt: skip
            await store.write_record(record, expected_revision=None)
        await Eviction(memory.store).sweep()
        left = [{record.conversation_id for record in await store.read_records()} for store in (ours, theirs)]
        assert left == [{"1", "2"}, {"3", "4"}]


async def test_conversations_and_sessions_of_one_person_push_out_no_other(memory: Memory) -> None:
    ours = ConversationStore(memory=memory, keep_last=1)
    for number, scope in enumerate(("anna", "anna", None, None, "bo")):
        at = datetime(2026, 1, 1 + number, tzinfo=UTC)
        record = ConversationRecord(
            head_id=None, conversation_id=f"{scope}-{number}", revision="1", scope=scope, updated_at=at
        )
        await ours.write_record(record, expected_revision=None)
    store = SessionStore(memory=memory, keep_last=1, owner=lambda key: key["session_id"][0])
    for session_id in ("a1", "b1", "a2"):
        await store.append({"project_key": "p", "session_id": session_id}, [{"type": "user"}])
    await Eviction(memory.store).sweep()
    assert {each.conversation_id for each in await ours.read_records()} == {"anna-1", "None-3", "bo-4"}
    assert sorted(row["session_id"] for row in await store.list_sessions("p")) == ["a2", "b1"]
    aged = ConversationStore(memory=memory, max_age=3_600)
    for revision, hours in (("2", 2), ("3", 0)):
        at = datetime.now(UTC) - timedelta(hours=hours)
        name = "old" if hours else "new"
        record = ConversationRecord(head_id=None, conversation_id=name, revision=revision, updated_at=at)
        await aged.write_record(record, expected_revision=None)
    await Eviction(memory.store).sweep()
    assert (await aged.read_record("old"), await aged.read_record("new") is None) == (None, False)


async def test_sessions_of_adk_go_by_user_and_snapshots_of_strands_by_agent(
    memory: Memory, redis_server: RedisServer
) -> None:
    now_s = time.time()
    for name, options in (("count", {"keep_last": 2}), ("age", {"max_age": 3_600})):
        service = SessionService(memory=memory, key_prefix=name, **options)  # type: ignore[arg-type]
        for hours, user, session_id in ((5, "anna", "a"), (3, "anna", "b"), (0, "anna", "c"), (3, "bo", "d")):
            session = await service.create_session(app_name="shop", user_id=user, session_id=session_id)
            await service.append_event(
                session, AdkEvent(author="user", timestamp=now_s - hours * 3_600, actions=STATES_OF_ALL)
            )
        with redismem.blocking.Memory.connect(redis_server.url, namespace=memory.store.keys.namespace) as blocking:
            storage = Storage(memory=blocking, key_prefix=f"s{name}", **options)  # type: ignore[arg-type]
            for hours in (5, 3, 2, 0):
                text = f"{int((now_s - hours * 3_600) * 1_000):012x}"
                snapshot = f"snapshot_{text[:8]}-{text[8:]}-7000-8000-00000000000{hours}.json"
                await storage.write(f"session/x/scopes/agent/{name}/snapshots/immutable_history/{snapshot}", b"{}")
            for key in ("snapshot_latest.json", "immutable_history/snapshot_of_mine.json"):
                await storage.write(f"session/x/scopes/agent/{name}/snapshots/{key}", b"{}")
            await Eviction(memory.store).sweep()
            left = [key.rpartition("/")[2] for key in await storage.list()]
        assert [key[-6] for key in left if "-" in key] == (["2", "0"] if options == {"keep_last": 2} else ["0"])
        assert {"snapshot_latest.json", "snapshot_of_mine.json"} < {*left}
        sessions = (await service.list_sessions(app_name="shop")).sessions
        assert {each.id for each in sessions} == ({"b", "c", "d"} if options == {"keep_last": 2} else {"c"})
        assert all(each.state == {"app:a": 1, "user:u": 2, "s": 3} for each in sessions)


def test_policies_out_of_range_are_refused() -> None:
    for options in ({"keep_last": 0}, {"keep_last": True}, {"max_age": 0}, {"max_age": "1"}):
        for make in (RedismemSaver, SessionStore, SessionService, Storage):
            with pytest.raises(InvalidRecord):
                make(url="memory://", **options)


async def test_a_damaged_record_stays_and_is_named_in_the_log_and_the_others_go(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    service = SessionService(memory=memory, max_age=0.001)
    for session_id in ("damaged", "old"):
        await service.create_session(app_name="app", user_id="ann", session_id=session_id)
    [damaged] = [entry for entry in (await memory.records()).records if entry.id.endswith("/damaged")]
    record = memory.record(damaged.id, tag=damaged.tag, owner="ann")
    await record.write(Change(sets={b"m": b"no numbers"}))
    await until_older(memory)
    await Eviction(memory.store).sweep()
    left = [entry.id for entry in (await memory.records()).records if entry.id.count("/") == 2]
    assert left == [damaged.id]
    assert "cannot be applied: " in caplog.text
    assert "damaged" not in caplog.text
