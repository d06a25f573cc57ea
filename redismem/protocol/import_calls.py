"""Calls about an import of a project: it is staged in pieces, then counts in one step, and is carried out. No I/O.

A piece is writes that set and take away: it may be carried out by anybody, and again. While an import that counts is
not carried out, nobody reads the project or changes it but for the pieces, so no reader sees a half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.project_calls import Unfinished
from redismem.protocol.project_keys import ProjectKeys
from redismem.values import decode_value, packed_unchecked

STAGED_MS = 3_600_000
"""What is staged and does not come to count goes after this time."""
# So few that a piece keeps others waiting for a millisecond or two: members and fields, and texts' bytes.
PIECE_COUNT = 1_200
PIECE_BYTES = 256 * 1024
_ENTRY_COUNT = 500


class Pieces:
    """Gathers writes, and gives them in pieces of a bounded size. Writes of one kind to one key become one."""

    def __init__(self) -> None:
        self._writes: dict[tuple[str, bytes], list[bytes | str | int]] = {}
        self._count = self._bytes = 0

    def add(self, command: Any, key: Any, *arguments: bytes | str | int) -> None:
        """One more write: HSET and ZADD of pairs, HDEL and ZREM, or DEL."""
        self._writes.setdefault((command, key), []).extend(arguments)
        self._count += 1 + len(arguments) // 2
        self._bytes += sum(len(each) for each in arguments if isinstance(each, bytes | str))

    @property
    def is_full(self) -> bool:
        """Whether what is gathered is as much as a piece may be."""
        return self._count >= PIECE_COUNT or self._bytes >= PIECE_BYTES

    def taken(self) -> bytes:
        """What is gathered, as one piece; empty for nothing."""
        writes = [
            [command, key, arguments[at : at + _ENTRY_COUNT]]
            for (command, key), arguments in self._writes.items()
            for at in range(0, max(len(arguments), 1), _ENTRY_COUNT)
        ]
        self._writes, self._count, self._bytes = {}, 0, 0
        return packed_unchecked(writes) if writes else b""


def seen(keys: ProjectKeys) -> Call[bytes]:
    """How many changes of the project there were; empty for none."""
    return Call(None, (("HGET", keys.changes, "count"),), lambda answer: answer or b"", op="project_read")


def stage(keys: ProjectKeys, nonce: str, number: int, piece: bytes) -> Call[Any]:
    """Puts down a piece."""
    staged = keys.staged(nonce)
    commands: tuple[Command, ...] = (("HSET", staged, number, piece), ("PEXPIRE", staged, STAGED_MS))
    return Call(None, commands, lambda *answers: answers, op="project_change")


def count(keys: ProjectKeys, nonce: str, seen: bytes) -> Call[bool]:
    """Makes what is staged count, if nothing has changed since. Raises Unfinished, Conflict."""
    script = scripts.load("import")
    command = evalsha(script, (keys.staged(nonce), keys.journal, keys.changes), (seen, nonce))

    def decode(reply: int) -> bool:
        if reply < 0:
            raise Unfinished
        return bool(reply)

    return Call(None, (command,), decode, script, op="project_change")


def left(keys: ProjectKeys) -> Call[list[bytes]]:
    """The pieces that are still to be carried out."""
    return Call(None, (("HKEYS", keys.journal),), list, op="project_read")


def piece(keys: ProjectKeys, number: bytes) -> Call[bytes | None]:
    """One of them; None if somebody has carried it out."""
    return Call(None, (("HGET", keys.journal, number),), lambda answer: answer, op="project_read")


def carry_out(keys: ProjectKeys, number: bytes, piece: bytes) -> Call[bool]:
    """Carries out a piece, unless somebody has."""
    places = {keys.journal: 1}
    arguments: list[bytes | str | int] = [number]
    for command, key, values in _writes(piece):
        arguments += (command, places.setdefault(key, len(places) + 1), len(values), *values)
    script = scripts.load("piece")
    return Call(None, (evalsha(script, list(places), arguments),), bool, script, op="project_change")


def _writes(piece: bytes) -> Iterator[tuple[str, bytes, list[bytes | str | int]]]:
    written: Iterable[Any] = decode_value(piece)
    yield from written
