"""Turns as they are stored, written with and without the scripts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from redismem import Memory
from redismem.errors import TurnLost
from redismem.protocol.keys import SessionKeys
from redismem.protocol.live.calls import TurnEnd, TurnWrite, append_turn, begin_turn, read_turn, write_turns
from redismem.protocol.live.turns import TurnField, new_holder
from redismem.protocol.session.calls import SessionCalls

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


@dataclass
class Told:
    """A turn that the scripts have begun."""

    memory: Memory
    calls: SessionCalls
    turn: TurnField
    log_bytes: int

    async def write(self, text: str) -> bool:
        """Write a text to the log. False means that the turn is lost."""
        data = json.dumps({"type": "text", "delta": text}).encode() + b"\n"
        write = TurnWrite(self.calls.keys, self.turn, self.log_bytes, data)
        (reply,) = await self.memory.store.run(write_turns(self.memory.settings, None, [write]))
        self.log_bytes = reply.log_bytes
        return reply.state != "lost"

    async def end(self) -> bool:
        """Append a reply and end the turn. False means that the turn is lost."""
        end, reply = TurnEnd("done", "", None, has_reply=True), {"role": "assistant", "content": "answer"}
        call = append_turn(self.calls, self.turn, [reply], {}, offset=self.log_bytes, number=1, end=end)
        try:
            await self.memory.store.run(call)
        except TurnLost:
            return False
        return True


async def begin(memory: Memory, session_id: str, text: str, owner: str | None = None) -> Told:
    """Begin a turn whose log quotes `text`."""
    calls = memory.store.session_calls(session_id, owner)
    names: dict[str, Any] = {"turn_id": "t", "holder": new_holder(), "ticket": None, "again": None}
    begun = await memory.store.run(begin_turn(calls, [{"role": "user", "content": "ask"}], {}, **names))
    log = await memory.store.run(read_turn(calls.keys, 0))
    told = Told(memory, calls, begun.turn, len(log.log))
    assert await told.write(text)
    return told
