"""Sessions and records put into quarantine as an operator would do it by hand."""

from __future__ import annotations

from redismem.protocol.keys import SessionKeys
from redismem.protocol.quarantine import Copy, Seen, look, of_session, read_copies, set_aside
from redismem.protocol.record import quarantine as record_quarantine
from redismem.protocol.record.keys import RecordKeys
from redismem.protocol.record.quarantine import of_record
from redismem.protocol.session import quarantine as session_quarantine
from redismem.store.store import Store


def quarantine_of(keys: SessionKeys) -> bytes:
    """Return the beginning of the session's keys in quarantine."""
    return keys.messages.replace(b":messages:", b":quarantine:", 1)


async def move_session(
    store: Store, session_id: str, put_ms: int, *, epoch: str | None = None, seen: Seen | None = None
) -> bool:
    """Move a session into quarantine: any, or that of an epoch. `seen` is an earlier look at it."""
    place = of_session(store.keys.session(session_id))
    if seen is None:
        seen = await store.run(look(place, place.live()))
    note = session_quarantine.describe_damage(seen, epoch, session_id)
    return note is not None and await store.run(set_aside(place, put_ms, seen, note, store.settings.idle_timeout_ms))


async def move_record(
    store: Store, keys: RecordKeys, put_ms: int, *, forced: bool = True, seen: Seen | None = None
) -> bool:
    """Move a record into quarantine, a readable one too if `forced`. `seen` is an earlier look at it."""
    place = of_record(keys)
    if seen is None:
        seen = await store.run(look(place, place.live()))
    note = record_quarantine.describe_damage(keys, seen, forced=forced)
    return note is not None and await store.run(set_aside(place, put_ms, seen, note, store.settings.idle_timeout_ms))


async def copies_of(store: Store, keys: SessionKeys | RecordKeys) -> list[Copy]:
    """Return the copies that the note of a session or record tells of, oldest first."""
    place = of_session(keys) if isinstance(keys, SessionKeys) else of_record(keys)
    return await store.run(read_copies({place: set()}))
