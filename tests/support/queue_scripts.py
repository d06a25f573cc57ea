"""Default arguments for running the scripts of the queues, and readers of the result."""

from __future__ import annotations

from typing import Any

from redismem.protocol import scripts
from support.raw_scripts import NOW_MS, Scripts

LEASE_MS = 30_000
FENCE = b"2-cd"

CLAIM: dict[str, Any] = {
    "now_ms": NOW_MS,
    "nonce": "cd",
    "lease_ms": LEASE_MS,
    "threshold": 5,
    "token_limit": "-",
    "recent_limit": 3,
    "summaries_limit": 2,
    "max_attempts": 3,
}
COMMIT: dict[str, Any] = {
    "now_ms": NOW_MS + 7,
    "fence": FENCE,
    "epoch": "1-ab",
    "first_seq": 1,
    "edited": "-",
    "next_seq": 5,
    "count": 4,
    "uncounted_count": 0,
    "tokens": 6,
    "threshold": 5,
    "token_limit": "-",
    "recent_limit": 3,
    "summaries_limit": 2,
    "summary_field": "summary:1",
    "summary": "told",
    "sketch": "-",
    "merged": "-",
    "pinned_field": "-",
    "pinned": "",
    "more_large": 0,
    "kept_count": 0,
}
RELEASE: dict[str, Any] = {
    "now_ms": NOW_MS + 7,
    "fence": FENCE,
    "backoff_ms": 900,
    "counts": 1,
    "max_attempts": 3,
    "reason": "-",
}
FIRST_MS, LONGEST_MS = 300_000, 86_400_000
SWEEP = (3, FIRST_MS, LONGEST_MS)
"""The arguments of sweep.lua after the time: max_attempts, first_ms, longest_ms."""
QUEUES = ("overdue", "leased", "dead")
INDEXES = ("active", *QUEUES, "evictions")
STORED = ("messages", "state", "originals", "turned")


async def create_overdue(lua: Scripts, session_id: str = "s", count: int = 6) -> None:
    """Create a session with `count` messages, each with its number as content."""
    await lua.append(*map(str, range(1, count + 1)), session_id=session_id, token=b"%8d" % count)


async def create_claimed(lua: Scripts, count: int = 6) -> None:
    """Create a session that a worker has claimed with `FENCE`."""
    await create_overdue(lua, count=count)
    assert await lua.run("claim", **CLAIM) == [b"job", FENCE, 1, NOW_MS, b"%d" % NOW_MS]


async def run_many(lua: Scripts, name: str, sessions: list[str], *arguments: Any) -> Any:
    """Run a script about several sessions. Its keys are the indexes, and the state or all keys of each session."""
    script = scripts.load(name)
    each = STORED if name == "queue_eviction" else ("state",)
    keys = [*map(lua.key, (*INDEXES, "owners", "turns"))]
    keys += [lua.key(key, session_id) for session_id in sessions for key in each]
    await lua.raw.script_load(script.source)
    return await lua.raw.evalsha(script.sha.decode(), len(keys), *keys, *arguments)


async def queues(lua: Scripts) -> dict[str, dict[bytes, float]]:
    """Return the entries of the queues that are not empty."""
    found = {name: await lua.queue(name) for name in (*QUEUES, "evictions")}
    return {name: entries for name, entries in found.items() if entries}


async def changed_fields(lua: Scripts, before: dict[bytes, bytes]) -> dict[bytes, bytes | None]:
    """Return the changed fields; `None` is a removed field."""
    after = await lua.fields()
    return {name: after.get(name) for name in before.keys() | after if after.get(name) != before.get(name)}


async def contents(lua: Scripts, key: str = "messages") -> list[str]:
    """Return the contents of a list of messages, each a digit."""
    elements = await lua.raw.lrange(lua.key(key), 0, -1)
    return [element.partition(b"content")[2][1:2].decode() for element in elements]
