"""`redismem worker`: its summaries, its evictions, and a stop during work."""

import contextlib
import json
import os
import signal
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.commands import TransportLayer, start_command, wait_for_exit, wait_for_line
from support.forks import Fork
from support.provider_server import ProviderServer
from support.waiting import START_S, wait_until

import redismem.blocking
from redismem.protocol.ids import session_hash
from redismem.protocol.scripts import load

SECRET = "the text of a message"


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def overdue(memory: Any) -> Any:
    """Create sessions that wait for a summary."""
    names = [f"s-{number}" for number in range(5)]
    for name in names:
        memory.session(name).append(*({"role": "user", "content": f"{SECRET} {n}."} for n in range(12)))
    return names


@pytest.fixture
def model() -> Any:
    """A provider that hangs until it is released."""
    with ProviderServer() as server:
        server.mode = "hang"
        yield server


@pytest.fixture
def by_model(model: Any) -> Any:
    """The environment of a worker that uses this model."""
    return {
        "REDISMEM_MODEL_PROVIDER": "openai",
        "REDISMEM_MODEL": "some-model",
        "REDISMEM_MODEL_API_KEY": "canary-key",
        "REDISMEM_MODEL_BASE_URL": model.base_url,
        "REDISMEM_MODEL_ALLOW_HTTP": "true",
        "REDISMEM_TICK_S": "0.05",
    }


def start_worker(*words: object, **environment: str) -> contextlib.AbstractContextManager[Fork]:
    """Start a worker with the usual priority: with a lower one it would wait for all other tests."""
    return start_command("worker", "--nice", 0, *words, **environment)


def covered_ranges(memory: Any, name: str) -> list[tuple[int, int]]:
    """Return the ranges of the summaries, after checking that the window has no gap."""
    context = memory.session(name).read()
    assert [each.seq for each in context.messages] == list(range(context.first_seq, context.total_messages + 1))
    return [(each.first_seq, each.last_seq) for each in context.summaries]


def test_once_summarises_all_that_is_due(command: Any, overdue: Any, memory: Any, redis_options: Any) -> None:
    memory.session("short").append({"role": "user", "content": "x"})
    ran = command("worker", "--once", *redis_options)
    assert ran.code == 0
    assert "5 summaries written, 0 sessions evicted" in ran.out
    assert "left: 0 overdue, 0 leased, 0 dead, 0 evictions; 6 sessions" in ran.out
    assert [covered_ranges(memory, name) for name in overdue] == [[(1, 6)]] * 5
    assert all(session_hash(name) in ran.err for name in overdue)
    assert SECRET not in ran.err + ran.out
    assert command("doctor", "--deep", *redis_options).code == 0
    again = command("worker", "--once", "--json", *redis_options)
    assert (again.code, again.document["summaries_count"], again.err) == (0, 0, "")


@pytest.fixture
def two_tenants(redis_server: Any, namespace: str) -> Any:
    """Two namespaces with an overdue session each, and their memories."""
    with contextlib.ExitStack() as stack:
        memories = {}
        for name in (f"{namespace}-shop", f"{namespace}-bank"):
            connected = redismem.blocking.Memory.connect(redis_server.url, namespace=name)
            memories[name] = stack.enter_context(connected)
            memories[name].session("s").append(*({"role": "user", "content": f"{n}."} for n in range(12)))
        yield memories


def test_one_worker_serves_several_namespaces(
    command: Any, redis_server: Any, two_tenants: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    names = ",".join(two_tenants)
    options = ("--url", redis_server.url, "--namespace", names)
    for wrong in (f"{names},", f"{names},{names}", " "):
        assert command("worker", "--once", *options[:2], "--namespace", wrong).code == 2
    refused = command("worker", "--once", "--on-evict-file", tmp_path / "evicted.jsonl", *options)
    assert (refused.code, "one worker per namespace" in refused.err) == (2, True)
    ran = command("worker", "--once", *options)
    assert ran.code == 0
    for name, memory in two_tenants.items():
        assert f"namespace {name}: 1 summary written" in ran.out
        assert covered_ranges(memory, "s") == [(1, 6)]
        memory.session("s").append(*({"role": "user", "content": f"later {n}."} for n in range(12)))
    with start_worker("--metrics-port", 0, *options, REDISMEM_TICK_S="0.05") as running:
        at = wait_for_line(running.stdout, "metrics at").split()[-1]
        wait_until(lambda: [m.session("s").info().window_count for m in two_tenants.values()] == [6, 6])
        wait_until(lambda: counts_both(at, two_tenants))
        running.send_signal(signal.SIGTERM)
        ended = wait_for_exit(running)
    assert ended.code == 0
    assert all(f"namespace {name}" in ended.err for name in two_tenants)


def scrape(at: str) -> dict[tuple[str, str, str], float]:
    """Return the samples by name, namespace, and op or queue or question with its verdict."""
    assert json.loads(fetch(at.replace("/metrics", "/livez"))) == {"live": True}
    families = list(text_string_to_metric_families(fetch(at)))
    found = {}
    for sample in (sample for family in families for sample in family.samples):
        labels = sample.labels
        what = labels.get("op") or labels.get("queue") or f"{labels.get('name', '')}{labels.get('verdict', '')}"
        found[sample.name, labels.get("namespace", ""), f"{what}{labels.get('outcome', '')}"] = sample.value
    return found


def fetch(at: str) -> str:
    with urllib.request.urlopen(at, timeout=60) as answer:
        return str(answer.read().decode())


def counts_both(at: str, tenants: Any) -> bool:
    """True once the worker has counted both summaries. A scrape leaves out what it cannot measure in time."""
    seen = scrape(at)
    wanted = {("redismem_operation_seconds_count", "", "summaryok"): 2.0}
    for name in tenants:
        wanted["redismem_queue_sessions", name, "overdue"] = 0
        wanted["redismem_processes", name, ""] = 1
        wanted["redismem_finding", name, "ticksok"] = 1
    ages = [seen.get(("redismem_last_tick_age_seconds", name, ""), 60) for name in tenants]
    holds = seen.get(("redismem_operation_seconds_count", "", "holdok"), 0)
    return seen.items() >= wanted.items() and max(ages) < 60 and holds >= 2


def test_a_metrics_port_that_cannot_be_served_is_refused(command: Any, redis_options: Any) -> None:
    assert command("worker", "--once", "--metrics-port", 0, *redis_options).code == 2
    refused = command("worker", "--metrics-port", 0, "--metrics-host", "no.such.host.invalid", *redis_options)
    assert (refused.code, "cannot listen at" in refused.err) == (2, True)


@pytest.mark.parametrize(("strategy", "left"), [("trim", 6), ("none", 12)])
def test_once_with_another_strategy(
    command: Any, overdue: Any, memory: Any, redis_options: Any, strategy: Any, left: Any
) -> None:
    assert command("worker", "--once", "--strategy", strategy, *redis_options).code == 0
    context = memory.session("s-1").read()
    assert (context.summaries, len(context.messages)) == ([], left)
    assert len(memory.session("s-1").messages(include_originals=True)) == 12, "what is trimmed is kept"


def test_once_enforces_the_limit_and_hands_over_the_transcripts(
    command: Any, overdue: Any, memory: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "3")
    file = tmp_path / "evicted.jsonl"
    ran = command("worker", "--once", "--json", "--on-evict-file", file, *redis_options)
    assert (ran.code, ran.document["evicted_count"], ran.document["left"]["sessions"]) == (0, 2, 3)
    evicted = {row["session_id"]: row for row in map(json.loads, file.read_text().splitlines())}
    assert set(evicted) == {"s-0", "s-1"}
    assert [message["content"] for message in evicted["s-0"]["messages"]] == [f"{SECRET} {n}." for n in range(12)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert memory.count() == 3


@pytest.mark.parametrize("kind", ["folder", "device", "link to a device"])
def test_a_file_that_cannot_hold_transcripts_is_refused(
    command: Any, redis_options: Any, tmp_path: Any, kind: Any
) -> None:
    (tmp_path / "link to a device").symlink_to("/dev/full")
    path = {"folder": tmp_path, "device": "/dev/full"}.get(kind, tmp_path / kind)
    ran = command("worker", "--once", "--on-evict-file", path, *redis_options)
    assert ran.code == 2
    assert "cannot write to the file" in ran.error_line


class EvictsNothing(TransportLayer):
    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("evict").sha:
            raise ConnectionResetError
        return await self._inner.run(commands, timeout_s, script, subject)


def test_a_limit_that_cannot_be_enforced_fails_the_command(
    command: Any, intercept: Any, overdue: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "3")
    intercept(EvictsNothing)
    ran = command("worker", "--once", *redis_options)
    assert ran.code == 1
    assert "5 summaries written, 0 sessions evicted" in ran.out
    assert "2 evictions; 5 sessions, 2 over the limit of 3" in ran.out


def test_an_embedded_store_has_nothing_for_a_worker(command: Any) -> None:
    for words in (["worker"], ["worker", "--once"]):
        ran = command(*words)
        assert ran.code == 2
        assert "a worker needs a store shared with the pods" in ran.error_line


def test_settings_without_a_model_are_one_line(
    command: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDISMEM_MODEL_PROVIDER", "openai")
    for words in (["worker"], ["worker", "--once"]):
        ran = command(*words, *redis_options)
        assert (ran.code, ran.out) == (2, "")
        assert "REDISMEM_MODEL" in ran.err.splitlines()[-1]


class RunsFull(TransportLayer):
    """A store that refuses every commit."""

    async def run(self, commands: Any, timeout_s: Any, script: Any = None, subject: Any = None) -> Any:
        if commands[0][0] == "EVALSHA" and commands[0][1] == load("commit").sha:
            raise ConnectionResetError("a reason that quotes the text of a message")
        return await self._inner.run(commands, timeout_s, script, subject)


@pytest.mark.parametrize("options", [("--once",), ()])
def test_an_invalid_strategy_stops_the_worker_at_its_start(
    command: Any, overdue: Any, memory: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch, options: Any
) -> None:
    monkeypatch.setenv("REDISMEM_STRATEGY", "canary")
    ran = command("worker", *options, *redis_options)
    assert (ran.code, ran.out) == (2, "")
    assert "REDISMEM_STRATEGY is invalid" in ran.err
    assert "canary" not in ran.err
    assert memory.session(overdue[0]).info().queued == "overdue"
    assert command("worker", "--once", "--strategy", "summarize", *redis_options).code == 0, "the option wins"
    assert memory.session(overdue[0]).info().queued is None


def test_an_error_of_one_session_is_logged_by_its_kind(
    command: Any, intercept: Any, overdue: Any, redis_options: Any
) -> None:
    intercept(RunsFull)
    ran = command("worker", "--once", *redis_options)
    assert ran.code == 1
    assert "ConnectionResetError" in ran.err
    assert SECRET not in ran.err + ran.out
    assert "(5 unavailable)" in ran.out


def test_a_running_worker_summarises_new_sessions_and_ends_on_a_signal(memory: Any, redis_options: Any) -> None:
    """Its priority is lower by one: by ten, as is the default, it would wait for all other tests."""
    with start_command("worker", "--json", "--nice", 1, *redis_options, REDISMEM_TICK_S="0.05") as running:
        assert running.stderr is not None
        first = json.loads(running.stderr.readline())
        assert "started on redis://" in first["message"]
        assert os.getpriority(os.PRIO_PROCESS, running.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 1)
        for name in ("a", "b"):
            memory.session(name).append(*({"role": "user", "content": f"{SECRET} {n}"} for n in range(12)))
        wait_until(lambda: covered_ranges(memory, "a") == covered_ranges(memory, "b") == [(1, 6)])
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert (ran.code, ran.out) == (0, "")
    lines = [json.loads(line) for line in ran.err.splitlines()]
    assert {line["session"] for line in lines if "session" in line} == {session_hash("a"), session_hash("b")}
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert all(isinstance(line["duration_ms"], int) for line in lines if "session" in line)
    assert "2 ok" in lines[-1]["message"]
    assert SECRET not in ran.err


def test_work_that_takes_too_long_is_released_at_a_stop(
    command: Any, overdue: Any, memory: Any, model: Any, by_model: Any, redis_options: Any
) -> None:
    with start_worker("--stop-s", "0.2", *redis_options, **by_model) as running:
        model.wait_for_asked(len(overdue))
        assert memory.session("s-0").info().queued == "leased"
        running.send_signal(signal.SIGINT)  # other tests send SIGTERM
        ran = wait_for_exit(running)
    assert ran.code == 0
    assert "stopping: taking no new work" in ran.err
    assert "stopped in" in ran.err
    assert SECRET not in ran.err
    assert {memory.session(name).info().queued for name in overdue} == {"overdue"}  # the leases are released
    assert [covered_ranges(memory, name) for name in overdue] == [[]] * 5
    done = command("worker", "--once", "--json", *redis_options)
    assert (done.code, done.document["summaries_count"]) == (0, 5)
    assert [covered_ranges(memory, name) for name in overdue] == [[(1, 6)]] * 5
    assert command("doctor", "--deep", *redis_options).code == 0


def test_work_is_finished_at_a_stop_if_there_is_time(
    overdue: Any, memory: Any, model: Any, by_model: Any, redis_options: Any
) -> None:
    with start_worker("--stop-s", "60", "--concurrency", "3", *redis_options, **by_model) as running:
        model.wait_for_asked(3)
        running.send_signal(signal.SIGTERM)
        wait_for_line(running.stderr, "stopping: taking no new work")
        model.release()
        ran = wait_for_exit(running)
    assert ran.code == 0
    assert len(model.asked) == 3  # the worker claims no further session
    assert sorted(len(covered_ranges(memory, name)) for name in overdue) == [0, 0, 1, 1, 1]
    assert "3 ok" in ran.err


def test_a_second_signal_ends_the_worker_at_once_and_its_leases_expire(
    command: Any, overdue: Any, memory: Any, model: Any, by_model: Any, redis_options: Any
) -> None:
    environment = by_model | {"REDISMEM_LEASE_S": "0.3"}
    with start_worker("--stop-s", "60", *redis_options, **environment) as running:
        model.wait_for_asked(len(overdue))
        running.send_signal(signal.SIGTERM)
        wait_for_line(running.stderr, "stopping: taking no new work")
        running.send_signal(signal.SIGTERM)
        assert running.wait(START_S) == -signal.SIGTERM
    written: list[int] = []

    def all_written() -> bool:
        written.append(command("worker", "--once", "--json", *redis_options).document["summaries_count"])
        return sum(written) == 5

    wait_until(all_written)
    assert [covered_ranges(memory, name) for name in overdue] == [[(1, 6)]] * 5


@pytest.mark.nightly
def test_once_stops_on_a_signal_too(overdue: Any, memory: Any, model: Any, by_model: Any, redis_options: Any) -> None:
    with start_worker("--once", "--json", "--stop-s", "0.2", *redis_options, **by_model) as running:
        model.wait_for_asked(len(overdue))
        running.send_signal(signal.SIGTERM)
        ran = wait_for_exit(running)
    assert (ran.code, ran.document["good"], ran.document["evicted_count"]) == (1, False, None)
    assert {memory.session(name).info().queued for name in overdue} == {"overdue"}


@pytest.mark.nightly
def test_a_frozen_worker_delays_no_session_beyond_its_lease(
    command: Any, overdue: Any, memory: Any, model: Any, by_model: Any, redis_options: Any
) -> None:
    """Its lease expires and another worker takes over; when it resumes, its commit is refused."""
    environment = by_model | {"REDISMEM_LEASE_S": "0.3"}
    with start_worker(*redis_options, **environment) as frozen:
        model.wait_for_asked(len(overdue))
        frozen.send_signal(signal.SIGSTOP)
        written: list[int] = []

        def all_written() -> bool:
            written.append(command("worker", "--once", "--json", *redis_options).document["summaries_count"])
            return sum(written) == 5

        wait_until(all_written)
        model.release()
        frozen.send_signal(signal.SIGCONT)
        wait_for_line(frozen.stderr, "fenced")
        frozen.send_signal(signal.SIGTERM)
        assert wait_for_exit(frozen).code == 0
    assert [covered_ranges(memory, name) for name in overdue] == [[(1, 6)]] * 5
    assert command("doctor", "--deep", *redis_options).code == 0
