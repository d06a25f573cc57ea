"""How full the queues of a namespace are, now: asked in one go, said in words, as a line, as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from redismem import queues
from redismem.calls import Call
from redismem.cli.terminal import duration, plural
from redismem.memory import Memory
from redismem.queues import QUEUES, Depth


@dataclass(frozen=True, slots=True)
class Depths:
    """Of every shard the depth of each queue and of the active index, at one moment of the server's clock."""

    now_ms: int
    max_sessions: int
    shards: list[dict[str, Depth]]
    fences: int
    """How many epochs and fences were ever given: one a new session, one a claim."""

    def total(self, queue: str) -> Depth:
        """Over all shards."""
        depths = [shard[queue] for shard in self.shards]
        firsts = [depth.first_ms for depth in depths if depth.first_ms is not None]
        return Depth(sum(depth.count for depth in depths), min(firsts, default=None))

    @property
    def sessions_count(self) -> int:
        return self.total("active").count

    @property
    def over(self) -> int:
        """Sessions beyond the limit; negative where there is room."""
        return self.sessions_count - self.max_sessions

    def sessions_line(self) -> str:
        if self.over > 0:
            return f"{plural(self.sessions_count, 'session')}, {self.over:,} over the limit of {self.max_sessions:,}"
        return f"{plural(self.sessions_count, 'session')}, the limit is {self.max_sessions:,}"

    def document(self, *, by_shard: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = {
            "now_ms": self.now_ms,
            "sessions": self.sessions_count,
            "max_sessions": self.max_sessions,
            "over": max(0, self.over),
            "queues": {queue: asdict(self.total(queue)) for queue in QUEUES},
        }
        if by_shard:
            found["shards"] = [
                {"shard": number, **{name: asdict(depth) for name, depth in shard.items()}}
                for number, shard in enumerate(self.shards)
            ]
        return found


def wait_of(queue: str, depth: Depth, now_ms: int) -> str:
    """What the first entry of a queue waits for, in words; "" where there is none."""
    if depth.first_ms is None:
        return ""
    ahead_ms = depth.first_ms - now_ms
    ago = duration(ahead_ms)
    if queue == "overdue":
        return f"oldest waits {ago}" if ahead_ms <= 0 else f"next try in {ago}"
    if queue == "leased":
        return f"ran out {ago} ago: to be taken over" if ahead_ms <= 0 else f"next runs out in {ago}"
    if queue == "dead":
        return f"oldest died {ago} ago"
    return f"oldest waits {ago}" if ahead_ms <= 0 else f"in hand, for {ago} at most"


async def depths_of(memory: Memory) -> Depths:
    """Raises StoreUnavailable."""
    now_ms = await memory.server_time_ms()
    shards = await memory.run(queues.depths(memory.keys), each=True)
    return Depths(now_ms, memory.settings.max_sessions, shards, await memory.run(_fences(memory), each=True))


def _fences(memory: Memory) -> Call[int]:
    commands = tuple(("GET", shard.fences) for shard in memory.keys.shards())
    return Call(None, commands, lambda *counts: sum(int(count or 0) for count in counts))
