"""The depths of a namespace's queues, read in round trips small enough not to delay a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from redismem.context.info import QUEUES, Depth, Queues
from redismem.protocol.call import Call, independent
from redismem.protocol.keys import Keys, ShardKeys
from redismem.protocol.namespace.holds import Ticking, ticking
from redismem.protocol.queue import depths as depth_calls
from redismem.protocol.record.sweeps import LISTED
from redismem.store.store import Store

_TOGETHER_COUNT = 100
_EMPTY = dict.fromkeys(("active", *QUEUES), Depth(0, None))


@dataclass(frozen=True, slots=True)
class Depths:
    """The depth of each queue and of the active index in every shard, at one moment of the server's clock."""

    namespace: str
    now_ms: int
    max_sessions: int
    shards: list[dict[str, Depth]]
    records_count: int
    """The number of records, expired ones that are not swept yet included."""
    fences: int
    """The number of epochs and fences ever issued: one per new session, one per claim."""
    ticking: Ticking
    degraded: bool
    """True if a node of the cluster does not answer: its shards, or the ticks, are empty here."""

    def total(self, queue: str) -> Depth:
        """Return the depth of a queue over all shards."""
        depths = [shard[queue] for shard in self.shards]
        firsts = [depth.first_ms for depth in depths if depth.first_ms is not None]
        return Depth(sum(depth.count for depth in depths), min(firsts, default=None))

    @property
    def sessions_count(self) -> int:
        """The number of sessions listed as active, without exempt ones: they do not count for the limit."""
        return self.total("active").count

    @property
    def over(self) -> int:
        """The number of sessions beyond the limit; negative if there is room."""
        return self.sessions_count - self.max_sessions

    @property
    def recent_age_ms(self) -> int | None:
        """The time since the limit last evicted a session active within an hour before; `None` means never."""
        recent_ms = self.ticking.recent_ms
        return None if recent_ms is None else max(0, self.now_ms - recent_ms)

    @property
    def running(self) -> list[str]:
        """The processes with workers that run now, by machine, pid and nonce, sorted."""
        return sorted(name for name, until_ms in self.ticking.processes.items() if until_ms > self.now_ms)

    def queues(self) -> Queues:
        """Return the depths as the public record."""
        return Queues(
            namespace=self.namespace,
            now_ms=self.now_ms,
            session_count=self.sessions_count,
            max_sessions=self.max_sessions,
            overdue=self.total("overdue"),
            leased=self.total("leased"),
            dead=self.total("dead"),
            evictions=self.total("evictions"),
            ticked_ms=self.ticking.last_ms,
            process_count=len(self.running),
            degraded=self.degraded,
        )

    def document(self, *, by_shard: bool = False) -> dict[str, Any]:
        """Return the depths as JSON values."""
        document: dict[str, Any] = {
            "now_ms": self.now_ms,
            "sessions": self.sessions_count,
            "max_sessions": self.max_sessions,
            "over": max(0, self.over),
            "records": self.records_count,
            "queues": {queue: asdict(self.total(queue)) for queue in QUEUES},
            "ticked_ms": self.ticking.last_ms,
            "process_count": len(self.running),
            "degraded": self.degraded,
        }
        if by_shard:
            document["shards"] = [
                {"shard": number, **{name: asdict(depth) for name, depth in shard.items()}}
                for number, shard in enumerate(self.shards)
            ]
        return document


async def depths_of(store: Store) -> Depths:
    """Read the depths of all queues, and which processes poll them. Raises StoreUnavailable."""
    now_ms = await store.server_time_ms()
    answers = await shard_depths(store)
    shards = [_EMPTY if shard is None else shard for shard in answers]
    first, *others = shard_groups(store)
    (fences_count, records_count), ticks = await store.run(_counts_and_ticking(first, store.keys))
    for group in others:
        more_fences, more_records = await store.run(_counts(group))
        fences_count, records_count = fences_count + more_fences, records_count + more_records
    degraded = None in answers or ticks is None
    ticks = ticks or Ticking({}, {}, None)
    limit = store.agreement.session_limit
    return Depths(store.keys.namespace, now_ms, limit, shards, records_count, fences_count, ticks, degraded)


async def shard_depths(store: Store) -> list[dict[str, Depth] | None]:
    """Read the depths of all queues, per shard; `None` if its node does not answer. Raises StoreUnavailable."""
    return [shard for group in shard_groups(store) for shard in await store.run(depth_calls.depths(group))]


def shard_groups(store: Store) -> list[Sequence[ShardKeys]]:
    """Return the shards in groups, each for one round trip: decoding thousands of replies at once delays turns."""
    shards = store.keys.shards()
    return [shards[at : at + _TOGETHER_COUNT] for at in range(0, len(shards), _TOGETHER_COUNT)]


async def sessions_count(store: Store) -> int:
    """Count the sessions listed as active, including expired sessions not yet swept. Raises StoreUnavailable."""
    counts = await store.run(depth_calls.counts(store.keys))
    return sum(counts)


def _counts_and_ticking(shards: Sequence[ShardKeys], keys: Keys) -> Call[tuple[tuple[int, int], Ticking | None]]:
    """Build a call that also reads which processes poll the queues; `None` if the node that has it does not answer."""
    counts, ticks = _counts(shards), ticking(keys)

    def decode(*answers: Any) -> tuple[tuple[int, int], Ticking | None]:
        own, (held, listed) = answers[:-2], answers[-2:]
        is_known = counts.absent not in (held, listed)
        return counts.decode(*own), ticks.decode(held, listed) if is_known else None

    return independent((*counts.commands, *ticks.commands), decode, absent=counts.absent)


def _counts(shards: Sequence[ShardKeys]) -> Call[tuple[int, int]]:
    """Build a call that returns the number of fences issued in these shards, and the number of their records."""
    fences = tuple(("GET", shard.fences) for shard in shards)
    records = tuple(("ZCARD", shard.prefix + LISTED) for shard in shards)

    def decode(*counts: Any) -> tuple[int, int]:
        issued, listed = counts[: len(shards)], counts[len(shards) :]
        return sum(int(count or 0) for count in issued), sum(listed)

    return independent((*fences, *records), decode, absent=0)
