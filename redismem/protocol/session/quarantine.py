"""Tell whether a session is unreadable, read a copy, and build the state of a restored session. No I/O.

An imported or salvaged session is staged in quarantine, where no session call reads it, and then restored in one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redismem.events import Op
from redismem.messages.decoding import is_gap
from redismem.messages.gaps import seqs_count
from redismem.messages.values import Undecodable
from redismem.protocol import layout, replies
from redismem.protocol.birth import encode_birth
from redismem.protocol.call import Call, Command
from redismem.protocol.ids import nonce
from redismem.protocol.keys import SessionKeys
from redismem.protocol.owners import is_owner_field
from redismem.protocol.policy import decode_policy
from redismem.protocol.quarantine import SESSION, Revival, Seen, StoredKey, encode_note, of_session
from redismem.protocol.session.restore import Restoration
from redismem.settings.settings import Settings

STAGED_MS = 3_600_000
"""The time to live of a staged session that is not restored."""
_PART_COUNT = 500
_EPOCH = re.compile(rb"[A-Za-z0-9-]+")
_VERSION = re.compile(rb"v(\d+)")


def describe_damage(seen: Seen, epoch: str | None, session_id: str) -> bytes | None:
    """Return the note about a session to move aside; `None` if it is not the unreadable one.

    It is unreadable if a key has a foreign type, if epoch or counters are damaged, or if it has the epoch of the
    session that the caller could not read. `None` as epoch moves any session.

    Raises:
        UnsupportedFormat: another release wrote the session.
    """
    counters, owner = seen.fields.get(layout.COUNTERS) or b"", seen.fields.get(layout.OWNER)
    version = _VERSION.match(counters)
    if version and int(version[1]) != layout.LAYOUT_VERSION:
        raise layout.unsupported_layout(version[1].decode(), session_id)
    own_epoch = seen.fields.get(layout.EPOCH) or b""
    is_sound = all(key.is_sound for key in seen.keys) and _EPOCH.fullmatch(own_epoch) and _is_counted(counters)
    if is_sound and epoch is not None and own_epoch != epoch.encode():
        return None
    has_state = any(key.name == "state" and key.is_sound for key in seen.keys)
    is_known = has_state and (owner is None or is_owner_field(owner))
    return encode_note(encode_birth(owner if is_known else None, b""), lasts=False, knows_owner=is_known)


def _is_counted(counters: bytes) -> bool:
    try:
        layout.counters(counters)
    except Undecodable:
        return False
    return True


def contents(
    session_id: str | None, names: Mapping[str, bytes], present: Sequence[StoredKey]
) -> Call[tuple[dict[bytes, bytes], list[bytes]]]:
    """Build a call that reads state and elements from keys of a session. A key of a foreign type reads as empty."""
    sound = {key.name for key in present if key.is_sound}
    reads: list[Command] = [("HGETALL", names["state"])] if "state" in sound else []
    reads += [("LRANGE", names["messages"], 0, -1)] if "messages" in sound else []

    def decode(*answers: Any) -> tuple[dict[bytes, bytes], list[bytes]]:
        fields = dict(replies.fields(answers[0])) if "state" in sound else {}
        return fields, list(answers[-1]) if "messages" in sound else []

    return Call(session_id, tuple(reads) or (("PING",),), decode, is_separable=True)


def new_epoch(keys: SessionKeys) -> Call[str]:
    """Build a call that draws a new epoch."""

    def decode(number: int) -> str:
        return f"{number}-{nonce().decode()}"

    return Call(keys.session_id, (("INCR", keys.shard.fences),), decode, op=Op.RESTORE)


def stage(
    keys: SessionKeys,
    put_ms: int,
    state: Mapping[bytes, bytes],
    elements: Sequence[bytes],
    originals: Mapping[bytes, bytes],
) -> Call[Any]:
    """Build an idempotent call that stages a session in quarantine, where `restore` finds it."""
    place = of_session(keys)
    names, owner = place.copies(put_ms), state.get(layout.OWNER)
    note = encode_note(encode_birth(owner, b""), lasts=False, knows_owner=True)
    commands: list[Command] = [("DEL", *names.values()), ("HSET", place.note, put_ms, note)]
    commands += [("RPUSH", names["messages"], *part) for part in _split(elements)]
    for name, fields in (("state", state), ("originals", originals)):
        commands += [
            ("HSET", names[name], *part) for part in _split([part for pair in fields.items() for part in pair])
        ]
    commands += [("PEXPIRE", name, STAGED_MS) for name in names.values()]
    commands += [("PEXPIRE", place.note, STAGED_MS, flag) for flag in ("NX", "GT")]
    return Call(keys.session_id, tuple(commands), lambda *answers: answers, op=Op.RESTORE)


def _split(arguments: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (arguments[begin : begin + _PART_COUNT] for begin in range(0, len(arguments), _PART_COUNT))


def revive(restoration: Restoration, epoch: str, now_ms: int, settings: Settings) -> Revival:
    """Return what the restoration of a session writes over its stored state.

    It is overdue at once, so that a worker checks whether it needs a summary.
    """
    policy = decode_policy(restoration.policy)
    timeout_s = policy.idle_timeout_s
    expires_ms = now_ms + (settings.kept_ms if timeout_s is None else round(timeout_s * 1000))
    seqs, count = seqs_count(restoration.elements), len(restoration.elements)
    counted = [message for message in restoration.messages if not (message.pinned or is_gap(message))]
    last_seq, tokens = restoration.first_seq + seqs - 1, sum(message.tokens for message in counted)
    numbers = (restoration.first_seq, last_seq, tokens, now_ms, expires_ms)
    counters = layout.Counters(*numbers, None, count - len(counted), seqs - count, restoration.policy)
    fields: dict[bytes, bytes] = {
        **restoration.fields,
        layout.EPOCH: epoch.encode(),
        layout.COUNTERS: layout.encode_counters(counters),
        layout.QUEUED: layout.QueueState.OVERDUE.encode(),
    }
    owner = fields.get(layout.OWNER)
    is_watched = policy.exempt or timeout_s is not None
    scores = {
        "active": -now_ms if policy.exempt else now_ms,
        "overdue": now_ms,
        "evictions": -expires_ms if is_watched else layout.NONE,
        "owners": layout.NONE if owner is None else owner.partition(b" ")[0],
    }
    stored = restoration.stored
    sets = {name: value for name, value in fields.items() if stored.get(name) != value}
    in_order = [scores.get(index, layout.NONE) for index in SESSION.indexes]
    return Revival(epoch.encode(), expires_ms, in_order, sets, [name for name in stored if name not in fields])
