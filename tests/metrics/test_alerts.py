"""docs/alerts.yml over real scrapes: each alert fires for its cause, and none in ten healthy minutes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
import yaml
from support.alert_rules import RULES, Alerts, evaluate, parse_scrape
from support.checks import until
from support.clock import Clock
from support.http_service import serve_memory
from support.overloads import refusing
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from redismem import Memory, Settings
from redismem.errors import ModelFailed, StoreUnavailable
from redismem.models import Draft
from redismem.store.overload import refusals
from redismem.workers.scheduler import Scheduler

DOCS = Path(__file__).parents[2] / "docs"
STEP_MS = 30_000
SETTINGS = Settings(max_sessions=10, extractive_after_s=0, max_attempts=1, **PATIENCE)


class Writer:
    """A strategy that writes summaries, unless the test sets an error."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    async def compact(self, messages: Any, previous: str | None) -> Draft:
        if self.error is not None:
            raise self.error
        return Draft("they said x", 0, 0, "m")


class Watched:
    """A system that Prometheus scrapes every 30 seconds of the test's clock."""

    def __init__(self, server: RedisServer, memory: Memory, clock: Clock, http: Any) -> None:
        self.server, self.memory, self.clock, self._http = server, memory, clock, http
        self.alerts = Alerts()
        self.workers = ["10.0.0.1:9464", "10.0.0.2:9464"]
        self.writer = Writer()
        self.scheduler: Scheduler | None = Scheduler(memory.store, self.writer)

    async def scrape(self, minutes: float, *, is_up: bool = True, is_there: bool = True) -> set[str]:
        """Let this time pass, and return the alerts that fired in it. A server that is not there is no target."""
        fired: set[str] = set()
        for _ in range(int(minutes * 60_000 / STEP_MS)):
            self.clock.now_ms += STEP_MS
            if self.scheduler is not None:
                with contextlib.suppress(StoreUnavailable):
                    await self.scheduler.tick()
                await asyncio.gather(*self.scheduler._running)
            text = (await self._http.ask("GET", "/metrics")).text if is_up else None
            samples = parse_scrape(text) if is_there else []
            samples += [each for worker in self.workers for each in parse_scrape("", "redismem-worker", worker)]
            fired |= self.alerts.see(self.clock.now_ms / 1000, samples)
        return fired

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.memory.session(f"s-{number}").append(*({"role": "user", "content": "x"} for _ in range(12)))


@pytest.fixture
async def watched(
    tmp_path: Path, namespace: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    monkeypatch.setattr(refusals, "last_s", -math.inf)  # another test's
    server = RedisServer(tmp_path, aof=True, options=("--maxmemory", "100mb")).start()
    try:
        memory = Memory.connect(server.url, namespace=namespace, settings=SETTINGS, clock=clock)
        async with memory, serve_memory(memory) as http:
            yield Watched(server, memory, clock, http)
    finally:
        server.stop()


async def test_each_alert_fires_for_its_cause_and_none_on_a_healthy_system(watched: Watched) -> None:
    await watched.fill(3)
    assert await watched.scrape(10) == set()
    caused = {}
    for cause in CAUSES:
        fired = await cause(watched)
        caused[cause.__name__] = fired
        assert await watched.scrape(0.5) <= fired, "an alert may end a step late"
        assert await watched.scrape(1) == set(), f"well again after {cause.__name__}"
    assert caused == {
        "nobody_ticks": {"RedismemNobodyTicks"},
        "summaries_are_late": {"RedismemOverdue"},
        "a_session_dies": {"RedismemDead"},
        "many_sessions": {"RedismemNearSessionLimit"},
        "keys_are_evicted": {"RedismemWrongPolicy"},
        "redis_is_away": {"RedismemDegraded", "RedismemFindingFailed"},
        "calls_are_refused": {"RedismemOverloaded"},
        "no_scrape": {"RedismemDown"},
        "one_worker_is_gone": {"RedismemOneWorker"},
        "both_workers_are_gone": {"RedismemNoWorker"},
        "all_targets_are_gone": {"RedismemNoWorker", "RedismemNoFigures"},
    }
    assert set().union(*caused.values()) == {rule["alert"] for rule in Alerts().rules}


async def nobody_ticks(watched: Watched) -> set[str]:
    watched.scheduler = None
    fired = await watched.scrape(3)
    watched.scheduler = Scheduler(watched.memory.store, watched.writer)
    return fired


async def summaries_are_late(watched: Watched) -> set[str]:
    no_summaries = Settings(strategy="none", max_sessions=10)
    other = Memory.connect(watched.server.url, namespace=watched.memory.store.keys.namespace, settings=no_summaries)
    async with other:
        other.store.clock = watched.clock
        watched.scheduler = Scheduler(other.store)
        await watched.fill(2)
        fired = await watched.scrape(7)
    watched.scheduler = Scheduler(watched.memory.store, watched.writer)
    return fired


async def a_session_dies(watched: Watched) -> set[str]:
    watched.writer.error = ModelFailed("400", reason="400 too_long", permanent=True)
    await watched.fill(1)
    fired = await watched.scrape(6)
    watched.writer.error = None
    await watched.memory.session("s-0").clear()
    return fired


async def many_sessions(watched: Watched) -> set[str]:
    await watched.fill(9)
    fired = await watched.scrape(6)
    for number in range(9):
        await watched.memory.session(f"s-{number}").clear()
    return fired


async def keys_are_evicted(watched: Watched) -> set[str]:
    async with redis.asyncio.Redis(port=watched.server.port) as raw:
        await raw.config_set("maxmemory-policy", "allkeys-lru")
        fired = await watched.scrape(2)
        await raw.config_set("maxmemory-policy", "noeviction")
    return fired


async def redis_is_away(watched: Watched) -> set[str]:
    await asyncio.to_thread(watched.server.kill)
    with short_deadlines(watched.memory):
        fired = await watched.scrape(6)
    await asyncio.to_thread(watched.server.start)
    await until(partial(answers, watched.memory))
    return fired


async def answers(memory: Memory) -> bool:
    try:
        return await memory.ping()
    except StoreUnavailable:
        return False


async def calls_are_refused(watched: Watched) -> set[str]:
    with refusing(asyncio.get_running_loop()):
        return await watched.scrape(2)


async def no_scrape(watched: Watched) -> set[str]:
    return await watched.scrape(2, is_up=False)


async def one_worker_is_gone(watched: Watched) -> set[str]:
    gone = watched.workers.pop()
    fired = await watched.scrape(11)
    watched.workers.append(gone)
    return fired


async def both_workers_are_gone(watched: Watched) -> set[str]:
    watched.workers, gone = [], watched.workers
    fired = await watched.scrape(2)
    watched.workers = gone
    return fired


async def all_targets_are_gone(watched: Watched) -> set[str]:
    watched.workers, gone = [], watched.workers
    fired = await watched.scrape(6, is_there=False)
    watched.workers = gone
    return fired


CAUSES = (
    *(nobody_ticks, summaries_are_late, a_session_dies, many_sessions),
    *(keys_are_evicted, redis_is_away, calls_are_refused, no_scrape),
    *(one_worker_is_gone, both_workers_are_gone, all_targets_are_gone),
)


def test_the_evaluator_knows_each_form_and_refuses_others() -> None:
    samples = parse_scrape('a{namespace="x",q="o"} 3\na{namespace="y",q="o"} 9\nb{namespace="x",q="o"} 4\n')
    assert evaluate('max by (namespace) (a{q="o"}) > 3', samples) == {("y",): 9}
    assert evaluate('min by (job) (a{q!="p"}) >= 3', samples) == {("redismem-server",): 3}
    assert evaluate("max by (namespace) (a / b) >= 0.75", samples) == {("x",): 0.75}
    assert evaluate('min by (instance) (up{job=~"redismem.*"}) == 1', samples) == {("server:8080",): 1}
    assert evaluate('absent(a{q="o"})', samples) == evaluate('absent(a{q="o"} == 9)', samples) == {}
    assert evaluate('absent(a{q="p"})', samples) == evaluate('absent(a{q="o"} == 8)', samples) == {(): 1}
    assert evaluate("count by (q) (a == 9) < 2", samples) == {("o",): 1}
    assert evaluate("count by (q) (a == 9) < 1", samples) == evaluate("count by (q) (a == 8) < 2", samples) == {}
    for other in ("a > 3", "rate(a[5m]) > 3", 'max by (namespace) (a{q="o",}) > 3'):
        with pytest.raises(AssertionError):
            evaluate(other, samples)


def promtool_or_skip() -> str:
    if (promtool := shutil.which("promtool")) is None:
        pytest.skip("promtool is not installed: apt-get install prometheus brings it")
    return promtool


# Two workers, one sample a minute. One leaves its name after 4 minutes, the other after 24: their series become stale.
_LIVES = {"10.0.0.1:9464": "1x4 stale _x30", "10.0.0.2:9464": "1x24 stale _x10"}
_SELECTORS = ('up{job="redismem-worker", ', 'redismem_last_tick_age_seconds{namespace="shop", job="redismem-worker", ')
SERIES = [
    {"series": f'{selector}instance="{instance}"}}', "values": values}
    for selector in _SELECTORS
    for instance, values in _LIVES.items()
]
FIRING = {
    "RedismemOneWorker": {4: False, 14: False, 16: True, 34: False},
    "RedismemNoWorker": {4: False, 24: False, 27: True},
    "RedismemNoFigures": {4: False, 24: False, 29: False, 31: True},
    "RedismemDown": {4: False, 20: False, 34: False},
}


def test_workers_that_vanish_are_told_by_prometheus_itself(tmp_path: Path) -> None:
    promtool = promtool_or_skip()
    rules = {each["alert"]: each for group in yaml.safe_load(RULES.read_text())["groups"] for each in group["rules"]}
    labels = {"RedismemOneWorker": {"job": "redismem-worker"}}
    tests = [
        {
            "eval_time": f"{minute}m",
            "alertname": alert,
            "exp_alerts": [
                {
                    "exp_labels": {**rules[alert]["labels"], **labels.get(alert, {})},
                    "exp_annotations": rules[alert]["annotations"],
                }
            ]
            * is_firing,
        }
        for alert, moments in FIRING.items()
        for minute, is_firing in moments.items()
    ]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "30s",
        "tests": [{"interval": "1m", "input_series": SERIES, "alert_rule_test": tests}],
    }
    path = tmp_path / "vanished.yml"
    path.write_text(yaml.safe_dump(document))
    ran = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_name_of_the_workers_leads_to_all_that_compose_starts() -> None:
    config = yaml.safe_load((DOCS / "prometheus.yml").read_text())
    (job,) = (each for each in config["scrape_configs"] if each["job_name"] == "redismem-worker")
    (found,) = job["dns_sd_configs"]
    services = yaml.safe_load((DOCS.parent / "docker-compose.yml").read_text())["services"]
    (worker,) = (services[name] for name in found["names"])
    command = worker["command"]
    assert (found["type"], str(found["port"])) == ("A", command[command.index("--metrics-port") + 1])
    assert worker["deploy"]["replicas"] > 1


def test_prometheus_accepts_the_files() -> None:
    config = yaml.safe_load((DOCS / "prometheus.yml").read_text())
    assert config["rule_files"] == [RULES.name]
    promtool = promtool_or_skip()
    for words in (("check", "rules", str(RULES)), ("check", "config", "--syntax-only", str(DOCS / "prometheus.yml"))):
        ran = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
