"""Calls about an import of a project: stage it in pieces, commit it in one step, then apply the pieces. No I/O.

A piece only sets and removes fields and members, so any process may apply it, even repeatedly. Until a committed import
is fully applied, other reads and changes of the project are refused, so no reader sees half of the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redismem.events import Op
from redismem.messages.values import decode_value, pack_unchecked
from redismem.protocol.call import Argument, Call, Command, script_call
from redismem.protocol.project.calls import Unfinished
from redismem.protocol.project.keys import ProjectKeys

STAGED_MS = 3_600_000
"""The time to live of a staged import that is not committed."""
# Limits that keep a piece from blocking the server for more than a millisecond or two: entries, bytes.
PIECE_COUNT = 1_200
PIECE_BYTES = 256 * 1024
_ENTRY_COUNT = 250
_PAIRED = ("HSET", "ZADD")


class Pieces:
    """Gathers the writes of an import, and cuts them into pieces of bounded size.

    Writes with the same command and key are merged across items, because a command costs more than its arguments.
    """

    def __init__(self) -> None:
        self._writes: dict[tuple[str, bytes], list[Any]] = {}

    def add(self, command: str, key: bytes, *arguments: bytes | str | int) -> None:
        """Add a write: HSET or ZADD with pairs, HDEL, ZREM or DEL. The order of the writes must not matter."""
        self._writes.setdefault((command, key), []).extend(arguments)

    def cut(self) -> Iterator[bytes]:
        """Yield the writes as packed pieces, each small enough for one call."""
        piece: list[Any] = []
        count = size = 0
        for (command, key), arguments in self._writes.items():
            for part in _split(command, arguments):
                part_count = 1 + len(part) // (2 if command in _PAIRED else 1)
                part_size = _size(part) if command == "HSET" else 0
                if piece and (count + part_count > PIECE_COUNT or size + part_size > PIECE_BYTES):
                    yield pack_unchecked(piece)
                    piece, count, size = [], 0, 0
                piece.append([command, key, part])
                count, size = count + part_count, size + part_size
        if piece:
            yield pack_unchecked(piece)


def _split(command: str, arguments: list[Any]) -> Iterator[list[Any]]:
    """Split the arguments of a command by count, and those of HSET also by bytes, because bodies can be long."""
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
    return sum(len(argument) for argument in arguments if isinstance(argument, bytes | str))


def read_change_count(keys: ProjectKeys) -> Call[bytes]:
    """Build a call that reads the project's change count; empty means that there was no change yet."""
    return Call(None, (("HGET", keys.changes, "count"),), lambda answer: answer or b"", op=Op.PROJECT_READ)


def stage(keys: ProjectKeys, nonce: str, number: int, piece: bytes) -> Call[Any]:
    """Build a call that stages a piece."""
    staged = keys.staging(nonce)
    commands: tuple[Command, ...] = (("HSET", staged, number, piece), ("PEXPIRE", staged, STAGED_MS))
    return Call(None, commands, lambda *answers: answers, op=Op.PROJECT_CHANGE)


def commit(keys: ProjectKeys, nonce: str, seen: bytes) -> Call[bool]:
    """Build a call that commits a staged import.

    Decoding raises:
        Unfinished: another committed import must be applied first.
        Conflict: the project has changed since `seen`.
    """

    def decode(reply: int) -> bool:
        if reply < 0:
            raise Unfinished
        return bool(reply)

    named = {"staged": keys.staging(nonce), "seen": seen, "nonce": nonce}
    return script_call(Op.PROJECT_CHANGE, keys, decode, named, script="import")


def list_pieces(keys: ProjectKeys) -> Call[list[bytes]]:
    """Build a call that reads the numbers of the pieces that are not applied yet."""
    return Call(None, (("HKEYS", keys.journal),), list, op=Op.PROJECT_READ)


def read_pieces(keys: ProjectKeys, numbers: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Build a call that reads pieces by number; None means that the piece has been applied meanwhile."""

    return Call(None, (("HMGET", keys.journal, *numbers),), list, op=Op.PROJECT_READ)


def apply(keys: ProjectKeys, number: bytes, piece: bytes) -> Call[bool]:
    """Build a call that applies a piece; False means that it was applied before."""
    places = {keys.journal: 1}
    arguments: list[Argument] = []
    for command, key, values in _decode_writes(piece):
        arguments += (command, places.setdefault(key, len(places) + 1), len(values), *values)
    op, named, others = Op.PROJECT_CHANGE, {"piece": number}, list(places)[1:]
    return script_call(op, keys, bool, named, script="piece", more_keys=others, more=arguments)


def _decode_writes(piece: bytes) -> Iterator[tuple[str, bytes, list[Argument]]]:
    written: Iterable[Any] = decode_value(piece)
    yield from written
