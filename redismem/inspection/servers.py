"""Read INFO and CONFIG GET from a server, and the parts of a namespace on the nodes of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from redismem.errors import NotAllowed, StoreUnavailable
from redismem.inspection.findings import Facts
from redismem.inspection.server_rules import Node, drops_keys
from redismem.protocol import replies
from redismem.protocol.call import Call
from redismem.protocol.queue import depths
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.store.store import Store


async def load_facts(store: Store, command: tuple[str, ...]) -> Facts:
    """Return the names and values in a command's answer; empty if Redis is down or refuses the command."""
    try:
        return await store.run(Call(None, (command,), _named))
    except (StoreUnavailable, NotAllowed):
        return {}


async def memory_of(store: Store) -> dict[str, Facts]:
    """Return the memory section of each node's INFO, by address; empty for a node that does not report it."""
    if store.transport.nodes is None:
        return {store.transport.place: await load_facts(store, ("INFO", "memory"))}
    places = shards_by_node(store)
    infos = await asyncio.gather(*(_memory_at(store, place) for place in places))
    return dict(zip(places, infos, strict=True))


async def free_bytes(store: Store) -> int | None:
    """Return the least that any node has left of its `maxmemory`; `None` if no node reports a limit."""
    infos = [facts for facts in (await memory_of(store)).values() if int(facts.get("maxmemory", 0))]
    return min((int(facts["maxmemory"]) - int(facts["used_memory"]) for facts in infos), default=None)


async def drop_keys(store: Store) -> bool:
    """True if any node reports a policy that evicts keys when its memory is full."""
    return any(map(drops_keys, (await memory_of(store)).values()))


def shards_by_node(store: Store) -> dict[str, list[int]]:
    """Return the shard numbers of each node, by the node's address."""
    nodes = store.transport.nodes
    if nodes is None:
        return {store.transport.place: list(range(store.keys.shard_count))}
    shards: dict[str, list[int]] = {place: [] for place in nodes.places}
    for number, shard in enumerate(store.keys.shards()):
        shards.setdefault(nodes.node_of([("GET", shard.fences)]), []).append(number)
    return shards


async def nodes_of(store: Store, infos: Mapping[str, Facts]) -> list[Node]:
    """Return the namespace's part on each node. `infos` is each node's INFO, by address. Raises StoreUnavailable."""
    counts = await store.run(depths.counts(store.keys))
    nodes = []
    for place, shards in shards_by_node(store).items():
        used = infos.get(place, {}).get("used_memory")
        sessions_count = sum(counts[shard] for shard in shards)
        nodes.append(Node(place, len(shards), sessions_count, None if used is None else int(used)))
    return nodes


async def _memory_at(store: Store, place: str) -> Facts:
    nodes = store.transport.nodes
    assert nodes is not None, "only clusters have several places"
    try:
        (answer,) = await nodes.run_at(place, [("INFO", "memory")], store.settings.reply_timeout_s)
    except (ServerError, ConnectionLost):
        return {}
    return {} if isinstance(answer, ServerError) else _named(answer)


def _named(answer: Any) -> Facts:
    """Parse an answer to INFO or CONFIG GET: text, a flat list, or a client's mapping of either."""
    if isinstance(answer, bytes):
        lines = answer.decode("utf-8", "replace").splitlines()
        return {name: value for name, colon, value in (line.partition(":") for line in lines) if colon}
    return {_text(name): _text(value) for name, value in replies.fields(answer).items()}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


async def server_cpu_s(store: Store) -> float | None:
    """Return the CPU seconds of a single Redis since its start; `None` if it does not report them, or on a cluster."""
    if store.transport.nodes is not None:
        return None
    facts = await load_facts(store, ("INFO", "cpu"))
    try:
        return float(facts["used_cpu_user"]) + float(facts["used_cpu_sys"])
    except (KeyError, ValueError):
        return None
