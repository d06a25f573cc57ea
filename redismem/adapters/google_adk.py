"""Google ADK: `SessionService` keeps sessions, their events and the state of users and apps in Redis."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import Any, Self
from urllib.parse import quote, unquote

from redismem import InvalidSessionId, Memory, RecordConflict
from redismem.adapters.sessions import Opened, decode_in_slices, read_or_begin
from redismem.record import Change, Found, Record, Related
from redismem.settings.extras import from_extra

with from_extra("google-adk", __name__):
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.adk.sessions.state import State

try:
    from google.adk.errors._stale_session_error import StaleSessionError
except ImportError:  # an older ADK raises its base
    StaleSessionError = ValueError  # type: ignore[assignment, misc]

_SESSION, _STATE, _EVENT, _ID = b"m", b"s:", b"e:", b"i:"
"""The fields of a session: time and count of events; a value of the state; an event; the numbers of an event's id.

All but the last are members too. Records of users and apps have the values of the state alone.
"""
_VALUES = Related(b"s", b":")
_PAGE_COUNT = 1_000
_ONE_TRIP_COUNT = 10_000
"""The keys of a state that Redis returns with the session in one step."""
_WINDOW_COUNT = 100
"""The events that a read with `after_timestamp` asks for at a time."""


class SessionService(BaseSessionService):
    """A session service for Google ADK, in place of `InMemorySessionService`.

    >>> service = SessionService("redis://127.0.0.1:6379/0")
    >>> runner = Runner(app_name="shop", agent=agent, session_service=service)

    An event, its session's state and its user's state are stored in one step. Any number of processes may append to one
    session: every event and every key is kept. An append is made once, even if a reply is lost.

    Every method may raise StoreUnavailable, and InvalidSessionId if the user's id is not 1 to 256 bytes.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        memory: Memory | None = None,
        redis_client: Any = None,
        key_prefix: str = "adk",
        ttl: float | None = None,
        single_writer: bool = False,
    ) -> None:
        """Make a service. It connects on first use.

        Args:
            url: The URL of Redis. `None` means `REDISMEM_URL`.
            memory: A memory to use instead of a URL. The caller closes it.
            redis_client: A redis.asyncio client to use instead of a URL. The caller closes it.
            key_prefix: The beginning of the ids of all records: `<key_prefix>:<app>/<user>/<session>`.
            ttl: The seconds after its last event after which Redis removes a session. `None` keeps it. The state of
                users and apps always stays.
            single_writer: True refuses an event of a session that has changed since the caller read it, as ADK's
                `DatabaseSessionService` does: of two runs at once, one ends.

        Raises:
            InvalidRecord: `ttl` is out of range.
            InvalidSessionId: `key_prefix` is not a string.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        if not isinstance(key_prefix, str):
            raise InvalidSessionId("key_prefix is not a string: give the tenant's own, or an empty string for none")
        self._opened = Opened(url, memory, redis_client)
        self._prefix, self._ttl_s, self._single_writer = f"{key_prefix}:" if key_prefix else "", ttl, single_writer
        try:
            self._session("x", "x", "x")  # refuses prefix and ttl at the start of the program, not in its first turn
        except BaseException:
            self._opened.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection, unless another store uses it. A memory or a client of the caller stays open."""
        await self._opened.aclose()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session, and return it with the state of its user and app.

        Args:
            app_name: The name of the app.
            user_id: The id of the user.
            state: The first state; keys that begin with `app:` and `user:` go to the app and the user.
            session_id: The id of the session; `None` means a new one.

        Raises:
            AlreadyExistsError: The user has a session with this id.
        """
        session_id = (session_id or "").strip() or str(uuid.uuid4())
        values = _split(json.loads(EventActions(state_delta=state or {}).model_dump_json())["state_delta"])
        record = self._session(app_name, user_id, session_id)
        try:
            if await record.exists():
                raise AlreadyExistsError(f"Session with id {session_id} already exists.")
            await self._write_app(app_name, values["app"])
            await self._write(record, app_name, user_id, values, None, time.time(), {})
        except RecordConflict:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.") from None
        if (session := await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)) is None:
            raise SessionNotFoundError(f"Session {session_id} was deleted while it was created.")
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events and the state of its user and app; `None` if there is no such session.

        Args:
            app_name: The name of the app.
            user_id: The id of the user.
            session_id: The id of the session.
            config: Which of the last events to return. Redis reads no others.
        """
        session_id = session_id.strip() if session_id else session_id
        record = self._session(app_name, user_id, session_id)
        # Events first: a state that is newer than the events does no harm, an older one does.
        events, found, app, user = await asyncio.gather(
            _read_events(record, config),
            _read_session(record),
            self._app_state(app_name),
            self._user(app_name, user_id),
        )
        return None if found is None else _make_session(app_name, user_id, session_id, found, app, user, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of an app, without events, least recently updated first."""
        app = await self._app_state(app_name)
        users: dict[str, dict[str, Any]] = {}
        sessions: list[Session] = []
        async for places in self._pages(app_name, user_id):
            unread = list({user for user, _ in places} - users.keys())
            read = await asyncio.gather(*(self._user(app_name, user) for user in unread))
            users |= dict(zip(unread, read, strict=True))
            founds = await asyncio.gather(*(_read_session(self._session(app_name, *place)) for place in places))
            for (user, session_id), found in zip(places, founds, strict=True):
                if found is not None:
                    sessions.append(_make_session(app_name, user, session_id, found, app, users[user], []))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events and state, if it exists. The state of its user and app stays."""
        session_id = session_id.strip() if session_id else session_id
        await self._session(app_name, user_id, session_id).clear()

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user in an app, with keys that do not begin with `user:`."""
        return await self._user(app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and the changes of state it contains, and add it to the caller's session once it is stored.

        The caller's session may be older than the stored one: what others appended meanwhile stays. An equal event with
        the same id is stored once. Changes of `app:` keys are written first, in a step of their own.

        Raises:
            SessionNotFoundError: There is no such session.
            StaleSessionError: With `single_writer`, another caller has appended since the session was read.
        """
        if event.partial:
            return event
        text, values = _encode_event(event)
        record = self._session(session.app_name, session.user_id, session.id)
        id_field = _ID + event.id.encode("utf-8", "surrogatepass")
        is_app_written = False
        while True:
            stored, numbers = await record.get(_SESSION, id_field)
            if stored is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            if numbers is not None and await _is_stored(record, numbers, text):
                number = numbers.split()[-1]
                if any(each.id == event.id for each in session.events):
                    return event
                break  # by an earlier attempt, whose reply was lost
            if self._single_writer and session._storage_update_marker != stored.decode():
                raise StaleSessionError(f"Session {session.id} was changed since it was read: read it again.")
            if not is_app_written:
                await self._write_app(session.app_name, values["app"])
                is_app_written = True
            number = b"%016d" % (_counted(stored) + 1)
            ids = {id_field: number if numbers is None else numbers + b" " + number, _EVENT + number: text}
            try:
                await self._write(record, session.app_name, session.user_id, values, stored, event.timestamp, ids)
                break
            except RecordConflict:  # another writer was faster: take the next number
                continue
        await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        session._storage_update_marker = _encode_update(int(number), event.timestamp).decode()
        return event

    async def _write(
        self,
        record: Record,
        app_name: str,
        user_id: str,
        values: Mapping[str, Mapping[str, Any]],
        stored: bytes | None,
        updated_s: float,
        fields: Mapping[bytes, bytes],
    ) -> None:
        """Write a session and its user's state in one step. Raise RecordConflict if the session is not as `stored`."""
        count = -1 if stored is None else _counted(stored)
        state = _encode_state(values["session"])
        events = [name for name in fields if name.startswith(_EVENT)]
        change = Change(
            equals={} if stored is None else {_SESSION: stored},
            absent=[_SESSION] if stored is None else [],
            sets={**state, **fields, _SESSION: _encode_update(count + 1, updated_s)},
            adds=[*state, *events, _SESSION],
        )
        user = _encode_state(values["user"])
        others = [(self._user_record(app_name, user_id), Change(sets=user, adds=[*user]))] if user else []
        await record.write(change, *others)

    async def _write_app(self, app_name: str, values: Mapping[str, Any]) -> None:
        if values:
            state = _encode_state(values)
            await self._app_record(app_name).write(Change(sets=state, adds=[*state]))

    async def _app_state(self, app_name: str) -> dict[str, Any]:
        return await _read_state(self._app_record(app_name))

    async def _user(self, app_name: str, user_id: str) -> dict[str, Any]:
        return await _read_state(self._user_record(app_name, user_id))

    async def _pages(self, app_name: str, user_id: str | None) -> AsyncIterator[list[tuple[str, str]]]:
        """Yield user and id of the sessions of an app, or of one of its users."""
        beginning = self._id(app_name, "") if user_id is None else self._id(app_name, user_id, "")
        cursor: str | None = None
        while True:
            page = await self._opened.memory.records(beginning, _PAGE_COUNT, cursor)
            parts = [entry.id.removeprefix(self._prefix).split("/") for entry in page.records]
            yield [(_unquote(each[1]), _unquote(each[2])) for each in parts if len(each) == 3]
            cursor = page.cursor
            if cursor is None:
                return

    def _id(self, *names: str) -> str:
        return self._prefix + "/".join(quote(name, "", errors="surrogatepass") for name in names)

    def _session(self, app_name: str, user_id: str, session_id: str) -> Record:
        names, tag = (app_name, user_id, session_id), self._id(app_name, user_id)
        return self._opened.memory.record(self._id(*names), tag=tag, owner=user_id, ttl_s=self._ttl_s)

    def _user_record(self, app_name: str, user_id: str) -> Record:
        tag = self._id(app_name, user_id)
        return self._opened.memory.record(tag, tag=tag, owner=user_id)

    def _app_record(self, app_name: str) -> Record:
        return self._opened.memory.record(self._id(app_name))


def _unquote(text: str) -> str:
    return unquote(text, errors="surrogatepass")


def _split(delta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the changes of the app's, the user's and the session's state. Those of `temp:` keys are left out."""
    split: dict[str, dict[str, Any]] = {"app": {}, "user": {}, "session": {}}
    for key, value in delta.items():
        for kind, prefix in (("app", State.APP_PREFIX), ("user", State.USER_PREFIX), ("temp", State.TEMP_PREFIX)):
            if key.startswith(prefix):
                split.setdefault(kind, {})[key.removeprefix(prefix)] = value
                break
        else:
            split["session"][key] = value
    split.pop("temp", None)
    return split


def _encode_event(event: Event) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """Return an event as JSON without `temp:` keys, and the changes of state that it contains."""
    stored = event
    if event.actions.state_delta:
        delta = {
            key: value for key, value in event.actions.state_delta.items() if not key.startswith(State.TEMP_PREFIX)
        }
        stored = event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": delta})})
    text = stored.model_dump_json()
    actions = json.loads(text).get("actions") or {}
    return text.encode(), _split(actions.get("state_delta") or {})


def _encode_state(values: Mapping[str, Any]) -> dict[bytes, bytes]:
    return {_STATE + key.encode("utf-8", "surrogatepass"): json.dumps(value).encode() for key, value in values.items()}


def _decode_state(pairs: Iterable[tuple[bytes, bytes | None]]) -> dict[str, Any]:
    named = ((name.removeprefix(_STATE).decode("utf-8", "surrogatepass"), value) for name, value in pairs)
    return {name: json.loads(value) for name, value in named if value is not None}


async def _read_state(record: Record) -> dict[str, Any]:
    """Return the state in the record of a user or an app."""
    after: bytes | None = None
    state: dict[str, Any] = {}
    while True:
        page = await read_or_begin(record, partial(record.page, _STATE, after=after, limit=_PAGE_COUNT))
        state |= _decode_state((each.member, each.value) for each in page.found)
        after = page.after
        if after is None:
            return state


async def _read_session(record: Record) -> Found | None:
    """Return the time, the count and the state of a session, as they were at one moment.

    More keys than one round trip returns are read again if an event was appended meanwhile, up to ten times.
    """
    for _ in range(10):
        found = await read_or_begin(record, partial(record.newest, _SESSION, member=_SESSION, related=_VALUES))
        if found is None or len(found.related) <= _ONE_TRIP_COUNT or await record.get(_SESSION) == [found.value]:
            break
    return found


async def _read_events(record: Record, config: GetSessionConfig | None) -> list[Event]:
    """Return the last events that a config asks for, oldest first."""
    most = None if config is None else config.num_recent_events
    since_s = None if config is None else config.after_timestamp
    newest: list[Event] = []
    after: bytes | None = None
    while most is None or len(newest) < most:
        limit = _PAGE_COUNT if since_s is None else _WINDOW_COUNT
        limit = limit if most is None else min(limit, most - len(newest))
        page = await record.page(_EVENT, after=after, limit=limit, reverse=True)
        texts = [each.value for each in page.found if each.value is not None]
        for event in await decode_in_slices(texts, lambda some: [*map(Event.model_validate_json, some)]):
            if since_s is not None and event.timestamp < since_s:
                return newest[::-1]
            newest.append(event)
        after = page.after
        if after is None:
            break
    return newest[::-1]


def _make_session(
    app_name: str,
    user_id: str,
    session_id: str,
    found: Found,
    app: Mapping[str, Any],
    user: Mapping[str, Any],
    events: list[Event],
) -> Session:
    state = _decode_state(found.related)
    state |= {State.APP_PREFIX + key: value for key, value in app.items()}
    state |= {State.USER_PREFIX + key: value for key, value in user.items()}
    stored = found.value or b"0 0"
    session = Session(app_name=app_name, user_id=user_id, id=session_id, state=state, events=events)
    session.last_update_time = float(stored.split()[1])
    session._storage_update_marker = stored.decode()
    return session


def _encode_update(count: int, updated_s: float) -> bytes:
    return b"%d %s" % (count, repr(float(updated_s)).encode())


async def _is_stored(record: Record, numbers: bytes, text: bytes) -> bool:
    """True if one of the events with these numbers equals an event. Their texts may differ in the order of sets."""
    event = Event.model_validate_json(text)
    texts = await record.get(*(_EVENT + number for number in numbers.split()))
    return any(each is not None and Event.model_validate_json(each) == event for each in texts)


def _counted(stored: bytes) -> int:
    return int(stored.split()[0])
