"""Dictionaries: listed with their use, and dropped in two steps, never while a block needs one."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from support.dictionaries import element, make_dictionary
from support.quarantined import quarantine_of

import redismem.blocking
from redismem.inspection import dictionaries
from redismem.originals.blocks import encode_block
from redismem.protocol.ids import now_ms
from redismem.protocol.keys import Keys
from redismem.settings.settings import Settings

HOUR_MS = 3_600_000


@pytest.fixture
def raw(redis_server: Any) -> Any:
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def key(raw: Any, redis_server: Any, namespace: str) -> bytes:
    """Store a dictionary of an hour ago, and return the key."""
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace):
        pass
    key = Keys(namespace, 1).dictionaries
    raw.hset(key, "1", (now_ms() - HOUR_MS).to_bytes(8, "big") + make_dictionary(1).content)
    return key


@pytest.fixture
def with_block(redis_server: Any, raw: Any, namespace: str) -> Any:
    """Store a session whose originals need the dictionary."""
    with redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("a").append({"role": "user", "content": "hello"})
        keys = Keys(namespace, Settings().shards).session("a")
        raw.hset(keys.originals, "0", encode_block(1, [element("hello")], make_dictionary(1)))
        yield memory.session("a")


def test_they_are_listed_with_their_use(command: Any, key: bytes, raw: Any, redis_options: Any, namespace: str) -> None:
    raw.hset(key, "2", now_ms().to_bytes(8, "big") + make_dictionary(1, seed=1).content)
    raw.hset(key, "3", b"unreadable")
    ran = command("list", "dictionaries", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    size = f"{len(make_dictionary(1).content):,}"
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[1] == ["1", "60", "min", "ago", size, "current"]
    assert rows[2][-1] == "new"
    assert rows[3] == ["3", "unreadable"]
    assert "3 dictionaries in namespace" in ran.out
    raw.hset(key, "unused:1", now_ms() - 2 * HOUR_MS)
    (first, *_) = command("list", "dictionaries", "--json", *redis_options).document["dictionaries"]
    assert (first["version"], first["state"]) == (1, "retired")
    assert abs(first["unused_since_ms"] - now_ms() + 2 * HOUR_MS) < HOUR_MS


def test_an_unused_one_is_dropped_in_two_steps(command: Any, key: bytes, raw: Any, redis_options: Any) -> None:
    ran = command("remove", "dictionary", 1, "--yes", *redis_options)
    assert ran.code == 1
    assert "is retired, not dropped yet" in ran.err
    assert raw.hexists(key, "1")
    again = command("remove", "dictionary", 1, "--yes", "--json", *redis_options)
    assert (again.code, again.document["outcome"]) == (1, "retired")
    raw.hset(key, "unused:1", now_ms() - dictionaries.RETIRED_MS)
    ran = command("remove", "dictionary", 1, "--yes", *redis_options)
    assert (ran.code, ran.err) == (0, "")
    assert "dropped dictionary 1" in ran.out
    assert raw.hkeys(key) == [b"dropped:1"]
    assert "0 dictionaries" in command("list", "dictionaries", *redis_options).out
    ran = command("remove", "dictionary", 1, "--yes", *redis_options)
    assert (ran.code, ran.err.count("there is no dictionary 1")) == (1, 1)


def test_one_that_a_block_needs_stays(
    command: Any, key: bytes, with_block: Any, raw: Any, redis_options: Any, namespace: str
) -> None:
    raw.hset(key, "unused:1", 1)
    ran = command("remove", "dictionary", 1, "--yes", *redis_options)
    assert (ran.code, ran.err.count("blocks of originals need it")) == (1, 1)
    keys = Keys(namespace, Settings().shards).session("a")
    raw.rename(keys.originals, quarantine_of(keys) + b":5:originals")
    with_block.clear()
    ran = command("remove", "dictionary", 1, "--yes", *redis_options)
    assert (ran.code, ran.err.count("blocks in quarantine need it")) == (1, 1)
    assert raw.hexists(key, "1")


def test_a_number_that_cannot_be_one_is_refused(command: Any, redis_options: Any) -> None:
    for number in (0, 256, "x"):
        assert command("remove", "dictionary", number, *redis_options).code == 2


def test_no_dictionaries_are_no_failure(command: Any, used_options: Any) -> None:
    for options, namespace in (([], "default"), (used_options, used_options[-1])):
        ran = command("list", "dictionaries", *options)
        assert ran.code == 0
        assert f"0 dictionaries in namespace {namespace}" in ran.out
