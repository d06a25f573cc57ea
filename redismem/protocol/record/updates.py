"""List the records of a namespace by their last update, newest first, over all shards. No I/O."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import Any

from redismem.events import Op
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import scored_members
from redismem.protocol.owners import owner_score
from redismem.protocol.record.listing import PageReader

_LEAST_COUNT = 16
_Place = tuple[int, bytes, int]
"""The negative time of an update, and the id and the shard of its record: the newest one is the least."""


@dataclass(slots=True)
class _Shard:
    number: int
    prefix: bytes
    count: int
    found: list[_Place] = field(default_factory=list)
    reached: float = -math.inf
    """The negative time of the last update that was read; what is unread is not newer."""
    is_done: bool = False


class UpdatesReader(PageReader):
    """Reads the records that were updated last. Each shard is asked for little more than its share of them first.

    The records of an owner are found by the index of owners, and their times are read.
    """

    def __init__(self, keys: Keys, prefix: str, limit: int, owner: str | None = None) -> None:
        """Begin a list, of all records that have a time of update or of those of an owner.

        Raises:
            ValueError: the limit is out of range.
            InvalidRecord: the prefix is no string.
            InvalidSessionId: the owner is invalid.
        """
        super().__init__(keys, prefix, limit, owner)
        share = limit / keys.shard_count
        count = max(math.ceil(share + 2 * math.sqrt(share)) + 2, _LEAST_COUNT)
        self._shards = [_Shard(number, name, count) for number, name in enumerate(self._prefixes)]
        self._owned: list[list[bytes]] | None = None

    def next_call(self) -> Call[Any] | None:
        if self._owner is not None:
            return self._next_of_owner(self._owner)
        newest = self._newest()
        last = newest[-1][0] if len(newest) == self._limit else math.inf
        waiting = [shard for shard in self._shards if not shard.is_done and shard.reached <= last]
        if not waiting:
            return None
        for shard in waiting:
            shard.count *= 1 if shard.reached == -math.inf else 4
        commands = tuple(
            ("ZRANGE", shard.prefix + b":records_updated", 0, shard.count - 1, "REV", "WITHSCORES") for shard in waiting
        )

        def decode(*answers: list[Any]) -> int:
            for shard, answer in zip(waiting, answers, strict=True):
                scored = list(scored_members(answer))
                shard.is_done = len(scored) < shard.count
                shard.reached = -scored[-1][1] if scored else math.inf
                shard.found = self._places(scored, shard.number)
            return len(waiting)

        return independent(commands, decode, Op.RECORD_LIST)

    def _next_of_owner(self, owner: str) -> Call[Any] | None:
        if self._owned is None:
            score = owner_score(owner)
            named = tuple(("ZRANGE", prefix + b":records_owned", score, score, "BYSCORE") for prefix in self._prefixes)
            return independent(named, self._note_owned, Op.RECORD_LIST)
        waiting = [shard for shard in self._shards if not shard.is_done and self._owned[shard.number]]
        if not waiting:
            return None
        owned = self._owned
        reads: tuple[Command, ...] = tuple(
            ("ZMSCORE", shard.prefix + b":records_updated", *owned[shard.number]) for shard in waiting
        )

        def decode(*answers: list[Any]) -> None:
            for shard, scores in zip(waiting, answers, strict=True):
                scored = zip(owned[shard.number], scores, strict=True)
                timed = [(member, int(float(score))) for member, score in scored if score is not None]
                shard.found, shard.is_done = self._places(timed, shard.number), True

        return independent(reads, decode, Op.RECORD_LIST)

    def _note_owned(self, *answers: list[bytes]) -> None:
        self._owned = list(answers)

    def _places(self, scored: list[tuple[bytes, int]], number: int) -> list[_Place]:
        return [(-score, member, number) for member, score in scored if member.startswith(self._prefix)]

    @property
    def is_full(self) -> bool:
        """True if there may be more records than the list has."""
        return len(self._newest()) == self._limit

    def _newest(self) -> list[_Place]:
        return heapq.nsmallest(self._limit, (place for shard in self._shards for place in shard.found))

    def _page(self) -> list[tuple[bytes, int]]:
        return [(member, number) for _, member, number in self._newest()]
