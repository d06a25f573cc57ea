"""Calls that read the lengths and heads of the queues. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context.info import Depth, SessionEntry
from redismem.events import Op
from redismem.protocol import layout
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys, ShardKeys
from redismem.protocol.namespace.calls import entries

_ABSENT = "absent"


def depths(shards: Sequence[ShardKeys]) -> Call[list[dict[str, Depth] | None]]:
    """Build a call that reads the depths of the active index and of each queue, of these shards.

    Exempt sessions are not counted as active. The depths of a shard are `None` if its node does not answer.
    """
    names = layout.INDEXES
    commands = tuple(
        command
        for shard in shards
        for name in names
        for command in (
            ("ZCOUNT", getattr(shard, name), 0, "+inf"),
            ("ZRANGEBYSCORE", getattr(shard, name), 0, "+inf", "WITHSCORES", "LIMIT", 0, 1),
        )
    )

    def decode(*answers: Any) -> list[dict[str, Depth] | None]:
        step = 2 * len(names)
        return [_shard_depths(names, answers[at : at + step]) for at in range(0, len(answers), step)]

    return independent(commands, decode, Op.DEPTHS, absent=_ABSENT)


def _shard_depths(names: Sequence[str], answers: Sequence[Any]) -> dict[str, Depth] | None:
    if _ABSENT in answers:
        return None
    pairs = zip(names, answers[::2], answers[1::2], strict=True)
    return {name: Depth(count, _first_ms(first)) for name, count, first in pairs}


def _first_ms(answer: Any) -> int | None:
    return next((entry.active_ms for entry in entries(answer)), None)


def members(shards: Sequence[ShardKeys], queue: str, limit: int) -> Call[list[SessionEntry]]:
    """Build a call that reads the first `limit` entries of a queue in each of these shards."""
    window = (0, "+inf", "WITHSCORES", "LIMIT", 0, limit)
    commands = tuple(("ZRANGEBYSCORE", getattr(shard, queue), *window) for shard in shards)
    return independent(
        commands, lambda *answers: [entry for answer in answers for entry in entries(answer)], Op.MEMBERS
    )


def counts(keys: Keys) -> Call[list[int]]:
    """Build a call that counts the sessions per shard, without exempt ones. Shards of an unreachable node count 0."""
    commands = tuple(("ZCOUNT", shard.active, 0, "+inf") for shard in keys.shards())
    return independent(commands, lambda *answers: list(answers), Op.COUNTS, absent=0)
