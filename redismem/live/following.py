"""Follow a turn: its events so far, then those that come, in order and each once, in any process."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from redismem.errors import SessionNotFound
from redismem.formats.streams.replies import reply_events
from redismem.live.beginning import Host
from redismem.live.events import Event, decode_events
from redismem.live.feed import Feed
from redismem.live.info import TurnInfo
from redismem.live.live import live_of
from redismem.live.log import Log, parse_event_id
from redismem.protocol.live.calls import look_up_turn
from redismem.protocol.live.turns import TurnField, turn_name

RESET: Event = {"type": "reset"}
"""Tells a listener to drop what it was told of the turn: it is told anew."""
NO_ID = ""
"""The id of an event that is in no log: nobody can go on behind it."""


async def turn_of(host: Host, turn_id: str) -> TurnInfo | None:
    """Return what the session knows of the turn with this id; `None` if it knows none."""
    name = turn_name(turn_id)
    found = await host.store.run(look_up_turn(host.calls.keys, name))
    turn = found.turn if found.turn is not None and found.turn.name == name.hex() else None
    if turn is not None and turn.is_running:
        return TurnInfo("running", "", turn.generation, turn.first_seq, 0, 0)
    record = found.record
    if record is None:
        return None
    generation = "" if turn is None else turn.generation
    reply = await host.reply(record.reply_seq) if record.reply_seq else None
    return TurnInfo("ended", record.outcome, generation, record.first_seq, record.last_seq, record.reply_seq, reply)


async def follow(host: Host, after: str | None, turn_id: str | None) -> AsyncGenerator[tuple[str, Event], None]:
    """Yield the events of a turn with their ids, see `Session.follow`."""
    at = None if after is None else parse_event_id(after)
    if after is not None and at is None:
        raise ValueError("after is the id of an event of a turn, such as 12-0a1b2c3d.480")
    name = None if turn_id is None else turn_name(turn_id).hex()
    live = live_of(host.store)
    writing = live.running.get(host.id)
    if writing is not None and _is_asked(writing.field, at, name) and writing.keys.owner == host.calls.keys.owner:
        offset = 0 if at is None else at[1]
        if not writing.has_event_at(offset):
            yield NO_ID, RESET
            offset = 0
        async for event_id, event in _tell(writing.log, offset):
            yield event_id, event
            at = parse_event_id(event_id)
            if event["type"] == "end":
                return
        at = at or (writing.field.generation, 0)  # the turn is lost: another process ends it
    await host.check_owner()
    feed = live.feed(host.calls.keys)
    try:
        await feed.join()
        async for each in _follow_feed(host, feed, at, name):
            yield each
    finally:
        live.leave(feed)


def _is_asked(field: TurnField, at: tuple[str, int] | None, name: str | None) -> bool:
    return (at is None or at[0] == field.generation) and (name is None or name == field.name)


async def _follow_feed(
    host: Host, feed: Feed, at: tuple[str, int] | None, name: str | None
) -> AsyncGenerator[tuple[str, Event], None]:
    field, log, offset = feed.field, feed.log, 0 if at is None else at[1]
    if field is not None and at is not None and name == field.name and at[0] != field.generation:
        yield NO_ID, RESET  # the turn failed, and has begun again under its id
        at, offset = None, 0
    if field is None or log is None or not _is_asked(field, at, name):
        if name is not None:
            async for each in _tell_stored(host, name, offset, is_known=False):
                yield each
        elif at is not None:
            yield NO_ID, RESET
    elif field.is_running or at is not None or name is not None:
        async for each in _tell_on(host, feed, field, log, offset):
            yield each


async def _tell_on(
    host: Host, feed: Feed, field: TurnField, log: Log | None, offset: int
) -> AsyncGenerator[tuple[str, Event], None]:
    """Yield the events of a turn from this offset on, also if its log is replaced or expires meanwhile."""
    told = b"" if log is not None and log.ends_event(offset) else None
    while log is not None:
        if told is None or not log.content.startswith(told):
            yield NO_ID, RESET
            offset = 0
        async for event_id, event in _tell(log, offset):
            offset = int(event_id.rpartition(".")[2])
            yield event_id, event
        if offset and log.ends_turn(offset):
            return
        told = bytes(log.content[:offset])
        log = await feed.log_after(log)
    async for each in _tell_stored(host, field.name, offset, is_known=True):
        yield each


async def _tell(log: Log, offset: int) -> AsyncGenerator[tuple[str, Event], None]:
    """Yield the events of a log from this offset on, until it ends."""
    while True:
        changed, has_ended = log.changed(), log.has_ended
        for end, event in decode_events(log.content, offset):
            offset = end
            yield f"{log.generation}.{end}", event
        if has_ended and log.content.find(b"\n", offset) < 0:
            return
        if not has_ended:
            await changed.wait()


async def _tell_stored(
    host: Host, name: str, offset: int, *, is_known: bool
) -> AsyncGenerator[tuple[str, Event], None]:
    """Yield a turn whose log is gone, as the events of its stored reply; first a reset, if events were told before."""
    record = (await host.store.run(look_up_turn(host.calls.keys, bytes.fromhex(name)))).record
    if record is None and not is_known:
        raise SessionNotFound("the session knows no turn with this id", host.id)
    if offset:
        yield NO_ID, RESET
    if record is None:
        yield NO_ID, {"type": "end", "outcome": "lost", "reason": "cleared", "seq": None, "usage": None}
        return
    reply = await host.reply(record.reply_seq) if record.reply_seq else None
    for event in [] if reply is None else reply_events(reply):
        yield NO_ID, event
    reason = "" if reply is None or not isinstance(reply.metadata, dict) else str(reply.metadata.get("incomplete", ""))
    end = {"type": "end", "outcome": record.outcome, "reason": reason, "seq": record.reply_seq or None, "usage": None}
    yield NO_ID, end
