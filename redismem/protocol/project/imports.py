"""Calls about an import of a project: it is staged in pieces, then counts in one step, and is carried out. No I/O.

A piece is writes that set and take away: it may be carried out by anybody, and again. While an import that counts is
not carried out, nobody reads the project or changes it but for the pieces, so no reader sees a half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redismem.events import Op
from redismem.messages.values import decode_value, pack_unchecked
from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, evalsha
from redismem.protocol.project.calls import Unfinished
from redismem.protocol.project.keys import ProjectKeys

STAGED_MS = 3_600_000
"""What is staged and does not come to count goes after this time."""
# So few that a piece keeps others waiting for a millisecond or two: commands with their members and fields, bytes.
PIECE_COUNT = 1_200
PIECE_BYTES = 256 * 1024
_ENTRY_COUNT = 250
_PAIRED = ("HSET", "ZADD")


class Pieces:
    """Gathers the writes of an import, and cuts them into pieces of a bounded size.

    Writes of one kind to one key stand together, whichever item they are for: commands cost more than what they take.
    """

    def __init__(self) -> None:
        self._writes: dict[tuple[str, bytes], list[Any]] = {}

    def add(self, command: str, key: bytes, *arguments: bytes | str | int) -> None:
        """Adds a write: HSET and ZADD of pairs, HDEL and ZREM, or DEL. None depends on one that was added before."""
        self._writes.setdefault((command, key), []).extend(arguments)

    def cut(self) -> Iterator[bytes]:
        """The writes in pieces, each packed and small enough for one call."""
        piece: list[Any] = []
        count = size = 0
        for (command, key), arguments in self._writes.items():
            for part in _parts(command, arguments):
                part_count = 1 + len(part) // (2 if command in _PAIRED else 1)
                part_size = _size(part) if command == "HSET" else 0
                if piece and (count + part_count > PIECE_COUNT or size + part_size > PIECE_BYTES):
                    yield pack_unchecked(piece)
                    piece, count, size = [], 0, 0
                piece.append([command, key, part])
                count, size = count + part_count, size + part_size
        if piece:
            yield pack_unchecked(piece)


def _parts(command: str, arguments: list[Any]) -> Iterator[list[Any]]:
    """The arguments of one command after the other. Bodies of items and versions have a length of their own."""
    width = 2 if command in _PAIRED else 1
    step = width * min(_ENTRY_COUNT, PIECE_COUNT)
    begin = 0
    while begin < max(len(arguments), 1):
        end = begin + step
        if command == "HSET":
            end = begin + width
            size = _size(arguments[begin:end])
            while end < min(begin + step, len(arguments)):
                size += _size(arguments[end : end + width])
                if size > PIECE_BYTES:
                    break
                end += width
        yield arguments[begin:end]
        begin = end


def _size(arguments: list[Any]) -> int:
    return sum(len(each) for each in arguments if isinstance(each, bytes | str))


def seen(keys: ProjectKeys) -> Call[bytes]:
    """How many changes of the project there were; empty for none."""
    return Call(None, (("HGET", keys.changes, "count"),), lambda answer: answer or b"", op=Op.PROJECT_READ)


def stage(keys: ProjectKeys, nonce: str, number: int, piece: bytes) -> Call[Any]:
    """Puts down a piece."""
    staged = keys.staged(nonce)
    commands: tuple[Command, ...] = (("HSET", staged, number, piece), ("PEXPIRE", staged, STAGED_MS))
    return Call(None, commands, lambda *answers: answers, op=Op.PROJECT_CHANGE)


def count(keys: ProjectKeys, nonce: str, seen: bytes) -> Call[bool]:
    """Makes what is staged count, if nothing has changed since. Raises Unfinished, Conflict."""
    script = scripts.load("import")
    command = evalsha(script, (keys.staged(nonce), keys.journal, keys.changes), (seen, nonce))

    def decode(reply: int) -> bool:
        if reply < 0:
            raise Unfinished
        return bool(reply)

    return Call(None, (command,), decode, script, op=Op.PROJECT_CHANGE)


def left(keys: ProjectKeys) -> Call[list[bytes]]:
    """The pieces that are still to be carried out."""
    return Call(None, (("HKEYS", keys.journal),), list, op=Op.PROJECT_READ)


def some(keys: ProjectKeys, numbers: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Some of them; None for what somebody has carried out."""

    def decode(found: Iterable[bytes | None]) -> list[bytes | None]:
        return list(found)

    return Call(None, (("HMGET", keys.journal, *numbers),), decode, op=Op.PROJECT_READ)


def carry_out(keys: ProjectKeys, number: bytes, piece: bytes) -> Call[bool]:
    """Carries out a piece, unless somebody has."""
    places = {keys.journal: 1}
    arguments: list[bytes | str | int] = [number]
    for command, key, values in _writes(piece):
        arguments += (command, places.setdefault(key, len(places) + 1), len(values), *values)
    script = scripts.load("piece")
    return Call(None, (evalsha(script, list(places), arguments),), bool, script, op=Op.PROJECT_CHANGE)


def _writes(piece: bytes) -> Iterator[tuple[str, bytes, list[bytes | str | int]]]:
    written: Iterable[Any] = decode_value(piece)
    yield from written
