"""Running turns for the tests of the scripts in lua/live/."""

from __future__ import annotations

from typing import Any

from support.raw_scripts import EXPIRES_MS, LIMITS, NOW_MS, REQUEST, Scripts, element

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


_APPENDED = {
    "limits": " ".join(map(str, LIMITS.values())),
    "request": " ".join(map(str, (REQUEST | {"expect": "@"}).values())),
    "token": bytes(22) + b"newepoch",
}
BEGIN: dict[str, Any] = _APPENDED | {"begun": f"{NAME} {HOLDER} - {LEASE_MS} 8 - - 0"}
"""A turn without a message."""
APPEND: dict[str, Any] = _APPENDED | {
    "turned_to": f"{GENERATION} {HOLDER} 0 {LEASE_MS} 0 0 - 0",
    "end_head": b"",
    "end_tail": b"",
}
"""An append of a turn without a message."""

HOLDER_1, HOLDER_2, ID_1, ID_2 = "11111111", "22222222", "0a" * 7, "0b" * 7
NONCE = "00112233445566ff"
"""The nonce of an epoch: as long as real ones, because records of ended turns begin with it."""


def _arguments(
    contents: tuple[str, ...], sets: dict[str, Any], token: bytes, changed: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the tail and the arguments of an append; `changed` replaces values of LIMITS and REQUEST."""
    changed = {"message_count": len(contents), "set_count": len(sets), "expect": "@"} | changed
    assert changed.keys() <= LIMITS.keys() | REQUEST.keys()
    limits, request = (
        " ".join(str(changed.get(name, value)) for name, value in defaults.items()) for defaults in (LIMITS, REQUEST)
    )
    tail = [*map(element, contents), *(part for pair in sets.items() for part in pair)]
    return tail, {"limits": limits, "request": request, "token": token}


def token_of(name: bytes, number: int = 1) -> bytes:
    """Return the token of an append; `number` tells one call and sending of it from another."""
    return name.ljust(7, b".")[:7] + bytes(2) + bytes([number]) + b"sender" + number.to_bytes(6) + bytes.fromhex(NONCE)


def begin_name(name: str, holder: str) -> bytes:
    """Return the bytes that name the append of a begin."""
    return f"{name[:3]}{holder[:4]}".encode()


async def begin(
    lua: Scripts,
    *contents: str,
    name: str = ID_1,
    holder: str = HOLDER_1,
    ticket: str = "-",
    places_limit: int = 2,
    again: tuple[Any, Any] = ("-", "-"),
    waited: int = 0,
    sets: dict[str, Any] | None = None,
    token: bytes | None = None,
    **changed: Any,
) -> Any:
    """Run begin_turn.lua, and return its reply."""
    tail, arguments = _arguments(contents, sets or {}, token or token_of(begin_name(name, holder)), changed)
    begun = f"{name} {holder} {ticket} {LEASE_MS} {places_limit} {again[0]} {again[1]} {waited}"
    return await lua.run("begin_turn", *tail, begun=begun, **arguments)


async def append(
    lua: Scripts,
    *contents: str,
    generation: str | None = None,
    holder: str = HOLDER_1,
    offset: int | None = None,
    outcome: str = "-",
    flags: int = 0,
    keep_ms: int = 60_000,
    with_originals: int = 0,
    sets: dict[str, Any] | None = None,
    token: bytes | None = None,
    **changed: Any,
) -> Any:
    """Run append_turn.lua, and return its reply. `outcome` and `flags` end the turn."""
    tail, arguments = _arguments(contents, sets or {}, token or token_of(b"append"), changed)
    generation = (await field(lua)).split()[1] if generation is None else generation
    offset = await lua.raw.strlen(lua.key("live")) if offset is None else offset
    turned_to = f"{generation} {holder} {offset} {LEASE_MS} {keep_ms} {with_originals} {outcome} {flags}"
    end_head, end_tail = (b"", b"") if outcome == "-" else (b'{"end":', b"}\n")
    return await lua.run("append_turn", *tail, turned_to=turned_to, end_head=end_head, end_tail=end_tail, **arguments)


async def field(lua: Scripts) -> str:
    """Return the field `turn`; "" without one."""
    turn: bytes | None = await lua.raw.hget(lua.key("state"), "turn")
    return (turn or b"").decode()


async def turned(lua: Scripts) -> bytes | None:
    records: bytes | None = await lua.raw.get(lua.key("turned"))
    return records


def record(name: str, first_seq: int, last_seq: int, flags: int) -> bytes:
    return bytes.fromhex(name) + first_seq.to_bytes(5) + (last_seq - first_seq).to_bytes(3) + bytes([flags])
