"""What lies on each node: shards, sessions, memory; and what its redis.conf says. Data out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redismem.inspection.rules import OK, WARN, Facts, Finding
from redismem.protocol.queue import depths
from redismem.store.store import Store

# How much more than its share the fullest node may hold: the shards are dealt out evenly, sessions nearly so.
_EVEN = 1.5
_FEW_SESSIONS = 1_000
# While a script runs for that long, the server answers nobody; a cluster's others take it for dead after 15 s.
_BUSY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Node:
    """What one node holds of a namespace, and of all it holds together. None: it does not tell."""

    place: str
    shards_count: int
    sessions_count: int
    used_bytes: int | None


def owners_of(store: Store) -> dict[str, list[int]]:
    """Each node by its place, with the numbers of the shards it has."""
    nodes = store.transport.nodes
    if nodes is None:
        return {store.transport.place: list(range(store.keys.shard_count))}
    owners: dict[str, list[int]] = {place: [] for place in nodes.places}
    for number, shard in enumerate(store.keys.shards()):
        owners.setdefault(nodes.node_of([("GET", shard.fences)]), []).append(number)
    return owners


async def nodes_of(store: Store, infos: Mapping[str, Facts]) -> list[Node]:
    """What each node holds. `infos`: what INFO says there, by its place. Raises StoreUnavailable."""
    counts = await store.run(depths.counts(store.keys))
    owners = owners_of(store)
    return [
        Node(
            place,
            len(shards),
            sum(counts[shard] for shard in shards),
            int(used) if (used := infos.get(place, {}).get("used_memory")) is not None else None,
        )
        for place, shards in owners.items()
    ]


def spread(nodes: Sequence[Node]) -> Finding:
    """Whether the sessions lie evenly on the nodes."""
    seen: dict[str, Any] = {
        "nodes": [
            {
                "place": node.place,
                "shards_count": node.shards_count,
                "sessions_count": node.sessions_count,
                "used_bytes": node.used_bytes,
            }
            for node in nodes
        ]
    }
    total, fullest = sum(node.sessions_count for node in nodes), max(node.sessions_count for node in nodes)
    if total >= _FEW_SESSIONS and fullest > _EVEN * total / len(nodes):
        return Finding("nodes", WARN, "uneven", seen)
    return Finding("nodes", OK, "even", seen)


def config(found: Facts) -> Finding:
    """What redis.conf should say beside what persistence, memory and replication are asked for."""
    if not found:
        return Finding("config", WARN, "not_told")
    wrong = []
    if (limit := found.get("client-output-buffer-limit")) is not None and limit.startswith("normal 0 0 0"):
        wrong.append("client-output-buffer-limit")
    busy = found.get("busy-reply-threshold") or found.get("lua-time-limit")
    if busy is not None and (int(busy) == 0 or int(busy) > _BUSY_MS):
        wrong.append("busy-reply-threshold")
    if found.get("min-replicas-to-write", "0") != "0" and int(found.get("min-replicas-max-lag", 10)) > 10:
        wrong.append("min-replicas-max-lag")
    return Finding("config", WARN if wrong else OK, "wrong" if wrong else "good", {"wrong": tuple(wrong)})
