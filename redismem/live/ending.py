"""End a turn whose process has died, or was paused for longer than its lease."""

from __future__ import annotations

import contextlib

from redismem.errors import RedismemError, StoreUnavailable, TooLarge, TurnLost
from redismem.live.events import text_to_store
from redismem.messages.message import Message
from redismem.protocol.keys import SessionKeys
from redismem.protocol.live.calls import (
    TurnEnd,
    TurnWrite,
    append_turn,
    claim_turn,
    leave_line,
    read_turn,
    write_turns,
)
from redismem.protocol.live.turns import TurnField, new_holder
from redismem.store.store import Store

REASON = "lost"


async def end_if_dead(store: Store, keys: SessionKeys) -> int:
    """End the running turn if its lease is over, and return 0; or return the milliseconds until that may be so.

    The first to find a lease over only doubts the turn, and waits for half a lease more: so an outage of Redis that is
    longer than a lease ends no living turn.

    Raises:
        StoreUnavailable: Redis did not answer in time.
    """
    reply = await store.run(claim_turn(keys, store.settings, store.clock, new_holder()))
    if reply.state == "claimed":
        assert reply.turn is not None
        await end_as_lost(store, keys, reply.turn)
    return reply.left_ms if reply.state in ("leased", "doubted") else 0


async def give_up(store: Store, keys: SessionKeys, ticket: str) -> None:
    """Let nobody wait for a turn whose caller has left before it began. If it has begun meanwhile, it is lost."""
    with contextlib.suppress(RedismemError):  # then its place lapses, or its lease ends
        turn = await store.run(leave_line(keys, ticket))
        if turn is not None:
            await end_as_lost(store, keys, turn)


async def end_as_lost(store: Store, keys: SessionKeys, turn: TurnField) -> None:
    """Store what was said since the last append as an incomplete reply, and end the turn as lost.

    The turn names its holder, which the caller must be.
    """
    log = (await store.run(read_turn(keys, 0))).log
    if not log.endswith(b"\n"):  # its process died within a long line: nobody was told the rest
        write = TurnWrite(keys, turn, len(log), b"\n")
        await store.run(write_turns(store.settings, store.clock, [write]))
        log += b"\n"
    text, appends_count = text_to_store(log)
    calls = store.session_calls(keys.session_id)
    reply = [Message("assistant", text, metadata={"incomplete": REASON})] if text else []
    end = TurnEnd("lost", REASON, None, bool(reply))
    try:
        await store.run(append_turn(calls, turn, reply, {}, offset=len(log), number=appends_count, end=end))
    except (StoreUnavailable, TurnLost):
        raise
    except RedismemError as refused:
        if not reply or not isinstance(refused, TooLarge):
            raise
        end = TurnEnd("lost", f"{REASON}: {type(refused).__name__}", None, False)
        await store.run(append_turn(calls, turn, [], {}, offset=len(log), number=appends_count, end=end))
