"""Reads of sessions, their events, and the states of users and apps."""

from __future__ import annotations

from functools import partial
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.base_session_service import GetSessionConfig

from redismem.adapters.google_adk.layout import EVENT, SESSION, STATE, VALUES, decode_state
from redismem.adapters.sessions import decode_in_slices, read_or_begin
from redismem.record import Found, Record
from redismem.record.pages import all_parts

_PAGE_COUNT = 1_000
_ONE_TRIP_COUNT = 10_000
"""The keys of a state that Redis returns with the session in one step."""
_WINDOW_COUNT = 100
"""The events that a read with `after_timestamp` asks for at a time."""


async def read_state(record: Record) -> dict[str, Any]:
    """Return the state in the record of a user or an app."""
    state: dict[str, Any] = {}
    read = partial(record.page, STATE, limit=_PAGE_COUNT)
    async for page in all_parts(lambda after: read_or_begin(record, partial(read, after=after))):
        state |= decode_state((each.member, each.value) for each in page.found)
    return state


async def read_session(record: Record) -> Found | None:
    """Return the time, the count and the state of a session, as they were at one moment.

    More keys than one round trip returns are read again if an event was appended meanwhile, up to ten times.
    """
    for _ in range(10):
        found = await read_or_begin(record, partial(record.newest, SESSION, member=SESSION, related=VALUES))
        if found is None or len(found.related) <= _ONE_TRIP_COUNT or await record.get(SESSION) == [found.value]:
            break
    return found


async def read_events(record: Record, config: GetSessionConfig | None) -> list[Event]:
    """Return the last events that a config asks for, oldest first."""
    most = None if config is None else config.num_recent_events
    since_s = None if config is None else config.after_timestamp
    newest: list[Event] = []
    after: bytes | None = None
    while most is None or len(newest) < most:
        limit = _PAGE_COUNT if since_s is None else _WINDOW_COUNT
        limit = limit if most is None else min(limit, most - len(newest))
        page = await record.page(EVENT, after=after, limit=limit, reverse=True)
        texts = [each.value for each in page.found if each.value is not None]
        for event in await decode_in_slices(texts, lambda some: [*map(Event.model_validate_json, some)]):
            if since_s is not None and event.timestamp < since_s:
                return newest[::-1]
            newest.append(event)
        after = page.after
        if after is None:
            break
    return newest[::-1]
