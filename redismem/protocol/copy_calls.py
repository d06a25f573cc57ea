"""Calls that put a session down as it was elsewhere: aside, where nobody looks; then `restore` puts it in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redismem.protocol.call import Call, Command
from redismem.protocol.ids import nonce
from redismem.protocol.keys import SessionKeys
from redismem.protocol.quarantine_calls import aside

ASIDE_MS = 3_600_000
"""What is put aside and not restored goes after this time."""
_PART_COUNT = 500


def new_epoch(keys: SessionKeys) -> Call[str]:
    """The epoch of a life that begins."""

    def decode(number: int) -> str:
        return f"{number}-{nonce().decode()}"

    return Call(keys.session_id, (("INCR", keys.shard.fences),), decode, op="project_change")


def put_aside(keys: SessionKeys, put_ms: int, elements: Sequence[bytes], originals: Mapping[bytes, bytes]) -> Call[Any]:
    """Puts a session where `quarantine_calls.restore` finds it. Sent again, it puts the same there."""
    messages, state, kept = names = aside(keys, put_ms)
    fields = [part for pair in originals.items() for part in pair]
    commands: list[Command] = [("DEL", *names), ("HSET", state, "imported", 1)]
    commands += [("RPUSH", messages, *part) for part in _parts(elements)]
    commands += [("HSET", kept, *part) for part in _parts(fields)]
    commands += [("PEXPIRE", name, ASIDE_MS) for name in names]
    return Call(keys.session_id, tuple(commands), lambda *answers: answers, op="project_change")


def _parts(arguments: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (arguments[begin : begin + _PART_COUNT] for begin in range(0, len(arguments), _PART_COUNT))
