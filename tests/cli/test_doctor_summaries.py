"""The doctor on summaries: paused providers and dead sessions, each with its reason."""

import asyncio
import os
import time
from dataclasses import replace
from typing import Any

import pytest
from support.clock import Clock
from support.provider_server import ProviderServer
from support.waiting import wait_until
from support.writers import Echo

import redismem.blocking
from redismem import Memory, Settings
from redismem.context.info import Depth
from redismem.inspection import work_rules
from redismem.protocol.namespace.holds import Hold
from redismem.protocol.queue.provider_pauses import Pause
from redismem.workers.summaries import Worker


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def examine(command: Any, redis_options: Any) -> Any:
    """Return a function that runs the doctor and returns its findings by question."""

    def examine() -> Any:
        return {each["name"]: each for each in command("doctor", "--json", *redis_options).document["findings"]}

    return examine


def test_a_provider_that_refuses_the_key(
    examine: Any, command: Any, redis_options: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert examine()["providers"]["verdict"] == examine()["dead"]["verdict"] == "ok"
    with ProviderServer() as provider:
        for number in range(3):
            memory.session(f"s-{number}").append(*({"role": "user", "content": f"canary {n}"} for n in range(12)))
        provider.mode, provider.headers = "401", {"retry-after": "600"}
        for name, value in {
            "MODEL_PROVIDER": "openai",
            "MODEL": "some-model",
            "MODEL_API_KEY": "canary-key",
            "MODEL_BASE_URL": provider.base_url,
            "MODEL_ALLOW_HTTP": "true",
        }.items():
            monkeypatch.setenv(f"REDISMEM_{name}", value)
        ran = command("worker", "--once", *redis_options)
        assert ran.code == 1, "a due summary failed"
        assert "openai answered 401 invalid_api_key" in ran.err
        assert "canary" not in ran.out + ran.err
        found = examine()
        assert (found["providers"]["verdict"], found["dead"]["verdict"]) == ("fail", "ok")
        assert command("doctor", *redis_options).code == 1
        seen = found["providers"]["seen"]
        assert seen.startswith("openai/some-model has been paused for ")
        for said in ("openai answered 401 invalid_api_key", "1 failure", "next try in 10 min", "3 sessions overdue"):
            assert said in seen
        assert "REDISMEM_MODEL_" in found["providers"]["advice"]
        assert max(map(len, command("doctor", *redis_options).out.splitlines())) <= 80
        for number in range(3):
            info = memory.session(f"s-{number}").info()
            assert (info.queued, info.attempts) == ("overdue", 0)


def test_dead_sessions_are_reported_with_their_reason(
    examine: Any, command: Any, redis_options: Any, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProviderServer() as provider:
        memory.session("a").append(*({"role": "user", "content": f"canary {n}"} for n in range(12)))
        provider.mode = "400"
        for name, value in {
            "MODEL_PROVIDER": "openai",
            "MODEL": "some-model",
            "MODEL_BASE_URL": provider.base_url,
            "MODEL_ALLOW_HTTP": "true",
            "EXTRACTIVE_AFTER_S": "0",
        }.items():
            monkeypatch.setenv(f"REDISMEM_{name}", value)
        assert command("worker", "--once", *redis_options).code == 1
    found = examine()
    assert found["dead"]["verdict"] == "warn"
    assert "1 session; the oldest dead for " in found["dead"]["seen"]
    assert "after 1 attempt: openai answered 400 context_length_exceeded" in found["dead"]["seen"]


def test_overdue_sessions_without_a_worker_are_late(
    examine: Any, command: Any, redis_options: Any, redis_server: Any, namespace: str
) -> None:
    long_ago_ms = int(time.time() * 1000) - 14 * 3_600_000
    place: Any = redismem.blocking.Memory.connect
    with place(redis_server.url, namespace=namespace, clock=lambda: long_ago_ms) as memory:
        assert examine()["summaries"]["verdict"] == "ok"
        for number in range(2):
            memory.session(f"s-{number}").append(*({"role": "user", "content": "canary"} for _ in range(12)))
        found = examine()["summaries"]
        assert found["verdict"] == "warn"
        assert found["seen"] == "2 sessions overdue, the oldest for 14 h: is a worker running?"
        assert "redismem worker" in found["advice"]
        assert command("doctor", *redis_options).code == 0
        assert command("worker", "--once", *redis_options).code == 0
        assert examine()["summaries"]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("late_ms", "tick_s", "is_paused", "verdict"),
    [
        (60_000, 1, False, "ok"),
        (60_001, 1, False, "warn"),
        (60_001, 1, True, "ok"),
        (120_000, 30, False, "ok"),
        (150_001, 30, False, "warn"),
        (-300_000, 1, False, "ok"),
    ],
)
def test_a_wait_for_a_tick_or_a_pause_is_not_late(late_ms: int, tick_s: float, is_paused: bool, verdict: str) -> None:
    depth = Depth(3, 1_000_000 - late_ms)
    assert work_rules.summaries(depth, 1_000_000, Settings(tick_s=tick_s), is_paused=is_paused).verdict == verdict
    assert work_rules.summaries(Depth(0, None), 1_000_000, Settings(), is_paused=False).verdict == "ok"


def test_sessions_with_failing_summaries_are_reported(examine: Any, redis_server: Any, namespace: str) -> None:
    async def fail() -> None:
        settings = Settings(extractive_after_s=0)
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
            memory.store.clock = clock = Clock(await memory.server_time_ms() - 36_000_000)
            strategy = Echo()
            strategy.failures += [ValueError("canary")] * 2
            await memory.session("ill").append(*({"role": "user", "content": "canary"} for _ in range(12)))
            while strategy.failures:
                clock.now_ms += 1_000
                await Worker(memory.store, strategy).attend("ill")
            memory.store.clock = None
            await memory.session("well").append(*({"role": "user", "content": "canary"} for _ in range(12)))

    asyncio.run(fail())
    found = examine()["summaries"]
    assert (found["verdict"], "2 sessions overdue" in found["seen"]) == ("warn", True)
    assert found["seen"].endswith("; at least 1 failing, the first for 10 h: 2 failed attempts, last: ValueError")


def test_long_failures_are_reported_during_the_backoff_too() -> None:
    rested, failing = Depth(3, 1_005_000), [work_rules.FailureFacts(900_000, 4, None)]  # the next attempt is in 5 s
    found = work_rules.summaries(rested, 1_000_000, Settings(), is_paused=False, failing=failing)
    assert found.verdict == "warn"
    assert found.text.startswith(
        "3 sessions overdue; at least 1 failing, the first for 100.0 s: 4 failed attempts, last: no"
    )
    assert "redismem show" in found.advice
    assert work_rules.summaries(rested, 1_000_000, Settings(), is_paused=True, failing=failing).verdict == "ok"
    again = [work_rules.FailureFacts(900_000, 0, "x")]  # a dead session that was requeued
    found = work_rules.summaries(rested, 1_000_000, Settings(), is_paused=False, failing=again)
    assert found.text.endswith("the first for 100.0 s: x")
    lately = [work_rules.FailureFacts(990_000, 1, "x")]
    assert work_rules.summaries(rested, 1_000_000, Settings(), is_paused=False, failing=lately).verdict == "ok"


@pytest.mark.parametrize(
    ("variables", "verdict", "said"),
    [
        ({}, "ok", "all REDISMEM_* variables are valid"),
        ({"SERVER_RATE": "7"}, "ok", "all REDISMEM_* variables are valid"),
        ({"TRESHOLD": "canary"}, "warn", "REDISMEM_TRESHOLD is not a setting (did you mean REDISMEM_THRESHOLD?)"),
    ],
)
def test_unknown_variables_are_named_without_their_values(
    examine: Any,
    command: Any,
    redis_options: Any,
    monkeypatch: pytest.MonkeyPatch,
    variables: Any,
    verdict: str,
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"REDISMEM_{name}", value)
    found = examine()["settings"]
    assert (found["verdict"], found["seen"]) == (verdict, said)
    ran = command("doctor", *redis_options)
    assert ran.code == 0
    assert "canary" not in ran.out + ran.err


@pytest.mark.parametrize(
    ("variables", "verdict", "said"),
    [
        ({}, "ok", "no model is used"),
        ({"": "x"}, "warn", "a model is named, but not used"),
        ({"API_KEY": "canary"}, "warn", "a model is named, but not used"),
        ({"PROVIDER": "openai"}, "fail", "needs a model: set REDISMEM_MODEL"),
        ({"PROVIDER": "openai", "": "x"}, "warn", "openai, x: no key is set"),
        ({"PROVIDER": "openai", "": "x", "API_KEY": "canary"}, "ok", "openai, x"),
        ({"PROVIDER": "openai", "": "x", "BASE_URL": "http://127.0.0.1:1"}, "fail", "REDISMEM_MODEL_ALLOW_HTTP=true"),
        ({"PROVIDER": "openai", "": "x", "BASE_URL": "http://127.0.0.1:1", "ALLOW_HTTP": "1"}, "ok", "openai, x"),
    ],
)
def test_a_model_that_stops_a_worker_from_starting_fails(
    examine: Any,
    command: Any,
    redis_options: Any,
    monkeypatch: pytest.MonkeyPatch,
    variables: Any,
    verdict: str,
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"REDISMEM_MODEL_{name}".rstrip("_"), value)
    found = examine()["model"]
    assert found["verdict"] == verdict
    assert said in found["seen"]
    assert "canary" not in found["seen"] + found["advice"]
    assert (command("worker", "--once", *redis_options).code == 0) == (verdict != "fail")


def test_paused_providers_are_reported() -> None:
    pause = Pause(since_ms=1_000, failed_ms=2_000, until_ms=3_000, failures_count=2, reason="x answered 503")
    found = work_rules.providers({"a": pause, "b": replace(pause, since_ms=5)}, 1, 600_005)
    assert found.verdict == "warn"
    assert "if they name another, ignore this" in found.advice
    tried = work_rules.providers({"b": pause}, 1, 2_500)
    assert tried.verdict == "fail"
    assert "fails for all sessions" in tried.advice
    assert found.text == (
        "b has been paused for 10 min: x answered 503; 2 failures, next try due for 10 min; 1 session overdue; 1 more"
    )
    unknown = work_rules.dead(4, work_rules.FailureFacts(1_000, 0, None), 2_000)
    assert unknown.text == "4 sessions; the oldest dead for 1.0 s, after 0 attempts: no reason recorded"


def test_the_pod_that_polls_for_all_is_shown(examine: Any, redis_server: Any, namespace: str) -> None:
    assert examine()["ticks"]["seen"] == "no worker runs for this namespace"
    settings = Settings(tick_s=60)
    connected = redismem.blocking.Memory.connect(redis_server.url, namespace=namespace, settings=settings, workers=True)
    with connected as memory:
        wait_until(lambda: memory.health().holds, "its first tick")
        seen = examine()["ticks"]["seen"]
        assert seen.startswith(f"process {os.getpid()} on ")
        assert seen.endswith(": evictions (1,000 sessions, idle 24 h), summaries (Summarize)")
    assert examine()["ticks"]["verdict"] == "ok"
    held = work_rules.ticks({"summaries/x": Hold("pod/1/a", 9, True)}, 5, 1)
    assert (held.text, held.advice) == ("process 1 on pod: summaries (x) (all pods help)", "")
    foreign = work_rules.ticks({"evictions/x/y": Hold("a-pod", 9, False), "z": Hold("b/c", 9, False)}, 5, 0)
    assert foreign.text == "a-pod: evictions (x/y); b/c: z", "unknown names of another release are shown"
    over = {"summaries/x": Hold("pod/1/a", 9, True)}
    assert [work_rules.ticks(over, 9, count).verdict for count in (0, 1)] == ["ok", "warn"]
    assert work_rules.ticks(over, 9, 0).text == "no worker runs for this namespace"


def test_workers_of_which_none_writes_summaries_are_reported() -> None:
    """They may have the strategy none, while the pods that append have another."""
    idle_only = {"evictions/1000/5000": Hold("pod/1/a", 9, True)}
    found = work_rules.ticks(idle_only, 5, 2)
    assert found.verdict == "warn"
    assert found.text.endswith("none of them writes summaries, and 2 sessions overdue")
    assert "connect with `workers=True`" in found.advice
    assert work_rules.ticks(idle_only, 5, 0).verdict == "ok", "no session waits for a summary"
    assert work_rules.ticks(idle_only | {"summaries/x": Hold("pod/2/b", 9, False)}, 5, 2).verdict == "ok"


def test_waiting_sessions_without_a_polling_pod_are_reported(examine: Any, memory: Any) -> None:
    memory.session("a").append(*({"role": "user", "content": f"canary {n}"} for n in range(12)))
    found = examine()["ticks"]
    assert (found["verdict"], found["seen"]) == ("warn", "no worker runs for this namespace, and 1 session overdue")
    assert "redismem worker" in found["advice"]
