"""Calls about sessions in quarantine: finding their keys, reading them, bringing one back, dropping it. No I/O.

What comes from elsewhere goes the same way: it is put there, where nobody looks, and restored in one step.
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
KEPT_MS = 3_600_000
"""What is put there from elsewhere, and not restored, goes after this time."""
_PART_COUNT = 500
_KEY = re.compile(rb"rm:\{[^{}]+:\d+[a-z]+\}:quarantine:(.+):(\d{1,19}):(messages|state|originals)", re.DOTALL)
_RECORD = re.compile(rb"rm:\{([^{}:]+)\}:namespace")


class Quarantined(NamedTuple):
    """A session in quarantine: its id, and when it was put there, in milliseconds."""

    session_id: str
    put_ms: int


class Kept(NamedTuple):
    """What one key in quarantine holds. `entry_count`: messages or fields; -1 if its type is another."""

    name: str
    type: str
    entry_count: int
    expires_ms: int


class Page(NamedTuple):
    """A step of looking through all keys: where the next begins (0: nowhere), and what it found."""

    cursor: int
    keys: Sequence[bytes]


def scan(pattern: bytes, cursor: int, count: int) -> Call[Page]:
    """Looks at about `count` of all keys there are, for those of the pattern."""
    command = ("SCAN", cursor, "MATCH", pattern, "COUNT", count)
    return Call(None, (command,), lambda reply: Page(int(reply[0]), reply[1]))


def pattern(keys: Keys, session_id: str | None = None) -> bytes:
    """What the keys in quarantine look like: of the namespace, or of one session."""
    if session_id is None:
        return f"rm:{{{keys.namespace}:*}}:quarantine:*".encode()
    return re.sub(rb"([\\*?\[\]^])", rb"\\\1", keys.session(session_id).quarantine) + b":*"


RECORDS = b"rm:{*}:namespace"


def namespaces_of(found: Iterable[bytes]) -> set[str]:
    """The namespaces whose records these are."""
    return {match[1].decode() for match in map(_RECORD.fullmatch, found) if match}


def quarantined(found: Iterable[bytes]) -> set[Quarantined]:
    """The sessions whose keys these are."""
    matches = filter(None, map(_KEY.fullmatch, found))
    return {Quarantined(match[1].decode("utf-8", "replace"), int(match[2])) for match in matches}


def quarantined_keys(keys: SessionKeys, put_ms: int) -> tuple[bytes, bytes, bytes]:
    """The keys of a session in quarantine: messages, state, originals."""
    messages, state, originals = (b"%s:%d:%s" % (keys.quarantine, put_ms, name) for name in NAMES)
    return messages, state, originals


def kinds(keys: Keys, which: Sequence[Quarantined]) -> Call[list[list[Kept]]]:
    """Type and end of each key of these: those that are there. The counts are not known yet, and 0."""
    names = [key for each in which for key in quarantined_keys(keys.session(each.session_id), each.put_ms)]
    commands = tuple(command for key in names for command in (("TYPE", key), ("PEXPIRETIME", key)))

    def decode(*answers: Any) -> list[list[Kept]]:
        pairs = list(zip(answers[::2], answers[1::2], strict=True))
        return [_kept(pairs[at : at + len(NAMES)]) for at in range(0, len(pairs), len(NAMES))]

    return independent(commands, decode)


def _kept(answers: Sequence[tuple[bytes, int]]) -> list[Kept]:
    seen = zip(NAMES, answers, strict=True)
    return [Kept(name.decode(), kind.decode(), 0, ends) for name, (kind, ends) in seen if kind != b"none"]


def counts(keys: Keys, which: Sequence[Quarantined], found: Sequence[Sequence[Kept]]) -> Call[list[list[Kept]]]:
    """The same keys with their counts: messages or fields, -1 if the type is another."""
    commands: list[Command] = []
    for each, there in zip(which, found, strict=True):
        names = dict(zip(NAMES, quarantined_keys(keys.session(each.session_id), each.put_ms), strict=True))
        commands += [(_COUNTS[key.type], names[key.name.encode()]) for key in there if is_sound(key)]

    def decode(*answers: Any) -> list[list[Kept]]:
        left = iter(answers)
        return [[key._replace(entry_count=next(left) if is_sound(key) else -1) for key in there] for there in found]

    return independent(tuple(commands), decode)


def is_sound(key: Kept) -> bool:
    """Whether it has the type that it should."""
    return key.type == _TYPES[key.name]


def contents(keys: SessionKeys, put_ms: int, there: Sequence[Kept]) -> Call[tuple[dict[bytes, bytes], list[bytes]]]:
    """State and elements of a session in quarantine, as far as their keys have the types that they should."""
    messages, state, _ = quarantined_keys(keys, put_ms)
    sound = {key.name for key in there if is_sound(key)}
    reads: list[Command] = [("HGETALL", state)] if "state" in sound else []
    reads += [("LRANGE", messages, 0, -1)] if "messages" in sound else []

    def decode(*answers: Any) -> tuple[dict[bytes, bytes], list[bytes]]:
        fields = dict(replies.fields(answers[0])) if "state" in sound else {}
        return fields, list(answers[-1]) if "messages" in sound else []

    return Call(keys.session_id, tuple(reads) or (("PING",),), decode)


def restore(
    keys: SessionKeys, put_ms: int, restoration: Restoration, settings: Settings, clock: Clock | None = None
) -> Call[bool]:
    """Brings it back as it was read and mended; False if it is not in quarantine any more."""
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
        f"+{restoration.uncounted_count}" if restoration.uncounted_count else "",
        restoration.seen_count,
        int(not restoration.faults),
        len(restoration.fields),
    )
    stored = (keys.messages, keys.state, keys.originals, keys.vectors)
    names = (*stored, *quarantined_keys(keys, put_ms), *shard.indexes, shard.fences)
    command = evalsha(script, names, (*arguments, *fields, *restoration.left_out))
    return Call(keys.session_id, (command,), bool, script, op=Op.RESTORE)


def new_epoch(keys: SessionKeys) -> Call[str]:
    """The epoch of a life that begins."""

    def decode(number: int) -> str:
        return f"{number}-{nonce().decode()}"

    return Call(keys.session_id, (("INCR", keys.shard.fences),), decode, op=Op.PROJECT_CHANGE)


def put(keys: SessionKeys, put_ms: int, elements: Sequence[bytes], originals: Mapping[bytes, bytes]) -> Call[Any]:
    """Puts a session where `quarantine_calls.restore` finds it. Sent again, it puts the same there."""
    messages, state, kept = names = quarantined_keys(keys, put_ms)
    fields = [part for pair in originals.items() for part in pair]
    commands: list[Command] = [("DEL", *names), ("HSET", state, "imported", 1)]
    commands += [("RPUSH", messages, *part) for part in _parts(elements)]
    commands += [("HSET", kept, *part) for part in _parts(fields)]
    commands += [("PEXPIRE", name, KEPT_MS) for name in names]
    return Call(keys.session_id, tuple(commands), lambda *answers: answers, op=Op.PROJECT_CHANGE)


def _parts(arguments: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (arguments[begin : begin + _PART_COUNT] for begin in range(0, len(arguments), _PART_COUNT))


def drop(keys: SessionKeys, put_ms: int) -> Call[int]:
    """Removes it from quarantine for good: how many keys there were."""
    return Call(keys.session_id, (("DEL", *quarantined_keys(keys, put_ms)),), int, op=Op.DROP)
