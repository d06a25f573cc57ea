"""The doctor's verdicts on real servers with real faults, and on facts that no test server can show."""

from typing import Any

import pytest
import redis
from support.redis_server import RedisServer, free_port

import redismem.blocking
from redismem.inspection import namespace_rules, server_rules
from redismem.inspection.namespace_rules import Sampled
from redismem.inspection.server_rules import Node
from redismem.record import Change

OPTIONS = ("--maxmemory", "100mb", "--client-output-buffer-limit", "normal 64mb 16mb 10")


@pytest.fixture(scope="module")
def server(tmp_path_factory: Any) -> Any:
    """A server that a test may misconfigure, if it restores the configuration."""
    server = RedisServer(tmp_path_factory.mktemp("doctor"), aof=True, options=OPTIONS).start()
    yield server
    server.stop()


@pytest.fixture
def raw(server: Any) -> Any:
    with redis.Redis.from_url(server.url) as raw:
        yield raw
        raw.config_set("maxmemory", "100mb")
        raw.config_set("maxmemory-policy", "noeviction")
        raw.config_set("appendonly", "yes")
        raw.config_set("appendfsync", "everysec")
        raw.config_set("client-output-buffer-limit", "normal 64mb 16mb 10")
        raw.config_set("busy-reply-threshold", "5000")
        raw.config_set("min-replicas-max-lag", "10")
        raw.replicaof("NO", "ONE")
        raw.acl_setuser("default", enabled=True, nopass=True, categories=["+@all"])


@pytest.fixture
def examine(command: Any, server: Any, namespace: str) -> Any:
    """Return a function that runs the doctor and returns its findings by question, and the exit code."""

    def examine(url: str | None = None) -> Any:
        ran = command("doctor", "--json", "--url", url or server.url, "--namespace", namespace)
        return {each["name"]: each for each in ran.document["findings"]}, ran.code

    return examine


def test_a_good_server(examine: Any, server: Any, raw: Any, namespace: str) -> None:
    found, code = examine()
    assert (code, found["shards"]["verdict"]) == (0, "warn")
    assert "redismem list namespaces" in found["shards"]["advice"], "the name may be wrong"
    with redismem.blocking.Memory.connect(server.url, namespace=namespace):
        pass
    found, code = examine()
    assert code == 0
    good = (
        "connection",
        "persistence",
        "memory",
        "replication",
        "clock",
        "scripts",
        "shards",
        "room",
        "expiry",
        "records",
    )
    assert {name: found[name]["verdict"] for name in good} == dict.fromkeys(good, "ok")
    assert "appendfsync everysec" in found["persistence"]["seen"]
    assert "100 MiB" in found["memory"]["seen"]
    assert found["latency"]["verdict"] in ("ok", "warn")


def test_the_embedded_store(command: Any) -> None:
    ran = command("doctor", "--json")
    assert ran.code == 0
    verdicts = {each["name"]: each["verdict"] for each in ran.document["findings"]}
    assert [name for name, verdict in verdicts.items() if verdict == "n/a"] == [
        "version",
        "persistence",
        "memory",
        "replication",
    ]
    assert "warn" not in verdicts.values()
    assert "no problems found" in (shown := command("doctor").out)
    assert "Is its name right?" not in shown, "an embedded store is always new"


@pytest.mark.parametrize(
    ("changes", "name", "verdict", "said"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "memory", "fail", "noeviction"),
        ({"maxmemory-policy": "volatile-ttl", "maxmemory": "0"}, "memory", "warn", "noeviction"),
        ({"maxmemory": "0"}, "memory", "warn", "Set `maxmemory`"),
        ({"maxmemory": "1"}, "memory", "fail", "appends are refused"),
        ({"appendonly": "no"}, "persistence", "warn", "appendonly yes"),
        ({"appendfsync": "no"}, "persistence", "warn", "power failure"),
        ({"client-output-buffer-limit": "normal 0 0 0"}, "config", "warn", "never reads"),
        ({"busy-reply-threshold": "0"}, "config", "warn", "hanging script"),
        ({"min-replicas-to-write": "0", "min-replicas-max-lag": "60"}, "config", "ok", ""),
    ],
)
def test_a_server_with_a_fault(examine: Any, raw: Any, changes: Any, name: Any, verdict: Any, said: Any) -> None:
    for option, value in changes.items():
        raw.config_set(option, value)
    found, code = examine()
    assert found[name]["verdict"] == verdict
    assert said in found[name]["advice"]
    assert code == (1 if verdict == "fail" else 0)


def test_nodes_reports_shards_sessions_and_memory(examine: Any, server: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(server.url, namespace=namespace) as memory:
        for number in range(3):
            memory.session(f"s-{number}").append({"role": "user", "content": "x"})
    found, _ = examine()
    assert found["nodes"]["seen"].startswith(f"127.0.0.1:{server.port}: 64 shards, 3 sessions, ")
    assert found["nodes"]["seen"].endswith(" used")


def test_uneven_nodes_are_reported() -> None:
    even = [Node("a:1", 22, 400, 1000), Node("b:1", 21, 420, None), Node("c:1", 21, 430, 1000)]
    assert server_rules.spread(even).verdict == "ok"
    assert server_rules.spread(even).text == (
        "a:1: 22 shards, 400 sessions, 1,000 B used; b:1: 21 shards, 420 sessions; "
        "c:1: 21 shards, 430 sessions, 1,000 B used"
    )
    assert server_rules.spread([Node("a:1", 60, 1800, 1), Node("b:1", 4, 200, 1)]).verdict == "warn"
    assert server_rules.spread([Node("a:1", 60, 90, 1), Node("b:1", 4, 10, 1)]).verdict == "ok", "too few to say"
    lag = {"min-replicas-to-write": "1", "min-replicas-max-lag": "60"}
    assert "without its replicas" in server_rules.config(lag).advice
    assert server_rules.config({}).text == "CONFIG GET is not allowed"


def test_a_replica(examine: Any, raw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "0.2")  # a replica never accepts the write, so a longer wait is useless
    raw.replicaof("127.0.0.1", free_port())
    found, code = examine()
    while "replication" not in found:  # on a machine that halts, it may not be answered in time
        found, code = examine()
    assert (code, found["replication"]["verdict"]) == (1, "fail")


def test_an_unreachable_server_fails(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_DEADLINE_S", "0.05")
    ran = command("doctor", "--url", f"redis://:geheim@127.0.0.1:{free_port()}/0")
    assert (ran.code, ran.err) == (3, "")
    assert "fail" in ran.out
    assert "geheim" not in ran.out


def test_a_user_without_permissions_sees_the_required_acl(examine: Any, server: Any, raw: Any) -> None:
    def allow(*commands: Any) -> None:
        categories = ["+@all", "-@admin"]
        raw.acl_setuser("guest", enabled=True, passwords=["+pw"], keys=["*"], categories=categories, commands=commands)

    allow("-info")
    found, code = examine(f"redis://guest:pw@127.0.0.1:{server.port}/0")
    assert (code, found["server"]["verdict"]) == (0, "warn")
    allow("-info", "-evalsha")
    found, code = examine(f"redis://guest:pw@127.0.0.1:{server.port}/0")
    assert (code, found["scripts"]["verdict"]) == (1, "fail")
    assert "run the last line" in found["scripts"]["advice"]


def test_another_number_of_shards(
    examine: Any, monkeypatch: pytest.MonkeyPatch, server: Any, raw: Any, namespace: str
) -> None:
    with redismem.blocking.Memory.connect(server.url, namespace=namespace):
        pass
    monkeypatch.setenv("REDISMEM_SHARDS", "8")
    found, code = examine()
    assert (code, found["shards"]["verdict"]) == (1, "fail")
    assert "REDISMEM_SHARDS=64" in found["shards"]["advice"]


def test_expiry_of_real_sessions(examine: Any, server: Any, raw: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(server.url, namespace=namespace) as memory:
        for name in ("whole", "state-only", "gone", "torn", "for-ever", "apart"):
            session = memory.session(name)
            session.merge({"a": 1}) if name == "state-only" else session.append({"role": "user", "content": "x"})
        keys = {name: memory.store.keys.session(name) for name in ("gone", "torn", "for-ever", "apart")}
    raw.delete(keys["gone"].state, keys["gone"].messages)
    found, code = examine()
    assert (code, found["expiry"]["verdict"]) == (0, "ok")
    assert "6 sessions checked" in found["expiry"]["seen"]
    assert "1 expired" in found["expiry"]["seen"]

    moment, other = (raw.pexpiretime(keys[name].messages) for name in ("apart", "for-ever"))
    for spoil, mend, said in (
        (
            ("PEXPIREAT", keys["apart"].messages, moment + 1000),
            ("PEXPIREAT", keys["apart"].messages, moment),
            "different expiry times",
        ),
        (("PERSIST", keys["for-ever"].state), ("PEXPIREAT", keys["for-ever"].state, other), "never expires"),
        (("DEL", keys["torn"].messages), ("PING",), "lost some"),
    ):
        raw.execute_command(*spoil)
        found, code = examine()
        assert (code, found["expiry"]["verdict"]) == (1, "fail")
        assert said in found["expiry"]["seen"]
        raw.execute_command(*mend)


def test_damaged_records(examine: Any, server: Any, raw: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(server.url, namespace=namespace) as memory:
        record = memory.record("thread-1", ttl_s=900)
        record.write(Change(sets={b"a": b"1"}, adds=[b"a"]))
        found, code = examine()
        assert (code, found["records"]["verdict"]) == (0, "ok")
        raw.persist(next(raw.scan_iter(f"rm:{{{namespace}:*order:thread-1")))
        found, code = examine()
        assert (code, found["records"]["verdict"]) == (1, "fail")
        assert "1 record damaged; thread-1: its keys expire at different times" in found["records"]["seen"]
        record.clear()
        assert examine()[0]["records"]["verdict"] == "ok"


def test_the_doctor_changes_nothing(examine: Any, server: Any, raw: Any, namespace: str) -> None:
    with redismem.blocking.Memory.connect(server.url, namespace=namespace) as memory:
        memory.session("a").append({"role": "user", "content": "x"})
    before = {key: (raw.dump(key), raw.pexpiretime(key)) for key in raw.scan_iter(count=1000)}
    examine()
    assert {key: (raw.dump(key), raw.pexpiretime(key)) for key in raw.scan_iter(count=1000)} == before


def test_the_output_fits_into_80_columns(command: Any, server: Any, raw: Any) -> None:
    raw.config_set("maxmemory-policy", "allkeys-lru")
    ran = command("doctor", "--url", server.url)
    assert ran.code == 1
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "1 failed" in ran.out


@pytest.mark.parametrize(
    ("info", "verdict"),
    [
        ({"redis_version": "6.2.20"}, "fail"),
        ({"redis_version": "7.0.15"}, "warn"),
        ({"redis_version": "7.2.10"}, "warn"),
        ({"redis_version": "7.2.11"}, "ok"),
        ({"redis_version": "7.4.5"}, "warn"),
        ({"redis_version": "7.4.6"}, "ok"),
        ({"redis_version": "8.0.4"}, "ok"),
        ({"redis_version": "8.2.1"}, "warn"),
        ({"redis_version": "8.2.2"}, "ok"),
        ({"redis_version": "8.4.0"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.3"}, "warn"),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.4"}, "ok"),
        ({"redis_version": "7.2.4", "valkey_version": "9.0.0"}, "ok"),
        ({"redis_version": "255.255.255"}, "ok"),
        ({}, "fail"),
    ],
)
def test_versions(info: Any, verdict: Any) -> None:
    assert server_rules.version(info).verdict == verdict


@pytest.mark.parametrize(
    ("difference_ms", "trip_ms", "verdict", "said"),
    [
        (0, 1, "ok", "within 1 ms"),
        (-300, 2, "ok", "within 302 ms"),
        (3_000, 2_500, "ok", "within"),
        (5_000, 1, "warn", "5.0 s ahead of"),
        (-7_200_000, 1, "warn", "2 h behind"),
    ],
)
def test_clocks(difference_ms: Any, trip_ms: Any, verdict: Any, said: Any) -> None:
    found = server_rules.clock(difference_ms, trip_ms)
    assert found.verdict == verdict
    assert said in found.text


def test_replicas_and_saving() -> None:
    lonely = {"role": "master", "connected_slaves": "2", "aof_enabled": "0"}
    assert server_rules.persistence(lonely, {}).verdict == "fail"
    assert server_rules.replication(lonely, {"min-replicas-to-write": "0"}).verdict == "warn"
    assert server_rules.replication(lonely, {"min-replicas-to-write": "1"}).verdict == "ok"
    assert server_rules.persistence({"aof_enabled": "1", "aof_last_write_status": "err"}, {}).verdict == "fail"


def test_latency() -> None:
    assert server_rules.latency([0.1, 0.2, 90]).verdict == "ok"
    assert server_rules.latency([20, 30, 90]).verdict == "warn"


def test_a_session_that_expires_during_the_examination_is_no_fault() -> None:
    assert Sampled("a", -2, -2, 0).fault == ""
    assert Sampled("a", 5, -2, 0).fault == ""
    assert Sampled("a", 5, -2, 3).fault != ""


@pytest.mark.parametrize(
    ("count", "limit", "verdict", "said"),
    [(0, 10, "ok", "0 sessions of 10"), (7, 10, "ok", ""), (8, 10, "warn", ""), (1_000, 1_000, "warn", "of 1,000")],
)
def test_room_under_the_session_limit(count: int, limit: int, verdict: str, said: str) -> None:
    found = namespace_rules.room(count, limit)
    assert found.verdict == verdict
    assert said in found.text
    assert ("REDISMEM_MAX_SESSIONS" in found.advice) == (verdict == "warn")
