"""Keys and values in Redis, read without a memory."""

from __future__ import annotations

from typing import Any

_READERS: dict[bytes, tuple[str, tuple[Any, ...]]] = {
    b"list": ("LRANGE", (0, -1)),
    b"hash": ("HGETALL", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"string": ("GET", ()),
}


async def keys_of(raw: Any, namespace: str) -> set[bytes]:
    """Return every key of a namespace, without those that remember a clear for a while."""
    found = {key async for key in raw.scan_iter(match=f"rm:{{{namespace}[:}}]*", count=10_000)}
    return {key for key in found if b"}:cleared:" not in key}


async def keys_with(raw: Any, namespace: str, session_id: str) -> set[bytes]:
    """Return every key of a namespace whose name or content contains the session id."""
    session = session_id.encode()
    stored = await read_namespace(raw, namespace)
    return {key for key, (content, _) in stored.items() if session in key or session in repr(content).encode()}


async def read_namespace(raw: Any, namespace: str) -> dict[bytes, tuple[Any, int]]:
    """Return the content and the expiry time of every key of a namespace."""
    found = {}
    for key in sorted(await keys_of(raw, namespace)):
        command, arguments = _READERS[await raw.type(key)]
        content = await raw.execute_command(command, key, *arguments)
        found[key] = (content, await raw.pexpiretime(key))
    return found


COUNTERS = ("first_seq", "message_count", "tokens", "active_ms", "expires_ms", "evicting")


async def set_counters(raw: Any, state: bytes, **changed: Any) -> None:
    """Set some counters of a state to any values."""
    version, *numbers = (await raw.hget(state, "counters")).decode().split()
    found = dict(zip(COUNTERS, numbers, strict=False)) | changed
    await raw.hset(state, "counters", " ".join([version, *(str(found[name]) for name in COUNTERS if name in found)]))
