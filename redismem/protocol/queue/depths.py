"""Calls that tell how long the queues are, and what stands first in them. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redismem.events import Op
from redismem.info import SessionEntry
from redismem.protocol import layout
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import entries


@dataclass(frozen=True, slots=True)
class Depth:
    """Entries of one queue, and since when (or until when, of a lease) the first one waits, in milliseconds."""

    count: int
    first_ms: int | None


def depths(keys: Keys) -> Call[list[dict[str, Depth]]]:
    """The depth of each queue, and of the active index, in every shard."""
    names = layout.INDEXES
    commands = tuple(
        command
        for shard in keys.shards()
        for name in names
        for command in (
            ("ZCARD", getattr(shard, name)),
            ("ZRANGE", getattr(shard, name), 0, 0, "WITHSCORES"),
        )
    )

    def decode(*answers: Any) -> list[dict[str, Depth]]:
        pairs = iter(answers)
        found = [Depth(count, _first_ms(first)) for count, first in zip(pairs, pairs, strict=True)]
        return [dict(zip(names, found[at : at + len(names)], strict=True)) for at in range(0, len(found), len(names))]

    return independent(commands, decode, Op.DEPTHS)


def _first_ms(answer: Any) -> int | None:
    return next((entry.active_ms for entry in entries(answer)), None)


def members(keys: Keys, queue: str, limit: int) -> Call[list[SessionEntry]]:
    """The first `limit` of a queue in every shard, with their times."""
    commands = tuple(("ZRANGE", getattr(shard, queue), 0, limit - 1, "WITHSCORES") for shard in keys.shards())
    return independent(
        commands, lambda *answers: [entry for answer in answers for entry in entries(answer)], Op.MEMBERS
    )


def counts(keys: Keys) -> Call[list[int]]:
    """Sessions of every shard; none in those of a node that does not answer."""
    commands = tuple(("ZCARD", shard.active) for shard in keys.shards())
    return independent(commands, lambda *answers: list(answers), Op.COUNTS, absent=0)
