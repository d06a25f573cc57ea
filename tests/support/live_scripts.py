"""Running turns for the tests of the scripts in lua/live/."""

from __future__ import annotations

from typing import Any

from support.raw_scripts import EXPIRES_MS, NOW_MS, Scripts

GENERATION, HOLDER, NAME = "5-aaaaaaaa", "bbbbbbbb", "00112233445566"
TURN = f"r {GENERATION} {HOLDER} {NAME} 1".encode()
LEASE_MS = 15_000
LINE = b'{"type":"message","first_seq":1,"last_seq":1}\n'
CLAIM: dict[str, Any] = {"now_ms": NOW_MS + LEASE_MS, "holder": "cccccccc", "lease_ms": LEASE_MS}


async def create_running(lua: Scripts, session_id: str = "s", turn: bytes = TURN) -> None:
    """Create a session with a question, and a turn that runs since NOW_MS."""
    await lua.append("a", session_id=session_id)
    await lua.raw.hset(lua.key("state", session_id), "turn", turn)
    await lua.raw.set(lua.key("live", session_id), LINE, pxat=EXPIRES_MS)
    await lua.raw.zadd(lua.key("turns"), {session_id: NOW_MS + LEASE_MS})


async def write(
    lua: Scripts,
    offset: int,
    data: bytes,
    *,
    generation: str = GENERATION,
    holder: str = HOLDER,
    now_ms: int = NOW_MS + 1,
) -> bytes:
    """Write to the log of one turn, and return the reply."""
    tail = ("s", generation, holder, offset, data)
    (reply,) = await lua.run("write_turns", *tail, now_ms=now_ms, lease_ms=LEASE_MS)
    assert isinstance(reply, bytes)
    return reply


async def log_of(lua: Scripts, session_id: str = "s") -> bytes | None:
    log: bytes | None = await lua.raw.get(lua.key("live", session_id))
    return log


async def heard(lua: Scripts, channel: bytes, action: Any) -> list[bytes]:
    """Return what listeners of a channel are told while the coroutine `action` runs."""
    async with lua.raw.pubsub() as listener:
        await listener.ssubscribe(channel)
        await listener.get_message(timeout=5)
        await action
        found = []
        while message := await listener.get_message(timeout=0.05):
            found.append(message["data"])
        return found
