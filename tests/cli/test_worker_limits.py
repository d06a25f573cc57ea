"""`redismem worker` and the limits that its namespace records."""

import time
from typing import Any

import pytest
import redis

import redismem.blocking


def test_once_from_a_shell_evicts_nothing_that_pods_keep(command: Any, redis_server: Any, redis_options: Any) -> None:
    month, two_days_ago = redismem.Settings(idle_timeout_s=30 * 86_400), int(time.time() - 2 * 86_400) * 1_000
    pod = redismem.blocking.Memory.connect(
        redis_server.url, namespace=redis_options[-1], settings=month, clock=lambda: two_days_ago
    )
    with pod:
        pod.session("a").append({"role": "user", "content": "x"})
    ran = command("worker", "--once", *redis_options)
    assert "0 sessions evicted" in ran.out, "the default is 24 h"
    assert "1 session, the limit" in ran.out


def test_override_records_what_this_environment_says(
    command: Any, redis_server: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = redismem.Settings(max_sessions=50)
    pod = redismem.blocking.Memory.connect(redis_server.url, namespace=redis_options[-1], settings=settings)
    with pod:
        for number in range(5):
            pod.session(f"s-{number}").append({"role": "user", "content": "x"})
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "2")
    ran = command("worker", "--once", *redis_options)
    assert "0 sessions evicted" in ran.out
    assert "max_sessions is 2 here, the namespace records 50" in ran.err
    ran = command("worker", "--once", "--override", "--yes", *redis_options)
    assert "3 sessions evicted" in ran.out
    assert "the limit is 2" in command("worker", "--once", *redis_options).out


def test_override_leaves_what_this_environment_does_not_set(
    command: Any, request: pytest.FixtureRequest, redis_server: Any, redis_options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    month = redismem.Settings(idle_timeout_s=30 * 86_400, max_sessions=5_000, keep_originals=False)
    with redismem.blocking.Memory.connect(redis_server.url, namespace=redis_options[-1], settings=month) as pod:
        record = pod.store.keys.record
    raw = redis.Redis.from_url(redis_server.url)
    request.addfinalizer(raw.close)
    raw.hset(record, "embedder", "3 acme:vectors")
    before = raw.hgetall(record)
    ran = command("worker", "--once", "--override", "--yes", *redis_options)
    assert (ran.code, raw.hgetall(record)) == (2, before)
    assert "set REDISMEM_MAX_SESSIONS" in ran.err
    monkeypatch.setenv("REDISMEM_MAX_SESSIONS", "50")
    assert command("worker", "--once", "--override", "--yes", *redis_options).code == 0
    assert raw.hgetall(record) == before | {b"max_sessions": b"50"}
    monkeypatch.delenv("REDISMEM_MAX_SESSIONS")
    monkeypatch.setenv("REDISMEM_EMBED", "")
    assert command("worker", "--once", "--override", "--yes", *redis_options).code == 0
    left = raw.hgetall(record)
    assert left | {b"embedder": before[b"embedder"]} == before | {b"max_sessions": b"50"}
    assert b"embedder" not in left
