"""Agent Framework's checkpoint storage: the same answers as the framework's own storages."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from agent_framework import (
    FileCheckpointStorage,
    InMemoryCheckpointStorage,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)
from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0, Clock
from support.proxy import Proxy
from support.stores import PATIENCE, Store, short_deadlines

from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, Memory, OwnerMismatch, Settings, StoreUnavailable
from redismem.adapters.agent_framework import CheckpointStorage

MINE = f"{__name__}:Mine"
numbers = itertools.count(1)


@dataclass
class Mine:
    """A type of the app."""

    text: str

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("this can be pickled, and not copied")


@dataclass
class Other:
    """A type that no storage allows."""

    text: str


class Unpicklable:
    def __reduce__(self) -> Any:
        raise RuntimeError("not this one")


def make(id: str, workflow: str = "w", time: int = 0, **fields: Any) -> WorkflowCheckpoint:
    timestamp = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=time)).isoformat()
    return WorkflowCheckpoint(workflow, "hash", checkpoint_id=id, timestamp=timestamp, **fields)


def ids(checkpoints: list[WorkflowCheckpoint]) -> list[str]:
    return sorted(each.checkpoint_id for each in checkpoints)


values = st.sampled_from(
    [
        {"text": "ö\ud800", "none": None, "real": 0.5, "nested": {"list": [1, {"a": "b"}]}},
        {"tuple": (1, ("a",)), "set": {1}, 1: "a", "time": datetime(2026, 1, 1, tzinfo=UTC), "bytes": b"\x00"},
        {"decimal": Decimal("1.5"), "uuid": UUID(int=1), "order": OrderedDict(b=1, a=2), "__pickled__": "x"},
        {"event": WorkflowEvent(type="output", data="x")},
    ]
)
names = st.sampled_from(["w", "w:x", "w/ö", "w%3Ax"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["save", "save", "save", "load", "delete", "list"]),
        st.sampled_from(["a", "b", "a:b", "ö", "a%3Ab"]),
        names,
        st.integers(0, 3),
        values,
    ),
    max_size=10,
)


async def outcome(storage: Any, step: Any) -> Any:
    method, id, workflow, time, state = step
    try:
        if method == "save":
            return await storage.save(make(id, workflow, time, state=state))
        if method == "list":
            listed = await storage.list_checkpoints(workflow_name=workflow)
            assert ids(listed) == sorted(await storage.list_checkpoint_ids(workflow_name=workflow))
            latest = await storage.get_latest(workflow_name=workflow)
            return sorted(map(repr, listed)), None if latest is None else latest.timestamp
        return repr(await getattr(storage, method)(id))
    except WorkflowCheckpointException as error:
        return type(error)


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_the_frameworks_storage(
    memory: Memory, given_steps: Any
) -> None:
    session_id = f"s{next(numbers)}"
    theirs, ours = InMemoryCheckpointStorage(), CheckpointStorage(session_id, memory=memory)
    for step in given_steps:
        # The file storage encodes keys of mappings as texts, and so do we.
        step = (*step[:4], {str(key): value for key, value in step[4].items() if key != "__pickled__"})
        assert await outcome(ours, step) == await outcome(theirs, step), step
    record = memory.record(f"agent_checkpoint:{session_id}")
    left = [found.member for found in (await record.page()).found]
    assert len(left) == len(theirs._checkpoints)


async def test_values_and_types_come_back_as_from_files(memory: Memory, tmp_path: Path) -> None:
    state = {"mine": Mine("a"), "__pickled__": 1, "numbers": {1: "a", "1": "b"}, "nan": [float("inf")]}
    said, message = Message("user", ["hello"]), WorkflowMessage(data=Mine("b"), source_id="a", target_id="b")
    for storage in (
        FileCheckpointStorage(tmp_path, allowed_checkpoint_types=[MINE]),
        CheckpointStorage("s", memory=memory, allowed_checkpoint_types=[MINE]),
    ):
        await storage.save(make("m", "v", state={"message": said}))
        saved = make("a", state=state, messages={"b": [message]}, metadata={"deep": {"x": [1]}}, iteration_count=3)
        assert await storage.save(saved) == "a"
        loaded = await storage.load("a")
        assert loaded == saved
        assert (await storage.load("m")).state["message"].to_dict() == said.to_dict()
        assert type(loaded.messages["b"][0].data) is Mine
        loaded.metadata["deep"]["x"].append(2)  # what a caller changes is its own
        assert await storage.load("a") == saved
        for unfit in (Other("x"), Unpicklable(), (Unpicklable(),), lambda: 0):
            with pytest.raises(WorkflowCheckpointException):
                await storage.save(make("b", state={"x": unfit}))
        assert await storage.list_checkpoint_ids(workflow_name="w") == ["a"]
    with pytest.raises(WorkflowCheckpointException, match="ISO 8601"):
        await CheckpointStorage("s", memory=memory).save(WorkflowCheckpoint("w", "h", timestamp="yesterday"))


async def test_types_that_are_not_allowed_are_never_made_and_the_latest_readable_checkpoint_is_found(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    writer = CheckpointStorage("s", memory=memory, allowed_checkpoint_types=[MINE])
    for time, state in enumerate([{"x": 1}, {"x": Mine("canary")}, {"x": Mine("canary")}]):
        await writer.save(make(f"c{time}", time=time, state=state))
    reader = CheckpointStorage("s", memory=memory)
    with pytest.raises(WorkflowCheckpointException, match="blocked"):
        await reader.load("c2")
    with caplog.at_level(logging.WARNING):
        latest = await reader.get_latest(workflow_name="w")
        assert latest is not None
        assert latest.checkpoint_id == "c0"
        assert await reader.list_checkpoint_ids(workflow_name="w") == ["c0"]
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["2", "2"]
    assert "canary" not in caplog.text


async def test_checkpoints_of_many_writers_and_pages_are_all_kept_and_sorted_by_time(
    store: Store, namespace: str
) -> None:
    async with store.memory(namespace) as first, store.memory(namespace) as second:
        storages = [CheckpointStorage("s", memory=memory) for memory in (first, second)]
        saves = [storages[number % 2].save(make(f"c{number}", time=number)) for number in range(120)]
        again = [storages[number % 2].save(make("same", "v", time=number)) for number in range(8)]
        await asyncio.gather(*saves, *again)
        listed = await storages[0].list_checkpoint_ids(workflow_name="w")
        assert listed == [f"c{number}" for number in range(120)]
        assert await storages[1].list_checkpoint_ids(workflow_name="v") == ["same"]
        deleted = await asyncio.gather(*(storage.delete("same") for storage in storages * 4))
        assert deleted.count(True) == 1
        assert await storages[0].get_latest(workflow_name="v") is None


async def test_sessions_share_nothing_and_go_with_their_person(memory: Memory) -> None:
    ann, bob = (CheckpointStorage(id, memory=memory, owner=id) for id in ("ann", "bob"))
    await ann.save(make("a", state={"secret": "of ann"}))
    with pytest.raises(WorkflowCheckpointException):
        await bob.load("a")
    assert await bob.get_latest(workflow_name="w") is None
    assert not await bob.delete("a")
    await bob.save(make("a", state={"secret": "of bob"}))
    with pytest.raises(OwnerMismatch):
        await CheckpointStorage("ann", memory=memory, owner="bob").load("a")
    assert (await memory.forget(owner="ann")).record_count == 1
    with pytest.raises(WorkflowCheckpointException):
        await ann.load("a")
    assert (await bob.load("a")).state == {"secret": "of bob"}


async def test_checkpoints_expire_after_their_last_use(store: Store, namespace: str, raw: Any, clock: Clock) -> None:
    clock.now_ms = T0
    async with store.memory(namespace) as memory:
        storage = CheckpointStorage("s", memory=memory, ttl=60)
        await storage.save(make("a"))
        uses = [storage.load("a"), storage.get_latest(workflow_name="w"), storage.list_checkpoints(workflow_name="w")]
        for use in uses:
            clock.now_ms += 1_000
            await use
            [key] = [key async for key in raw.scan_iter(f"*{namespace}:*:record:agent_checkpoint:s")]
            assert await raw.pexpiretime(key) == clock.now_ms + 60_000


async def test_an_outage_is_an_error_and_no_missing_checkpoint(proxy: Proxy, namespace: str) -> None:
    settings = Settings(**PATIENCE)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings, fallback=True) as memory:
        storage = CheckpointStorage("s", memory=memory)
        await storage.save(make("a"))
        await proxy.refuse()
        with short_deadlines(memory):
            for call in (storage.load("a"), storage.get_latest(workflow_name="w"), storage.save(make("b"))):
                with pytest.raises(StoreUnavailable):
                    await call
        await proxy.accept_again()


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    for id, options, error in (
        ("", {"memory": memory}, InvalidSessionId),
        ("s", {"memory": memory, "ttl": 0}, InvalidRecord),
        ("s", {"memory": memory, "key_prefix": None}, InvalidSessionId),
        ("s", {"memory": memory, "owner": ""}, InvalidSessionId),
        ("s", {"memory": memory, "url": "memory://"}, InvalidSettings),
    ):
        with pytest.raises(error):
            CheckpointStorage(id, **options)
    async with CheckpointStorage("s", "memory://") as own:
        assert await own.list_checkpoints(workflow_name="w") == []
