"""`redismem doctor --deep`: intact sessions pass, each kind of damage is reported, and the check writes nothing."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis

from redismem import Settings
from redismem.blocking import memory as blocking

SECRET = "the text of a message"


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Any:
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=Settings(shards=4)) as memory:
        yield memory


@pytest.fixture(autouse=True)
def four_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_SHARDS", "4")


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis.from_url(redis_server.url) as raw:
        yield raw


@pytest.fixture
def filled(command: Any, memory: Any, redis_options: Any) -> Any:
    """Create forty sessions: some with summaries, some overdue, one with only state."""
    for number in range(20):
        memory.session(f"old-{number}").append(*({"role": "user", "content": f"{SECRET} {n}"} for n in range(12)))
    assert command("worker", "--once", *redis_options).code == 0
    for number in range(19):
        memory.session(f"new-{number}").append(*({"role": "user", "content": f"{SECRET} {n}"} for n in range(12)))
    memory.session("state").merge({"a": 1})
    return memory


def test_sound_sessions(command: Any, filled: Any, redis_options: Any) -> None:
    ran = command("doctor", "--deep", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert "40 sessions checked" in ran.out
    assert "no violations" in ran.out
    document = command("doctor", "--deep", "--json", *redis_options).document
    assert (document["sessions_count"], document["violations_count"], document["good"]) == (40, 0, True)


def test_an_empty_namespace_passes(command: Any, redis_options: Any, redis_server: Any, namespace: str) -> None:
    assert command("doctor", "--deep").code == 0, "an embedded store is empty, and says so"
    with blocking.Memory.connect(redis_server.url, namespace=namespace, settings=Settings(shards=4)):
        pass
    assert command("doctor", "--deep", *redis_options).code == 0, "it is new"


def one_token_more(raw: Any, state: Any) -> None:
    version, first_seq, message_count, tokens, *others = raw.hget(state, "counters").split()
    raw.hset(state, "counters", b" ".join((version, first_seq, message_count, b"%d" % (int(tokens) + 1), *others)))


def spoil(raw: redis.Redis, memory: blocking.Memory, what: str) -> None:
    keys = memory.store.keys.session("old-7")
    damages: dict[str, Callable[[], object]] = {
        "I1": lambda: raw.rpop(keys.messages),
        "I3": lambda: raw.zadd(keys.shard.dead, {"old-7": 1}),
        "I4": lambda: (
            raw.zrem(memory.store.keys.session("new-7").shard.overdue, "new-7"),
            raw.hdel(memory.store.keys.session("new-7").state, "queued"),
        ),
        "I7": lambda: raw.hset(keys.state, "summaries_count", 2),
        "I8": lambda: raw.persist(keys.messages),
        "I10": lambda: one_token_more(raw, keys.state),
        "I12": lambda: raw.zrem(keys.shard.active, "old-7"),
    }
    damages[what]()


@pytest.mark.parametrize("rule", ["I1", "I3", "I4", "I7", "I8", "I10", "I12"])
def test_damage_is_reported_and_left_alone(
    command: Any, filled: Any, raw: Any, redis_options: Any, namespace: str, rule: Any
) -> None:
    spoil(raw, filled, rule)
    if rule == "I12":  # the check finds only sessions that an index or a queue names
        raw.zadd(filled.store.keys.session("old-7").shard.evictions, {"old-7": 1})
    before = {key: raw.dump(key) for key in raw.scan_iter(match=f"rm:{{{namespace}*", count=1000)}
    ran = command("doctor", "--deep", "--json", *redis_options)
    document = ran.document
    assert (ran.code, document["good"]) == (1, False)
    broken = "new-7" if rule == "I4" else "old-7"
    assert {violation["session_id"] for violation in document["violations"]} == {broken}
    assert rule in {violation["invariant"] for violation in document["violations"]}
    assert SECRET not in json.dumps(document)
    ran = command("doctor", "--deep", *redis_options)
    assert ran.code == 1
    assert max(map(len, ran.out.splitlines())) <= 80
    assert f"{rule} " in ran.out
    assert broken in ran.out
    assert "in 1 session" in ran.out
    assert {key: raw.dump(key) for key in raw.scan_iter(match=f"rm:{{{namespace}*", count=1000)} == before


def test_unreadable_bytes_are_a_violation_and_stay_in_place(
    command: Any, filled: Any, raw: Any, redis_options: Any
) -> None:
    keys = filled.store.keys.session("new-3")
    raw.lset(keys.messages, 2, b"\xc1garbage")
    raw.delete(filled.store.keys.session("new-4").state)
    raw.set(filled.store.keys.session("new-4").state, "a string")
    ran = command("doctor", "--deep", "--json", *redis_options)
    found = {violation["session_id"]: violation["invariant"] for violation in ran.document["violations"]}
    assert found == {"new-3": "I1", "new-4": "I1"}
    assert raw.lindex(keys.messages, 2) == b"\xc1garbage"


def test_only_the_first_ones_are_listed_and_all_are_counted(
    command: Any, filled: Any, raw: Any, redis_options: Any
) -> None:
    for number in range(19):
        one_token_more(raw, filled.store.keys.session(f"new-{number}").state)
    ran = command("doctor", "--deep", "--limit", 5, *redis_options)
    assert ran.out.count("I10") == 5
    assert "and 14 more" in ran.out
    assert "19 violations, in 19 sessions" in ran.out
    document = command("doctor", "--deep", "--limit", 5, "--json", *redis_options).document
    assert (document["violations_count"], len(document["violations"])) == (19, 5)
