"""Turns as they are stored, written without a script."""

from __future__ import annotations

from typing import Any

from redismem.protocol.keys import SessionKeys

GENERATION, HOLDER, NAME = "7-0123abcd", "feedc0de", "00112233445566"
TURN = f"r {GENERATION} {HOLDER} {NAME} {{}}"
"""The field of a running turn, of a question with this seq."""
KEYS = ("live", "turned", "waiters")
"""The keys of a session's turns."""


async def put_turn(raw: Any, keys: SessionKeys, status: str = "r", text: str = "told", first_seq: int = 1) -> None:
    """Store a turn in this status: with its log, which quotes `text`, an earlier turn that has ended, and a waiter.

    The session must exist. The log and the ended turns expire with it.
    """
    epoch = (await raw.hget(keys.state, "epoch")).decode()
    expires_ms = await raw.pexpiretime(keys.state)
    record = bytes.fromhex(NAME) + first_seq.to_bytes(5) + (0).to_bytes(3) + b"\1"
    header = epoch.partition("-")[2].ljust(16, "0").encode()
    lines = [
        f'{{"type":"message","first_seq":{first_seq},"last_seq":{first_seq}}}',
        f'{{"type":"text","delta":"{text}"}}',
    ]
    lines += [] if status == "r" else ['{"type":"end","outcome":"done","reason":"","seq":null,"usage":null}']
    await raw.set(keys.live, "".join(f"{line}\n" for line in lines), pxat=expires_ms)
    await raw.set(keys.turned, header + record, pxat=expires_ms)
    await raw.set(keys.waiters, f"89abcdef {expires_ms}", px=10_000)
    await raw.hset(keys.state, "turn", f"{status} {GENERATION} {HOLDER} {NAME} {first_seq}")
    if status == "r":
        await raw.hset(keys.state, mapping={"stop": "stopped", "doubt": HOLDER})
        await raw.zadd(keys.shard.turns, {keys.session: expires_ms})


async def keys_left(raw: Any, keys: SessionKeys) -> set[str]:
    """Return what there is of the session's turns: names of its keys, turns for the index, turn for the field."""
    left = {name for name in KEYS if await raw.exists(getattr(keys, name))}
    left |= {"turns"} if await raw.zscore(keys.shard.turns, keys.session) is not None else set()
    return left | ({"turn"} if await raw.hexists(keys.state, "turn") else set())
