"""CrewAI's persistence of flows: the answers of its own SQLite persistence. CrewAI needs an environment of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
pytest.importorskip("crewai")

import redis
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.flow import Flow, listen, start
from crewai.flow.persistence import SQLiteFlowPersistence, persist
from pydantic import BaseModel
from support.clock import T0
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from redismem import (
    InvalidRecord,
    InvalidSessionId,
    InvalidSettings,
    OwnerMismatch,
    Settings,
    StoreUnavailable,
    TooLarge,
)
from redismem.adapters.crewai import FlowPersistence
from redismem.blocking import Memory

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Order(BaseModel):
    id: str = "f"
    count: int = 0
    at: datetime | None = None


@dataclass
class Plain:
    text: str


@pytest.fixture(params=["real", "embedded"])
def memory(request: pytest.FixtureRequest, namespace: str) -> Iterator[Memory]:
    url = "memory://" if request.param == "embedded" else request.getfixturevalue("redis_server").url
    with Memory.connect(url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


@pytest.fixture(params=["theirs", "ours"])
def persistence(request: pytest.FixtureRequest, memory: Memory, tmp_path: Path) -> Any:
    return (
        SQLiteFlowPersistence(str(tmp_path / "flows.db"))
        if request.param == "theirs"
        else FlowPersistence(memory=memory)
    )


def waiting(flow_id: str = "f", **fields: Any) -> PendingFeedbackContext:
    given: dict[str, Any] = {"method_output": {"draft": 1}, "message": "Well?", "emit": ["yes", "no"]}
    return PendingFeedbackContext(flow_id, "app.Review", "review", **{**given, **fields})


def test_the_latest_state_is_loaded_whatever_it_holds(persistence: Any) -> None:
    assert persistence.load_state("f") is None
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    states: list[Any] = [
        {"text": "ö\ud800", "none": None, "deep": {"list": [1, {"a": 0.5}]}, 3: "three"},
        {"tuple": (1, 2), "model": Order(at=moment), "at": moment, "day": date(2026, 5, 1), "other": Decimal("1.5")},
        Order(count=1, at=moment),
        {},
    ]
    expected: list[Any] = [
        {"text": "ö\ud800", "none": None, "deep": {"list": [1, {"a": 0.5}]}, "3": "three"},
        {
            "tuple": [1, 2],
            "model": {"id": "f", "count": 0, "at": "2026-05-01T00:00:00Z"},
            "at": "2026-05-01T00:00:00+00:00",
            "day": "2026-05-01",
            "other": "1.5",
        },
        {"id": "f", "count": 1, "at": "2026-05-01T00:00:00Z"},
        {},
    ]
    for state, loaded in zip(states, expected, strict=True):
        persistence.save_state("f", "step", state)
        assert persistence.load_state("f") == loaded
    persistence.save_state("f", "step", {"kept": True})
    persistence.save_state("g:%3A", "step", {"of": {"x"}})
    assert persistence.load_state("f") == {"kept": True}
    assert persistence.load_state("g:%3A") == {"of": ["x"]}
    with pytest.raises(ValueError, match="either a Pydantic BaseModel or dict"):
        persistence.save_state("f", "step", ["no state"])
    circle: dict[str, Any] = {}
    circle["itself"] = circle
    with pytest.raises(ValueError, match="Circular"):
        persistence.save_state("f", "step", circle)
    assert persistence.load_state("f") == {"kept": True}


def test_a_flow_waits_until_it_is_told_not_to(persistence: Any) -> None:
    assert persistence.load_pending_feedback("f") is None
    persistence.clear_pending_feedback("f")
    assert persistence.load_state("f") is None
    for count in (1, 2):
        context = waiting(method_output=Plain("x"), metadata={"n": count}, execution_uuid="e", trace_context=(1, 2))
        persistence.save_pending_feedback("f", context, Order(count=count))
        state, loaded = persistence.load_pending_feedback("f")
        assert state == persistence.load_state("f") == {"id": "f", "count": count, "at": None}
        assert loaded.to_dict() == {**context.to_dict(), "method_output": {"text": "x"}}
        assert loaded.trace_context == (1, 2)
    persistence.save_state("f", "other", {"count": 3})
    assert persistence.load_pending_feedback("f")[0]["count"] == 2  # the state in which it began to wait
    persistence.clear_pending_feedback("f")
    assert persistence.load_pending_feedback("f") is None
    assert persistence.load_state("f") == {"count": 3}


def test_a_persisted_flow_goes_on_in_another_object(persistence: Any) -> None:
    @persist(persistence)
    class Counting(Flow[Order]):
        @start()
        def first(self) -> None:
            self.state.count += 1

        @listen(first)
        def second(self) -> int:
            self.state.count += 10
            return self.state.count

    counted = [Counting(suppress_flow_events=True).kickoff({"id": "flow-1"}) for _ in range(3)]
    assert counted == [11, 22, 33]
    assert persistence.load_state("flow-1")["count"] == 33


def test_a_dump_has_no_address_and_is_restored_by_its_type(monkeypatch: pytest.MonkeyPatch, memory: Memory) -> None:
    class Waiting(Flow[Order]):
        @start()
        def first(self) -> None: ...

    given = FlowPersistence("redis://:canary@127.0.0.1:1/0", key_prefix="tenant", ttl=60)
    dump = Waiting(persistence=given, suppress_flow_events=True).model_dump(mode="json", include={"persistence"})
    assert "canary" not in f"{dump}{given!r}"
    monkeypatch.setenv("REDISMEM_URL", "memory://")
    restored = Waiting.model_validate({**dump, "suppress_flow_events": True}).persistence
    assert isinstance(restored, FlowPersistence)
    assert (restored.key_prefix, restored.ttl) == ("tenant", 60)
    given.close()
    restored.close()


def test_threads_share_a_persistence_and_processes_the_flows(redis_server: RedisServer, namespace: str) -> None:
    with (
        Memory.connect(redis_server.url, namespace=namespace) as first,
        Memory.connect(redis_server.url, namespace=namespace) as second,
    ):
        both = FlowPersistence(memory=first), FlowPersistence(memory=second)
        errors: list[BaseException] = []

        def work(at: int) -> None:
            try:
                for count in range(20):
                    both[at % 2].save_pending_feedback(f"f{at}", waiting(), {"count": count})
                    state, _ = both[1 - at % 2].load_pending_feedback(f"f{at}") or ({}, None)
                    assert state == {"count": count}
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(at,)) for at in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


def test_flows_expire_and_are_forgotten_with_the_person(redis_server: RedisServer, namespace: str) -> None:
    now = [T0]
    with Memory.connect(redis_server.url, namespace=namespace, clock=lambda: now[0]) as memory:
        ours = FlowPersistence(memory=memory, ttl=60, owner={"a": "ann", "b": "bob"}.get)
        for flow in ("a", "b", "c"):
            ours.save_pending_feedback(flow, waiting(flow), {"secret": flow})
        now[0] += 1_000
        assert ours.load_state("a") == {"secret": "a"}
        with redis.Redis(port=redis_server.port) as raw:
            [key] = raw.keys(f"*{namespace}:*:record:crewai_flow:a")
            assert raw.pexpiretime(key) == T0 + 61_000
        with pytest.raises(OwnerMismatch):
            FlowPersistence(memory=memory, owner="bob").load_state("a")
        assert memory.forget(owner="ann").record_count == 1
        assert [ours.load_state(flow) for flow in ("a", "b", "c")] == [None, {"secret": "b"}, {"secret": "c"}]
        assert ours.load_pending_feedback("a") is None


async def test_an_outage_is_an_error_and_no_new_flow(proxy: Proxy, namespace: str) -> None:
    import asyncio

    memory = Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE), fallback=True)
    ours = FlowPersistence(memory=memory)
    await asyncio.to_thread(ours.save_state, "f", "step", {})
    await proxy.refuse()
    with short_deadlines(memory):
        for method, arguments in (
            ("load_state", ["f"]),
            ("save_state", ["f", "m", {}]),
            ("load_pending_feedback", ["f"]),
        ):
            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(getattr(ours, method), *arguments)
    await proxy.accept_again()
    await asyncio.to_thread(memory.close)


def test_a_damaged_flow_begins_anew(redis_server: RedisServer, namespace: str) -> None:
    with Memory.connect(redis_server.url, namespace=namespace) as memory, redis.Redis(port=redis_server.port) as raw:
        ours = FlowPersistence(memory=memory)
        ours.save_state("f", "step", {"count": 1})
        [key] = raw.keys(f"*{namespace}:*:record:crewai_flow:f")
        raw.hset(key, "", b"garbage")
        assert ours.load_state("f") is None
        ours.save_state("f", "step", {"count": 2})
        assert ours.load_state("f") == {"count": 2}


def test_invalid_arguments_are_refused(memory: Memory) -> None:
    given: Any
    for given, error in (
        ({"memory": memory, "ttl": 0}, InvalidRecord),
        ({"memory": memory, "key_prefix": None}, InvalidSessionId),
        ({"memory": memory, "owner": ""}, InvalidSessionId),
        ({"memory": memory, "url": "memory://"}, InvalidSettings),
        ({"memory": 3}, InvalidSettings),
    ):
        with pytest.raises(error):
            FlowPersistence(**given)
    ours = FlowPersistence(memory=memory)
    with pytest.raises(InvalidSessionId):
        ours.save_state("", "step", {})
    with pytest.raises(TooLarge):
        ours.save_state("f", "step", {"long": "x" * (65 << 20)})
