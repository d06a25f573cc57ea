"""Read INFO and CONFIG GET from a server, or from each node of a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from redismem.errors import NotAllowed, StoreUnavailable
from redismem.inspection.nodes import owners_of
from redismem.inspection.rules import Facts, drops_keys
from redismem.protocol import replies
from redismem.protocol.call import Call
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
    places = owners_of(store)
    infos = await asyncio.gather(*(_memory_at(store, place) for place in places))
    return dict(zip(places, infos, strict=True))


async def drop_keys(store: Store) -> bool:
    """True if any node reports a policy that evicts keys when its memory is full."""
    return any(map(drops_keys, (await memory_of(store)).values()))


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
