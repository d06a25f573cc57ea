"""The entries of an owner's index: up to 64 signatures of one session each. No I/O.

An entry is a field `<part>:<session>` of the hash, part `p` of the blocks from `64 p` on. Its value:

    version (1), length of the head (1), the head: numbers and words, each followed by a blank,
    for each block: its number less that of the first of the part (1), size (2), signature

Before a worker commits a summary it adds an entry without signatures, part `ANNOUNCED_PART`. The update after the
commit removes it. If the worker has died, the next check finds it and makes the update.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redismem.messages.values import Undecodable
from redismem.protocol.namespace.calls import name_of

PART_COUNT = 64
"""The number of blocks per entry."""
ANNOUNCED_PART = 999_999_999
"""The part of the entry that announces a summary. No session has as many messages."""
VERSION_FIELD = b"version"
"""The field of the index that changes with each change of an entry."""
_FORMAT = 1
_SIZE_BYTES = 2
_MOST_BYTES = (1 << 8 * _SIZE_BYTES) - 1


@dataclass(frozen=True, slots=True)
class Entry:
    """The signatures of some blocks of one session, and the state of the session that they were made from."""

    epoch: str
    edits: str
    """A hash that changes when messages of the session change or go, see `hash_edits`."""
    first_seq: int
    """The seq of the first message of the window."""
    signed_seq: int
    """The seq of the last message of the window that has a signature; 0 means none."""
    active_ms: int
    """The time of the last activity."""
    signatures: Mapping[int, bytes]
    """The signatures by the numbers of their blocks."""


def hash_edits(edited: bytes | None, pruned: bytes | None) -> str:
    """Hash the fields of a state that change when messages change or go."""
    return hashlib.blake2b(b"%b %b" % (edited or b"", pruned or b""), digest_size=6).hexdigest()


def encode_name(part: int, session_id: str) -> bytes:
    """Return the name of the field of an entry. No other part or session has it."""
    return b"%d:%b" % (part, session_id.encode())


def decode_name(field: bytes) -> tuple[int, str] | None:
    """Return part and session of an entry; None if this is no name of an entry."""
    part, separator, session = field.partition(b":")
    return (int(part), name_of(session)) if separator and part.isdigit() and len(part) <= 9 else None


def encode_entry(part: int, entry: Entry) -> bytes:
    """Encode an entry. A signature over 65,535 bytes is left out: no block of at most 16 messages has one."""
    numbers = entry.first_seq, entry.signed_seq, entry.active_ms
    head = f"{entry.epoch} {entry.edits} {' '.join(map(str, numbers))}".encode()
    encoded = [bytes((_FORMAT, len(head))), head]
    for number, signature in sorted(entry.signatures.items()):
        if len(signature) <= _MOST_BYTES:
            encoded += bytes((number - part * PART_COUNT,)), len(signature).to_bytes(_SIZE_BYTES, "big"), signature
    return b"".join(encoded)


def announcement(session_id: str, epoch: str, now_ms: int) -> tuple[bytes, bytes]:
    """Return name and value of the entry that announces a summary. No state of a session equals it."""
    entry = Entry(epoch, "", first_seq=0, signed_seq=0, active_ms=now_ms, signatures={})
    return encode_name(ANNOUNCED_PART, session_id), encode_entry(ANNOUNCED_PART, entry)


def decode_entry(part: int, value: bytes) -> Entry:
    """Decode an entry. Raises Undecodable."""
    if len(value) < _SIZE_BYTES or value[0] != _FORMAT:
        raise Undecodable("an entry of an owner's index has an unknown format")
    stop = 2 + value[1]
    words = value[2:stop].split(b" ")
    try:
        epoch, edits, *numbers = (word.decode() for word in words)
        first_seq, signed_seq, active_ms = map(int, numbers)
    except ValueError:
        raise Undecodable("an entry of an owner's index has an unreadable head") from None
    return Entry(epoch, edits, first_seq, signed_seq, active_ms, _decode_signatures(part, value, stop))


def _decode_signatures(part: int, value: bytes, at: int) -> dict[int, bytes]:
    signatures: dict[int, bytes] = {}
    while at < len(value):
        start = at + 1 + _SIZE_BYTES
        stop = start + int.from_bytes(value[at + 1 : start], "big")
        if stop > len(value):
            raise Undecodable("an entry of an owner's index ends early")
        signatures[part * PART_COUNT + value[at]] = value[start:stop]
        at = stop
    return signatures


def newest(entries: Sequence[tuple[bytes, Entry]], limit: int) -> list[tuple[bytes, Entry]]:
    """Return the entries last active, as many as have at most `limit` blocks together."""
    chosen: list[tuple[bytes, Entry]] = []
    for pair in sorted(entries, key=lambda pair: (pair[1].active_ms, pair[0]), reverse=True):
        limit -= len(pair[1].signatures)
        if limit < 0:
            break
        chosen.append(pair)
    return chosen
