"""The cached index of one owner: the postings of all sessions, with the blocks in one numbering. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from redismem.messages.values import Undecodable
from redismem.originals.signatures import Signature, decode_signature
from redismem.protocol.owner.entries import Entry, decode_entry, decode_name, newest
from redismem.recall.postings import Postings

BLOCKS_LIMIT = 1_024
"""The number of newest blocks of an owner that are kept and searched: 16,384 messages."""
_OWNER_BYTES, _PLACE_BYTES = 2_000, 300


class BlockRef(NamedTuple):
    """A block of a session."""

    session_id: str
    epoch: str
    number: int


class CachedOwner:
    """The index of one owner, as of one version.

    Each block of each session has a number of its own here, in the order of the sessions' first days. A number is left
    out before each block that does not follow the one before it in its session, so no message has a neighbour there.
    """

    def __init__(self, version: bytes | None, stored: Mapping[bytes, bytes]) -> None:
        self.version = version
        self.postings = Postings()
        self.places: dict[int, BlockRef] = {}
        """The blocks by their numbers here."""
        self.counted_bytes = 0
        """The size of this entry in the cache's sum, in bytes."""
        self.used_s = 0.0
        """The time of the last search, for the cache."""
        number, before = -1, BlockRef("", "", -2)
        signatures: list[tuple[int, Signature]] = []
        for blocks in sorted(_sessions(stored), key=_first_day):
            for place, signature in blocks:
                number += 1 if place == before._replace(number=before.number + 1) else 2
                self.places[number] = before = place
                signatures.append((number, signature))
        self.postings.add(signatures)

    @property
    def size_bytes(self) -> int:
        """The approximate memory of this entry, in bytes."""
        return _OWNER_BYTES + self.postings.size_bytes + _PLACE_BYTES * len(self.places)


_Blocks = list[tuple[BlockRef, Signature]]


def decode(name: bytes, value: bytes) -> Entry | None:
    """Return an entry of the index; `None` if it cannot be read."""
    decoded = decode_name(name)
    try:
        return None if decoded is None else decode_entry(decoded[0], value)
    except Undecodable:
        return None  # the next update writes it anew


def decode_all(stored: Mapping[bytes, bytes]) -> list[tuple[bytes, Entry]]:
    """Return the readable entries of an index with their names."""
    decoded = ((name, decode(name, value)) for name, value in stored.items())
    return [(name, entry) for name, entry in decoded if entry is not None]


def _sessions(stored: Mapping[bytes, bytes]) -> Iterator[_Blocks]:
    """Yield the blocks of each session in order. Unreadable signatures are left out."""
    blocks: dict[str, _Blocks] = {}
    for name, entry in newest(decode_all(stored), BLOCKS_LIMIT):
        decoded = decode_name(name)
        assert decoded is not None
        for number, encoded in entry.signatures.items():
            try:
                signature = decode_signature(encoded)
            except Undecodable:
                continue  # the search skips the block; `redismem check` reports it
            blocks.setdefault(decoded[1], []).append((BlockRef(decoded[1], entry.epoch, number), signature))
    for some in blocks.values():
        yield sorted(some, key=lambda pair: pair[0])


def _first_day(blocks: _Blocks) -> tuple[int, str]:
    days = [day for _, signature in blocks for day, _ in signature.days]
    return min(days, default=0), blocks[0][0].session_id
