"""Calls about a whole namespace: its record, its rates, and the number of its sessions. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from redismem.context.info import SessionEntry
from redismem.errors import UnsupportedFormat, WrongShards
from redismem.events import Op
from redismem.protocol import layout
from redismem.protocol.call import Call, Command, independent, script_call
from redismem.protocol.ids import nonce
from redismem.protocol.keys import Keys, ShardKeys
from redismem.settings.settings import Settings

_EMBEDDING = re.compile(rb"([0-9]{1,9}) (.+)", re.DOTALL)
_RECORDED = ("layout", "shards", "max_sessions", "idle_timeout_ms", "keep_originals")


def ping() -> Call[bool]:
    """Build a call that checks that the server answers."""
    return Call(None, (("PING",),), bool, op=Op.PING)


def check_node(shard: ShardKeys) -> Call[bool]:
    """Build a call that checks that the shard's node accepts calls."""
    return Call(None, (("EXISTS", shard.active),), lambda count: count >= 0, op=Op.PING)


class Recorded(NamedTuple):
    """The settings in the record of a namespace that decide what may be removed; 0 or `None` if they are missing."""

    max_sessions: int = 0
    idle_timeout_ms: int = 0
    keep_originals: bool | None = None


def read_record(keys: Keys) -> Call[Recorded | None]:
    """Build a call that reads the recorded settings. None means that there is no record.

    Decoding raises:
        WrongShards: the namespace has a different number of shards.
        UnsupportedFormat: the namespace has another layout version, or the record cannot be read.
    """

    def decode(answer: Any) -> Recorded | None:
        version, shards, max_sessions, idle_ms, originals = (_number(keys, field) for field in answer)
        if version is not None and version != layout.LAYOUT_VERSION:
            raise UnsupportedFormat(
                f"namespace {keys.namespace} has layout version {version}, this release knows {layout.LAYOUT_VERSION}: "
                "see docs/layout.md"
            )
        if shards is not None and shards != keys.shard_count:
            raise WrongShards(
                f"namespace {keys.namespace} has {shards} shards, the settings say {keys.shard_count}: "
                f"set shards={shards} or REDISMEM_SHARDS={shards}"
            )
        if shards is None or version is None:
            return None
        return Recorded(max_sessions or 0, idle_ms or 0, None if originals is None else originals > 0)

    return Call(None, (("HMGET", keys.record, *_RECORDED),), decode, op=Op.RECORDED)


def _number(keys: Keys, field: bytes | None) -> int | None:
    """Decode a number of the record.

    Raises:
        UnsupportedFormat: the field does not contain a number.
    """
    if field is None:
        return None
    if re.fullmatch(layout.NUMBER, field) is None:
        raise unreadable_record(keys)
    return int(field)


def unreadable_record(keys: Keys) -> UnsupportedFormat:
    """Create the error for an unreadable record."""
    return UnsupportedFormat(
        f"namespace {keys.namespace} has a record that cannot be read: look at the key {keys.record.decode()}, "
        "a hash of layout and shards"
    )


def record(
    keys: Keys, max_sessions: int, settings: Settings, *, overrides: Collection[str] = ()
) -> Call[Recorded | None]:
    """Build a call that records layout version, shard count and the settings that decide what may be removed.

    Recorded values stay, except that a `max_sessions` other than 0 and the settings named in `overrides` replace them.
    The call returns the result of `read_record` after the write, and raises the errors of `read_record`.
    """
    read = read_record(keys)

    def write(name: str) -> str:
        return "HSET" if name in overrides else "HSETNX"

    commands = (
        ("HSETNX", keys.record, "layout", layout.LAYOUT_VERSION),
        ("HSETNX", keys.record, "shards", keys.shard_count),
        (write("idle_timeout_s"), keys.record, "idle_timeout_ms", settings.idle_timeout_ms),
        (write("keep_originals"), keys.record, "keep_originals", int(settings.keep_originals)),
        *([("HSET", keys.record, "max_sessions", max_sessions)] if max_sessions else []),
        *read.commands,
    )
    return Call(None, commands, lambda *answers: read.decode(answers[-1]), op=Op.RECORD)


class Embedding(NamedTuple):
    """The embedder of a namespace, whose vectors workers store. 0 dimensions means that they are not known yet."""

    name: str
    dimensions: int


def read_embedding(keys: Keys) -> Call[Embedding | None]:
    """Build a call that reads the recorded embedder; None means that none is recorded."""

    def decode(field: bytes | None) -> Embedding | None:
        match = _EMBEDDING.fullmatch(field or b"")
        return None if match is None else Embedding(match[2].decode("utf-8", "replace"), int(match[1]))

    return Call(None, (("HGET", keys.record, "embedder"),), decode, op=Op.RECORDED)


def record_embedding(keys: Keys, embedding: Embedding | None, *, overrides: bool = False) -> Call[Embedding | None]:
    """Build a call that records the embedder, unless one is recorded; with `overrides`, always.

    None removes the recorded one, so that the next worker records its own. The call returns the result of
    `read_embedding` after the write.
    """
    read = read_embedding(keys)
    write: Command = ("HDEL", keys.record, "embedder")
    if embedding is not None:
        value = b"%d %s" % (embedding.dimensions, embedding.name.encode("utf-8", "replace"))
        write = ("HSET" if overrides else "HSETNX", keys.record, "embedder", value)
    return Call(None, (write, *read.commands), lambda *answers: read.decode(answers[-1]), op=Op.RECORD)


def read_shard_count(keys: Keys) -> Call[int | None]:
    """Build a call that reads the recorded number of shards; None means that there is no record."""
    command = ("HGET", keys.record, "shards")
    return Call(None, (command,), lambda answer: _number(keys, answer), op=Op.RECORDED_SHARDS)


def server_time_ms() -> Call[int]:
    """Build a call that reads the server's clock, in milliseconds."""
    return Call(None, (("TIME",),), lambda time: int(time[0]) * 1000 + int(time[1]) // 1000, op=Op.SERVER_TIME)


def take(keys: Keys, name: str, per_s: float, burst_count: int) -> Call[int]:
    """Build a call that takes one token of a rate limit.

    The call returns 0 if it has taken the token, else the milliseconds to wait.

    Raises:
        ValueError: the rate or the burst is out of range.
    """
    if not (0.001 <= per_s <= 1_000_000 and 1 <= burst_count <= 1_000_000):
        raise ValueError("a rate is 0.001 to 1,000,000 per second, with a burst of 1 to 1,000,000")
    named = {"interval_us": round(1_000_000 / per_s), "burst_count": burst_count, "nonce": nonce()}
    return script_call(Op.TAKE, keys, int, {"rate": keys.rate(name), **named})


def count(keys: Keys, since_ms: int) -> Call[int]:
    """Build a call that counts the sessions active after `since_ms`."""
    # The places of exempt sessions are negative.
    ranges = ((f"({since_ms}", "+inf"), ("-inf", f"({-since_ms}"))
    commands = tuple(("ZCOUNT", shard.active, *range) for shard in keys.shards() for range in ranges)
    return independent(commands, lambda *counts: sum(counts), Op.COUNT)


def name_of(member: bytes) -> str:
    """Decode the member of an index. Distinct bytes give distinct names, even if they are not UTF-8."""
    return member.decode("utf-8", "surrogateescape")


def scored_members(answer: Any) -> Iterator[tuple[bytes, int]]:
    """Decode a reply WITHSCORES: pairs in RESP3, a flat list in RESP2."""
    flat = (
        answer if not answer or not isinstance(answer[0], list | tuple) else [item for pair in answer for item in pair]
    )
    values = iter(flat)
    return ((member, int(float(score))) for member, score in zip(values, values, strict=True))


def entries(answer: Any) -> Iterator[SessionEntry]:
    """Decode a reply WITHSCORES of an index.

    A member that another program wrote may be neither a session id nor UTF-8.
    """
    for member, score in scored_members(answer):
        yield SessionEntry(name_of(member), abs(score))
