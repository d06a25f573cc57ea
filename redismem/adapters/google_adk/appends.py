"""Appends of events: those of one session that wait in this process are stored together, in one write."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.session import Session

from redismem import RecordConflict
from redismem.adapters.google_adk.layout import (
    EVENT,
    ID,
    SESSION,
    count_of,
    encode_event,
    encode_state,
    encode_update,
)
from redismem.adapters.google_adk.places import Name, Places
from redismem.adapters.sessions import settle
from redismem.record import Change, Record

_TOGETHER_COUNT, _TOGETHER_BYTES = 256, 4 * 1024 * 1024
"""The events of one write, and their bytes; one event may have more."""
_TOGETHER_KEYS = 2_000


@dataclass(slots=True, eq=False)
class Append:
    """An event on its way, and then its number or the error."""

    session: Session
    event: Event
    text: bytes
    values: Mapping[str, Mapping[str, Any]]
    number: int = 0
    """The number of the event in its session; 0 until it is stored."""
    was_stored: bool = False
    """True if an earlier append, whose reply was lost, has stored the event."""
    error: Exception | None = None

    def mark_stored(self, number: int) -> None:
        """Note the number of the event, also in the caller's session, before its next append is compared with it."""
        self.number = number
        self.session._storage_update_marker = encode_update(number, self.event.timestamp).decode()

    @property
    def field(self) -> bytes:
        """The field with the numbers of events that have this id."""
        return ID + self.event.id.encode("utf-8", "surrogatepass")


@dataclass(slots=True)
class _Queue:
    waiting: deque[Append] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    callers_count: int = 0


class Appends:
    """The appends of one service: one write of a session at a time, which stores all its events that wait."""

    def __init__(self, places: Places, *, single_writer: bool) -> None:
        self._places, self._single_writer = places, single_writer
        self._queues: dict[tuple[asyncio.AbstractEventLoop, Name], _Queue] = {}

    async def append(self, session: Session, event: Event) -> Append:
        """Store an event, and return it with its number.

        Raises:
            SessionNotFoundError: There is no such session.
            StaleSessionError: With a single writer, others have appended since the session was read.
        """
        append = Append(session, event, *encode_event(event))
        name = session.app_name, session.user_id, session.id
        place = asyncio.get_running_loop(), name
        queue = self._queues.setdefault(place, _Queue())
        queue.callers_count += 1
        queue.waiting.append(append)
        try:
            async with queue.lock:
                while not append.number and append.error is None:
                    await settle(self._store_together(name, self._take(queue)))
        finally:
            if append in queue.waiting:  # the caller was cancelled before its turn came
                queue.waiting.remove(append)
            queue.callers_count -= 1
            if not queue.callers_count:
                del self._queues[place]
        if append.error is not None:
            raise append.error
        return append

    def _take(self, queue: _Queue) -> list[Append]:
        """Take what one write may store. A single writer's events are compared with the session one by one."""
        taken: list[Append] = []
        ids: set[bytes] = set()
        size = keys = 0
        while queue.waiting:
            each = queue.waiting[0]
            size, keys = size + len(each.text), keys + sum(map(len, each.values.values()))
            is_full = len(taken) == (1 if self._single_writer else _TOGETHER_COUNT)
            is_full = is_full or size > _TOGETHER_BYTES or keys > _TOGETHER_KEYS or each.field in ids
            if taken and is_full:
                break
            ids.add(each.field)
            taken.append(queue.waiting.popleft())
        return taken

    async def _store_together(self, name: Name, appends: Sequence[Append]) -> None:
        try:
            await self._store(name, appends)
        except Exception as error:
            for append in appends:
                append.error = error

    async def _store(self, name: Name, appends: Sequence[Append]) -> None:
        record = self._places.session(name)
        stored = _expected(appends)
        is_first, is_app_written = stored is not None, False
        while True:
            numbers: Sequence[bytes | None] = [None] * len(appends)
            if stored is None:
                stored, *numbers = await record.get(SESSION, *(append.field for append in appends))
            if stored is None:
                raise SessionNotFoundError(f"Session {name[2]} not found.")
            new = [each for each in zip(appends, numbers, strict=True) if not await _is_stored(record, *each)]
            if self._single_writer and any(each.session._storage_update_marker != stored.decode() for each, _ in new):
                raise StaleSessionError(f"Session {name[2]} was changed since it was read: read it again.")
            app = _join((append for append, _ in new), "app")
            if app and not is_app_written:
                await write_app(self._places, name, app)
                is_app_written = True
            if not new or await self._write(record, name, stored, new, is_first=is_first):
                return
            stored, is_first = None, False  # another writer was faster: read, and take the next numbers

    async def _write(
        self, record: Record, name: Name, stored: bytes, new: Sequence[tuple[Append, bytes | None]], *, is_first: bool
    ) -> bool:
        """Write events with the next numbers; False if the session has changed. `is_first` expects new ids."""
        count = count_of(stored)
        fields: dict[bytes, bytes] = {}
        for number, (append, others) in enumerate(new, count + 1):
            encoded = b"%016d" % number
            fields[append.field] = encoded if others is None else others + b" " + encoded
            fields[EVENT + encoded] = append.text
        appends = [append for append, _ in new]
        updated = encode_update(count + len(new), appends[-1].event.timestamp)
        values = {kind: _join(appends, kind) for kind in ("session", "user")}
        absent = [append.field for append in appends] if is_first else []
        try:
            await write_session(self._places, record, name, values, fields, updated, stored, absent)
        except RecordConflict:
            return False
        for number, append in enumerate(appends, count + 1):
            append.mark_stored(number)
        return True


def _expected(appends: Sequence[Append]) -> bytes | None:
    """Return the session as the caller of a single event has read it, to save another read; `None` to read it.

    The state of an app is written first, and only if the session exists.
    """
    [append, *others] = appends
    marker = append.session._storage_update_marker
    return None if others or append.values["app"] or marker is None else marker.encode()


def _join(appends: Iterable[Append], kind: str) -> dict[str, Any]:
    """Return the changes of a state by several events, in their order."""
    joined: dict[str, Any] = {}
    for append in appends:
        joined |= append.values[kind]
    return joined


async def write_session(
    places: Places,
    record: Record,
    name: Name,
    values: Mapping[str, Mapping[str, Any]],
    fields: Mapping[bytes, bytes],
    updated: bytes,
    stored: bytes | None,
    absent: Sequence[bytes] = (),
) -> None:
    """Write a session and its user's state in one step.

    Raises:
        RecordConflict: The session is not as `stored`, or has one of the `absent` fields.
    """
    state = encode_state(values["session"])
    events = [each for each in fields if each.startswith(EVENT)]
    change = Change(
        equals={} if stored is None else {SESSION: stored},
        absent=[SESSION] if stored is None else absent,
        sets={**state, **fields, SESSION: updated},
        adds=[*state, *events, SESSION],
    )
    user = encode_state(values["user"])
    others = [(places.user(*name[:2]), Change(sets=user, adds=[*user]))] if user else []
    await record.write(places.retention.add_to(change, is_ranked=True), *others)


async def write_app(places: Places, name: Name, values: Mapping[str, Any]) -> None:
    """Write the changes of an app's state, which may be on another node than the session."""
    if values:
        state = encode_state(values)
        await places.app(name[0]).write(Change(sets=state, adds=[*state]))


async def _is_stored(record: Record, append: Append, numbers: bytes | None) -> bool:
    """True if an event was stored before. The texts of equal events may differ in the order of sets."""
    if numbers is None:
        return False
    event = Event.model_validate_json(append.text)
    texts = await record.get(*(EVENT + number for number in numbers.split()))
    if not any(each is not None and Event.model_validate_json(each) == event for each in texts):
        return False
    append.mark_stored(int(numbers.split()[-1]))
    append.was_stored = True
    return True
