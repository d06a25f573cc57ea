"""Calls about sessions in quarantine: find their keys, read, restore and drop them. No I/O.

An imported session is staged in quarantine too, where no session call reads it, and then restored in one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol import layout, replies, scripts
from redismem.protocol.call import Call, Command, evalsha, independent
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import nonce
from redismem.protocol.keys import Keys, SessionKeys
from redismem.protocol.session.restore import Restoration
from redismem.settings.settings import Settings

NAMES = (b"messages", b"state", b"originals")
_TYPES = {"messages": "list", "state": "hash", "originals": "hash"}
_COUNTS = {"list": "LLEN", "hash": "HLEN"}
STAGED_MS = 3_600_000
"""The time to live of a staged session that is not restored."""
_PART_COUNT = 500
_KEY = re.compile(rb"rm:\{[^{}]+:\d+[a-z]+\}:quarantine:(.+):(\d{1,19}):(messages|state|originals)", re.DOTALL)
_RECORD = re.compile(rb"rm:\{([^{}:]+)\}:namespace")


class Quarantined(NamedTuple):
    """A session in quarantine: its id, and the time of its quarantine, in milliseconds since 1970."""

    session_id: str
    put_ms: int


class QuarantineKey(NamedTuple):
    """A key in quarantine. `entry_count` counts messages or fields; -1 means that the key has a foreign type."""

    name: str
    type: str
    entry_count: int
    expires_ms: int


class Page(NamedTuple):
    """One step of a key scan: the next cursor (0 ends the scan), and the matching keys."""

    cursor: int
    keys: Sequence[bytes]


def scan(pattern: bytes, cursor: int, count: int) -> Call[Page]:
    """Build one scan step over about `count` keys of the node."""
    command = ("SCAN", cursor, "MATCH", pattern, "COUNT", count)
    return Call(None, (command,), lambda reply: Page(int(reply[0]), reply[1]))


def pattern(keys: Keys, session_id: str | None = None) -> bytes:
    """Return the MATCH pattern of quarantine keys, of one session or of all sessions and records of the namespace."""
    if session_id is None:
        return f"rm:{{{keys.namespace}:*}}:quarantine*".encode()
    return re.sub(rb"([\\*?\[\]^])", rb"\\\1", keys.session(session_id).quarantine) + b":*"


RECORDS = b"rm:{*}:namespace"


def namespaces_of(records: Iterable[bytes]) -> set[str]:
    """Return the namespaces of these record keys."""
    return {match[1].decode() for match in map(_RECORD.fullmatch, records) if match}


def sessions_of(keys: Iterable[bytes]) -> set[Quarantined]:
    """Return the quarantined sessions that these keys belong to. Other keys are ignored."""
    matches = filter(None, map(_KEY.fullmatch, keys))
    return {Quarantined(match[1].decode("utf-8", "replace"), int(match[2])) for match in matches}


def quarantine_keys(keys: SessionKeys, put_ms: int) -> tuple[bytes, bytes, bytes]:
    """Return the keys of a session in quarantine: messages, state, originals."""
    messages, state, originals = (b"%s:%d:%s" % (keys.quarantine, put_ms, name) for name in NAMES)
    return messages, state, originals


def key_types(keys: Keys, sessions: Sequence[Quarantined]) -> Call[list[list[QuarantineKey]]]:
    """Build a call that reads type and expiry of each session's existing keys. Every `entry_count` is 0."""
    names = [key for entry in sessions for key in quarantine_keys(keys.session(entry.session_id), entry.put_ms)]
    commands = tuple(command for key in names for command in (("TYPE", key), ("PEXPIRETIME", key)))

    def decode(*answers: Any) -> list[list[QuarantineKey]]:
        pairs = list(zip(answers[::2], answers[1::2], strict=True))
        return [_present_keys(pairs[at : at + len(NAMES)]) for at in range(0, len(pairs), len(NAMES))]

    return independent(commands, decode)


def _present_keys(answers: Sequence[tuple[bytes, int]]) -> list[QuarantineKey]:
    pairs = zip(NAMES, answers, strict=True)
    return [
        QuarantineKey(name.decode(), kind.decode(), 0, expires_ms)
        for name, (kind, expires_ms) in pairs
        if kind != b"none"
    ]


def count_entries(
    keys: Keys, sessions: Sequence[Quarantined], present: Sequence[Sequence[QuarantineKey]]
) -> Call[list[list[QuarantineKey]]]:
    """Build a call that counts messages or fields in each existing key. -1 means that the key has a foreign type."""
    commands: list[Command] = []
    for entry, group in zip(sessions, present, strict=True):
        names = dict(zip(NAMES, quarantine_keys(keys.session(entry.session_id), entry.put_ms), strict=True))
        commands += [(_COUNTS[key.type], names[key.name.encode()]) for key in group if is_sound(key)]

    def decode(*answers: Any) -> list[list[QuarantineKey]]:
        counts = iter(answers)
        return [[key._replace(entry_count=next(counts) if is_sound(key) else -1) for key in group] for group in present]

    return independent(tuple(commands), decode)


def is_sound(key: QuarantineKey) -> bool:
    """True if the key has the expected type."""
    return key.type == _TYPES[key.name]


def live_keys(keys: SessionKeys) -> tuple[bytes, bytes, bytes]:
    """Return the keys of a session that is not in quarantine: messages, state, originals."""
    return keys.messages, keys.state, keys.originals


def live_types(keys: SessionKeys) -> Call[list[QuarantineKey]]:
    """Build a call that reads type and expiry of a live session's existing keys. Every `entry_count` is 0."""
    commands = tuple(command for key in live_keys(keys) for command in (("TYPE", key), ("PEXPIRETIME", key)))

    def decode(*answers: Any) -> list[QuarantineKey]:
        return _present_keys(list(zip(answers[::2], answers[1::2], strict=True)))

    return Call(keys.session_id, commands, decode, is_separable=True)


def contents(
    keys: SessionKeys, names: tuple[bytes, bytes, bytes], present: Sequence[QuarantineKey]
) -> Call[tuple[dict[bytes, bytes], list[bytes]]]:
    """Build a call that reads state and elements from keys of a session. A key of a foreign type reads as empty."""
    messages, state, _ = names
    sound = {key.name for key in present if is_sound(key)}
    reads: list[Command] = [("HGETALL", state)] if "state" in sound else []
    reads += [("LRANGE", messages, 0, -1)] if "messages" in sound else []

    def decode(*answers: Any) -> tuple[dict[bytes, bytes], list[bytes]]:
        fields = dict(replies.fields(answers[0])) if "state" in sound else {}
        return fields, list(answers[-1]) if "messages" in sound else []

    return Call(keys.session_id, tuple(reads) or (("PING",),), decode, is_separable=True)


def restore(
    keys: SessionKeys, put_ms: int, restoration: Restoration, settings: Settings, clock: Clock | None = None
) -> Call[bool]:
    """Build a call that restores a session. False means that the session is no longer in quarantine."""
    shard, script = keys.shard, scripts.load("restore")
    fields = [part for pair in restoration.fields.items() for part in pair]
    arguments = (
        keys.session,
        time_argument(clock),
        settings.kept_ms,
        restoration.epoch or layout.NONE,
        nonce(),
        restoration.first_seq,
        restoration.tokens,
        layout.encode_elements(restoration.uncounted_count, 0),
        layout.encode_elements(0, restoration.hidden_count),
        layout.encode_policy(restoration.policy),
        restoration.seen_count,
        int(not restoration.faults),
        len(restoration.fields),
    )
    stored = (keys.messages, keys.state, keys.originals, keys.vectors)
    names = (*stored, *quarantine_keys(keys, put_ms), *shard.all_indexes, shard.fences)
    command = evalsha(script, names, (*arguments, *fields, *restoration.left_out))
    return Call(keys.session_id, (command,), bool, script, op=Op.RESTORE)


def new_epoch(keys: SessionKeys) -> Call[str]:
    """Build a call that draws a new epoch."""

    def decode(number: int) -> str:
        return f"{number}-{nonce().decode()}"

    return Call(keys.session_id, (("INCR", keys.shard.fences),), decode, op=Op.PROJECT_CHANGE)


def stage(keys: SessionKeys, put_ms: int, elements: Sequence[bytes], originals: Mapping[bytes, bytes]) -> Call[Any]:
    """Build an idempotent call that stages an imported session in quarantine, where `restore` finds it."""
    messages, state, staged_originals = names = quarantine_keys(keys, put_ms)
    fields = [part for pair in originals.items() for part in pair]
    commands: list[Command] = [("DEL", *names), ("HSET", state, "imported", 1)]
    commands += [("RPUSH", messages, *part) for part in _split(elements)]
    commands += [("HSET", staged_originals, *part) for part in _split(fields)]
    commands += [("PEXPIRE", name, STAGED_MS) for name in names]
    return Call(keys.session_id, tuple(commands), lambda *answers: answers, op=Op.PROJECT_CHANGE)


def _split(arguments: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (arguments[begin : begin + _PART_COUNT] for begin in range(0, len(arguments), _PART_COUNT))


def put(keys: SessionKeys, epoch: str, put_ms: int, idle_timeout_ms: int) -> Call[int]:
    """Build a call that moves an unreadable session to `…:quarantine:<session>:<put_ms>:<key>`."""
    script = scripts.load("quarantine")
    live = (keys.messages, keys.state, keys.originals, keys.vectors)
    names = (*live, *quarantine_keys(keys, put_ms), *keys.shard.all_indexes)
    command = evalsha(script, names, (keys.session, epoch or layout.NONE, idle_timeout_ms))
    return Call(keys.session_id, (command,), int, script, op=Op.QUARANTINE)


def drop(keys: SessionKeys, put_ms: int) -> Call[int]:
    """Build a call that removes a session from quarantine for good. It returns the number of keys."""
    return Call(keys.session_id, (("DEL", *quarantine_keys(keys, put_ms)),), int, op=Op.DROP)
