"""The shards, sessions and memory of each node, and the settings in its redis.conf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redismem.inspection.rules import OK, WARN, Facts, Finding
from redismem.protocol.queue import depths
from redismem.store.store import Store

# The fullest node may hold this many times its share: shards are spread evenly, sessions nearly so.
_EVEN = 1.5
_FEW_SESSIONS = 1_000
# A server answers no client until a script has run for this long; other nodes of a cluster declare it dead after 15 s.
_BUSY_MS = 5_000


@dataclass(frozen=True, slots=True)
class Node:
    """The part of a namespace on one node. `used_bytes` covers the whole node; `None` means it does not report it."""

    place: str
    shards_count: int
    sessions_count: int
    used_bytes: int | None


def owners_of(store: Store) -> dict[str, list[int]]:
    """Return the shard numbers of each node, by the node's address."""
    nodes = store.transport.nodes
    if nodes is None:
        return {store.transport.place: list(range(store.keys.shard_count))}
    owners: dict[str, list[int]] = {place: [] for place in nodes.places}
    for number, shard in enumerate(store.keys.shards()):
        owners.setdefault(nodes.node_of([("GET", shard.fences)]), []).append(number)
    return owners


async def nodes_of(store: Store, infos: Mapping[str, Facts]) -> list[Node]:
    """Return the namespace's part on each node. `infos` is each node's INFO, by address. Raises StoreUnavailable."""
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
    """Judge how evenly the sessions are spread over the nodes."""
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


def config(facts: Facts) -> Finding:
    """Judge the settings of redis.conf that no other rule judges."""
    if not facts:
        return Finding("config", WARN, "not_told")
    wrong = []
    if (limit := facts.get("client-output-buffer-limit")) is not None and limit.startswith("normal 0 0 0"):
        wrong.append("client-output-buffer-limit")
    busy = facts.get("busy-reply-threshold") or facts.get("lua-time-limit")
    if busy is not None and (int(busy) == 0 or int(busy) > _BUSY_MS):
        wrong.append("busy-reply-threshold")
    if facts.get("min-replicas-to-write", "0") != "0" and int(facts.get("min-replicas-max-lag", 10)) > 10:
        wrong.append("min-replicas-max-lag")
    return Finding("config", WARN if wrong else OK, "wrong" if wrong else "good", {"wrong": tuple(wrong)})
