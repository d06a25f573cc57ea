"""Records in quarantine, and the doctor about them, as operators use them; and what forgetting leaves of a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

import redismem.blocking
from redismem.protocol.ids import now_ms
from redismem.protocol.record.keys import RecordKeys, record_keys
from redismem.record import Change

ID = "chat:{1}:2"
CANARY = b"CANARY"


@pytest.fixture
def memory(redis_server: Any, namespace: str) -> Iterator[redismem.blocking.Memory]:
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def raw(redis_server: Any, memory: redismem.blocking.Memory) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_server.url) as raw:
        yield raw
        for key in raw.scan_iter(f"rm:{{{memory.store.keys.namespace}:*"):
            raw.delete(key)


def damage(memory: redismem.blocking.Memory, raw: redis.Redis, **options: Any) -> Any:
    """Write a record with a canary, and damage its description. Its next writer puts it into quarantine."""
    record = memory.record(ID, tag="user 1", **options)
    record.write(Change(sets={b"m": CANARY, b"n": b"1"}, adds=[b"m"]))
    raw.hset(keys_of(memory).record, b"", b"garbage")
    return record


def keys_of(memory: redismem.blocking.Memory, record_id: str = ID) -> RecordKeys:
    return record_keys(memory.store.keys, record_id, "user 1")


def stored(raw: redis.Redis, namespace: str) -> str:
    readers: dict[Any, Any] = {b"hash": raw.hgetall, b"zset": lambda key: raw.zrange(key, 0, -1), b"string": raw.get}
    keys = list(raw.scan_iter(f"rm:{{{namespace}:*"))
    return repr([(key, readers[raw.type(key)](key)) for key in keys])


def test_a_record_goes_into_quarantine_and_comes_back(
    command: Any, redis_options: list[str], memory: Any, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    record = damage(memory, raw, owner="ann")
    assert record.set_aside()
    assert not record.set_aside()
    assert record.write(Change(absent=[b"m"], sets={b"m": b"afresh"})) is True
    (logged,) = caplog.records
    assert "put into quarantine" in logged.message
    assert ID not in logged.message
    listed = command("list", "quarantine", *redis_options)
    assert "3 fields, 1 member" in " ".join(listed.out.split())
    assert f"0 sessions and 1 record in quarantine in namespace {redis_options[3]}" in listed.out
    told = command("list", "quarantine", "--json", *redis_options).document
    (copy,) = told["records"]
    assert (copy["record_id"], copy["tag"], copy["owner"], copy["faults"]) == (ID, "user 1", "ann", [])
    doctor = command("doctor", *redis_options).out
    assert f"1 record in this namespace, first {ID}" in " ".join(doctor.split())
    shown = command("show", "quarantine", ID, "--record", *redis_options)
    assert "owner: ann" in shown.out
    assert "CANARY" not in listed.out + str(told) + doctor + shown.out
    refused = command("repair", "quarantine", ID, "--record", *redis_options)
    assert (refused.code, "--swap" in refused.err) == (1, True)
    assert command("repair", "quarantine", ID, "--record", "--swap", *redis_options).code == 0
    assert record.get(b"m", b"n") == [CANARY, b"1"]
    assert [each.member for each in record.page().found] == [b"m"]
    assert [(entry.id, entry.tag, entry.owner) for entry in memory.records().records] == [(ID, "user 1", "ann")]
    (copy,) = command("list", "quarantine", "--json", *redis_options).document["records"]
    assert command("remove", "quarantine", ID, "--record", "--at", copy["put_ms"], "--yes", *redis_options).code == 0
    missing = command("show", "quarantine", ID, "--record", *redis_options)
    assert (missing.code, "no such record" in missing.err) == (1, True)
    assert "afresh" not in stored(raw, memory.store.keys.namespace)


def test_what_is_lost_is_said_before_a_restoration(
    command: Any, redis_options: list[str], memory: Any, raw: Any
) -> None:
    record = damage(memory, raw)
    raw.set(keys_of(memory).order, "foreign")
    assert record.set_aside()
    put_ms = now_ms()
    while now_ms() == put_ms:  # copies of one record are told apart by their millisecond
        pass
    damage(memory, raw).set_aside()
    several = command("show", "quarantine", ID, "--record", *redis_options)
    assert (several.code, "--at" in several.err) == (2, True)
    times = [each["put_ms"] for each in command("list", "quarantine", "--json", *redis_options).document["records"]]
    at = ("--record", "--at", times[0])
    refused = command("repair", "quarantine", ID, *at, *redis_options)
    assert refused.code == 1
    assert "order is a string; owner is unknown; --salvage" in " ".join(refused.err.split())
    assert command("repair", "quarantine", ID, *at, "--salvage", *redis_options).code == 0
    nothing = command("repair", "quarantine", ID, *at, "--salvage", "--swap", *redis_options)
    assert (nothing.code, "no part of it is readable" in nothing.err) == (1, True)


@pytest.mark.parametrize("named", [{"owner": "ann"}, {"prefix": "chat:"}])
def test_nothing_of_a_forgotten_person_is_left_in_quarantine(memory: Any, raw: Any, named: Any) -> None:
    namespace = memory.store.keys.namespace
    record = damage(memory, raw, owner="ann")
    assert record.set_aside()
    other = memory.record("other", owner="bob", tag="user 1")
    other.write(Change(sets={b"m": b"stays"}))
    raw.hset(keys_of(memory, "other").record, b"", b"garbage")
    assert other.set_aside()
    forgotten = memory.forget(**named)
    assert (forgotten.record_count, forgotten.quarantined_count, forgotten.unattributed_count) == (0, 1, 0)
    left = stored(raw, namespace)
    assert ("CANARY" in left, "chat:" in left, "stays" in left) == (False, False, True)
    record = damage(memory, raw)  # nobody knows whose it was
    assert record.set_aside()
    forgotten = memory.forget(**named)
    is_found = "prefix" in named
    assert (forgotten.quarantined_count, forgotten.unattributed_count) == ((1, 0) if is_found else (0, 1))
    assert ("CANARY" in stored(raw, namespace)) is not is_found
    record.clear()
    assert "CANARY" not in stored(raw, namespace)


def test_a_record_is_shown_without_its_values_unless_asked(
    command: Any, redis_options: list[str], memory: Any, raw: Any
) -> None:
    record = memory.record(ID, tag="user 1", owner="ann", ttl_s=7_000)
    record.write(Change(absent=[b"m"], sets={b"m": CANARY, b"n\xff": b"1" * 20_000}, adds=[b"m"]))
    shown = command("show", "record", ID, *redis_options)
    assert "2 fields · 1 member · expires in 117 min · 1 write remembered" in " ".join(shown.out.split())
    for text in ("tag: user 1 · owner: ann", "m: 6 B", r"n\xff: 20 KiB", ":record:chat:{1}:2"):
        assert text in shown.out
    assert "CANARY" not in shown.out
    assert "CANARY" in command("show", "record", ID, "--values", *redis_options).out
    told = command("show", "record", ID, "--json", "--limit", "1", *redis_options).document
    (view,) = told["records"]
    (field,) = view["fields"]  # whichever Redis returns first
    assert (field in ({"name": "m", "bytes": 6}, {"name": r"n\xff", "bytes": 20_000}), view["fields_count"]) == (
        True,
        2,
    )
    memory.record(ID, tag="user 2").write(Change(sets={b"x": b""}))
    both = command("show", "record", ID, *redis_options).out
    assert ("owner: ann" in both, "tag: user 2 · no owner" in both) == (True, True)
    missing = command("show", "record", "chat", *redis_options)
    assert (missing.code, "no readable record" in missing.err) == (1, True)
