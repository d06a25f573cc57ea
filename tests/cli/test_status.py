"""`redismem status` shows the right numbers and changes nothing."""

import json
import re
import signal
from typing import Any

import pytest
import redis
from support.commands import start_command, wait_for_exit

import redismem.blocking
from redismem import Settings

HOUR_MS = 3_600_000


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    settings = Settings(shards=4)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        yield memory


@pytest.fixture(autouse=True)
def four_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_SHARDS", "4")


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis.from_url(redis_server.url) as raw:
        yield raw


def now_ms(raw: redis.Redis) -> int:
    seconds, micros = raw.time()
    return int(seconds) * 1000 + int(micros) // 1000


@pytest.fixture
def filled(memory: Any, raw: Any) -> Any:
    """Create queue entries like the scripts do."""
    for number in range(7):
        memory.session(f"s-{number}").append({"role": "user", "content": "x"})
    now = now_ms(raw)
    shards = memory.store.keys.shards()
    raw.zadd(shards[0].overdue, {"a": now - 5_000, "b": now - 1_000})
    raw.zadd(shards[2].overdue, {"c": now - HOUR_MS * 3})
    raw.zadd(shards[1].leased, {"d": now + HOUR_MS * 4})
    raw.zadd(shards[3].dead, {"e": now - HOUR_MS * 5})
    raw.zadd(shards[3].evictions, {"f": now - HOUR_MS * 6})
    return now


def test_queues_for_people(command: Any, filled: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "5")
    ran = command("status", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    for line in (
        r"overdue +3 +oldest waits 3 h",
        r"leased +1 +next expires in 4 h",
        r"dead +1 +oldest died 5 h ago",
        r"evictions +1 +oldest waits 6 h",
        r"sessions +7 +of 5: 2 over the limit",
    ):
        assert re.search(line, ran.out), line


def test_queues_as_a_document(command: Any, filled: Any, redis_options: Any) -> None:
    found = command("status", "--shards", "--json", *redis_options).document
    assert {name: queue["count"] for name, queue in found["queues"].items()} == {
        "overdue": 3,
        "leased": 1,
        "dead": 1,
        "evictions": 1,
    }
    assert found["queues"]["overdue"]["first_ms"] == filled - HOUR_MS * 3
    assert (found["sessions"], found["max_sessions"], found["over"]) == (7, 1000, 0)
    assert [shard["overdue"]["count"] for shard in found["shards"]] == [2, 0, 1, 0]
    assert sum(shard["active"]["count"] for shard in found["shards"]) == 7
    assert "shards" not in command("status", "--json", *redis_options).document


def test_queues_shard_by_shard(command: Any, filled: Any, memory: Any, redis_options: Any) -> None:
    ran = command("status", "--shards", *redis_options)
    assert max(map(len, ran.out.splitlines())) <= 80
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if re.match(r"0\d ", line)}
    assert rows["00"][2] == "2"
    assert rows["03"][-2:] == ["1", "1"]
    assert re.search(r"\d shards? of 4 empty", ran.out)


def test_an_expired_lease_and_a_session_in_backoff(command: Any, memory: Any, raw: Any, redis_options: Any) -> None:
    memory.session("s").append({"role": "user", "content": "x"})
    now = now_ms(raw)
    raw.zadd(memory.store.keys.shards()[0].leased, {"a": now - HOUR_MS * 3})
    raw.zadd(memory.store.keys.shards()[0].overdue, {"b": now + HOUR_MS * 4})
    out = command("status", *redis_options).out
    assert "expired 3 h ago" in out
    assert "next try in 4 h" in out


@pytest.mark.parametrize("words", ["show x", "search anything --session x"])
def test_a_session_that_does_not_exist_is_named(command: Any, used_options: Any, words: str) -> None:
    ran = command(*words.split(), *used_options)
    assert (ran.code, "there is no such session" in ran.err) == (1, True)


def test_watch_in_a_pipe_prints_one_line_per_poll(command: Any, filled: Any, redis_options: Any) -> None:
    ran = command("status", "--watch", "--count", 3, "--every-s", 0.01, *redis_options)
    assert (ran.code, ran.err) == (0, "")
    lines = [dict(word.split("=") for word in line.split()) for line in ran.out.splitlines()]
    assert len(lines) == 3
    assert all(
        (line["overdue"], line["leased"], line["dead"], line["sessions"]) == ("3", "1", "1", "7") for line in lines
    )
    assert float(lines[0]["oldest_wait_s"]) >= 3 * 3600
    assert "overdue_per_s" not in lines[0]
    assert (lines[1]["overdue_per_s"], lines[1]["given_per_s"]) == ("0.0", "0.0")
    wrong = command("status", "--json", *redis_options).document["doctor"]
    assert wrong.items() >= {"ticks": "warn", "summaries": "warn", "dead": "warn"}.items()
    assert lines[0]["doctor"] == ",".join(f"{name}:{verdict}" for name, verdict in wrong.items())
    (line,) = re.findall(r"^  doctor +(\w+)  .*ticks, ", command("status", *redis_options).out, re.M)
    assert line == next(iter(wrong.values()))


def test_watch_shows_changes_and_ends_on_a_signal(memory: Any, raw: Any, redis_options: Any) -> None:
    with start_command("status", "--watch", "--every-s", "0.05", "--json", *redis_options) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        assert first["sessions"] == 0
        for number in range(20):
            memory.session(f"s-{number}").append({"role": "user", "content": "x"})
        rates = []
        while (line := json.loads(running.stdout.readline()))["sessions"] < 20:
            rates.append(line.get("given_per_s", 0))
        rates.append(line["given_per_s"])
        assert max(rates) > 0
        running.send_signal(signal.SIGINT)
        ran = wait_for_exit(running)
    assert (ran.code, ran.err) == (0, "")
