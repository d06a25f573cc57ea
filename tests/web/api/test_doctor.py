"""`GET /v1/doctor` and `redismem_finding`: each real fault is seen at the next request, and so is its repair."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from prometheus_client.parser import text_string_to_metric_families
from support.clock import Clock
from support.http_service import RunningService, serve_memory
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory, Settings
from redismem.errors import ProviderUnavailable
from redismem.inspection import checkup
from redismem.models import Draft
from redismem.workers.scheduler import Scheduler

# They depend on the release of the server, on the machine, and on the clock of the test.
KNOWN = {"version", "latency", "clock"}
OPTIONS = ("--maxmemory", "100mb", "--client-output-buffer-limit", "normal 64mb 16mb 10")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server without any fault, whose configuration a test may spoil and must restore."""
    server = RedisServer(tmp_path_factory.mktemp("doctor"), aof=True, options=OPTIONS).start()
    yield server
    server.stop()


@pytest.fixture
async def memory(server: RedisServer, namespace: str, clock: Clock) -> AsyncIterator[Memory]:
    settings = Settings(max_sessions=60)
    async with Memory.connect(server.url, namespace=namespace, settings=settings, clock=clock) as memory:
        yield memory


class Down:
    """A provider that fails for all sessions."""

    provider = "openai"

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        raise ProviderUnavailable("503 overloaded", reason="503 overloaded")


class Up:
    """The same provider, once it answers again."""

    provider = "openai"

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        return Draft("they said x", 0, 0, "up")


async def findings(http: RunningService, **options: Any) -> dict[str, Any]:
    answer = await http.ask("GET", "/v1/doctor?again=true", **options)
    assert answer.status_code == 200
    rows = answer.json()["findings"]
    verdicts = [row["verdict"] for row in rows]
    assert verdicts == sorted(verdicts, key=["fail", "warn", "ok", "n/a"].index), "worst first"
    return {row["name"]: row for row in rows}


async def scraped(http: RunningService) -> dict[str, str]:
    text = (await http.ask("GET", "/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    verdicts = [each.labels for each in samples if each.name == "redismem_finding" and each.value == 1]
    return {labels["name"]: labels["verdict"] for labels in verdicts}


async def tick(scheduler: Scheduler) -> None:
    await scheduler.tick()
    await asyncio.gather(*scheduler._running)


async def test_a_sick_system_looks_sick_at_once_and_well_after_its_repair(
    server: RedisServer, memory: Memory, clock: Clock
) -> None:
    async def wrong() -> dict[str, str]:
        rows = await findings(http)
        assert await scraped(http) == {name: row["verdict"] for name, row in rows.items()}
        return {name: row["verdict"] for name, row in rows.items() if row["verdict"] != "ok" and name not in KNOWN}

    async with serve_memory(memory) as http, redis.asyncio.Redis(port=server.port) as raw:
        assert await wrong() == {}
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        for number in range(41):
            await memory.session(f"s-{number}").append(*({"role": "user", "content": "x"} for _ in range(12)))
        await tick(Scheduler(memory.store, Down()))  # and dies
        clock.now_ms += 4_000
        assert await wrong() == {"memory": "fail", "providers": "fail", "ticks": "warn"}
        document = (await http.ask("GET", "/v1/doctor")).json()
        rows = {row["name"]: row for row in document["findings"]}
        assert "noeviction" in rows["memory"]["advice"]
        assert "503 overloaded" in rows["providers"]["seen"]
        assert rows["ticks"]["seen"].endswith("one last polled 4.0 s ago, and 41 sessions overdue")
        assert document["processes"] == []

        await raw.config_set("maxmemory-policy", "noeviction")
        clock.now_ms += 600_000
        scheduler = Scheduler(memory.store, Up())
        for _ in range(3):
            await tick(scheduler)
        assert await wrong() == {}
        (process,) = (await http.ask("GET", "/v1/doctor")).json()["processes"]
        assert process["name"].startswith("process ")
        assert process["works"] == ["evictions (60 sessions, idle 24 h)", "summaries (openai)"]
        await scheduler.stop()


async def test_pages_that_poll_share_an_examination(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "QUICK_S", 60)
    async with serve_memory(memory) as http:
        await findings(http)
        answers = await asyncio.gather(*(http.ask("GET", "/v1/doctor") for _ in range(20)))
        moments: dict[str, set[int]] = {}
        for row in (row for answer in answers for row in answer.json()["findings"]):
            moments.setdefault(row["name"], set()).add(row["checked_ms"])
        latest_ms = max(max(seen) for seen in moments.values())
        assert all(row["checked_ms"] > latest_ms for row in (await findings(http)).values()), "again examines all"
    assert all(len(seen) == 1 for seen in moments.values()), moments


async def test_a_store_that_does_not_answer_is_a_finding(proxy: Any, namespace: str) -> None:
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=LONG_DEADLINES) as memory,
        serve_memory(memory) as http,
    ):
        await findings(http)
        await proxy.refuse()
        with short_deadlines(memory):
            rows = await findings(http)
            assert rows.keys() == {"connection", "model", "settings"}
            assert rows["connection"]["verdict"] == "fail"
            assert "Is the server up" in rows["connection"]["advice"]
            assert await scraped(http) == {"connection": "fail", "model": "ok", "settings": "ok"}
            unknown = (await http.ask("GET", "/v1/doctor")).json()
            assert [unknown[name] for name in ("queues", "processes", "ticked_ms")] == [None] * 3, "not read, not none"
