"""The session service: each method of ADK's interface."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session

from redismem import Memory, RecordConflict
from redismem.adapters.google_adk.appends import Appends, write_app, write_session
from redismem.adapters.google_adk.layout import encode_update, make_session, split_state
from redismem.adapters.google_adk.places import Places
from redismem.adapters.google_adk.reading import read_events, read_session, read_state
from redismem.adapters.sessions import Closes, Opened, check_prefix
from redismem.record import Retention


class SessionService(Closes, BaseSessionService):
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
        keep_last: int | None = None,
        max_age: float | None = None,
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
            keep_last: The sessions that workers keep of a user in an app, those with the newest events: 1 to 1,000.
                `None` keeps all.
            max_age: The seconds after its last event after which workers remove a session. `None` means never.

        Raises:
            InvalidRecord: `ttl`, `keep_last` or `max_age` is out of range.
            InvalidSessionId: `key_prefix` is not a string.
            InvalidSettings: URL, memory or client is invalid, or more than one of them is given.
        """
        check_prefix(key_prefix)
        retention = Retention("google-adk", keep_last, max_age)
        self._opened = Opened(url, memory, redis_client)
        self._places = Places(self._opened, f"{key_prefix}:" if key_prefix else "", ttl, retention)
        self._appends = Appends(self._places, single_writer=single_writer)
        try:
            self._places.session(("x", "x", "x"))  # refuses prefix and ttl when the program starts
        except BaseException:
            self._opened.close()
            raise

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
        values = split_state(json.loads(EventActions(state_delta=state or {}).model_dump_json())["state_delta"])
        name = app_name, user_id, session_id
        record = self._places.session(name)
        try:
            if await record.exists():
                raise AlreadyExistsError(f"Session with id {session_id} already exists.")
            await write_app(self._places, name, values["app"])
            await write_session(self._places, record, name, values, {}, encode_update(0, time.time()), None)
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
        record = self._places.session((app_name, user_id, session_id))
        # Events first: a state that is newer than the events does no harm, an older one does.
        events, found, app, user = await asyncio.gather(
            read_events(record, config),
            read_session(record),
            read_state(self._places.app(app_name)),
            self._user(app_name, user_id),
        )
        return None if found is None else make_session(app_name, user_id, session_id, found, app, user, events)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Return the sessions of a user, or of all users of an app, without events, least recently updated first."""
        app = await read_state(self._places.app(app_name))
        users: dict[str, dict[str, Any]] = {}
        sessions: list[Session] = []
        async for places in self._places.pages(app_name, user_id):
            unread = list({user for user, _ in places} - users.keys())
            read = await asyncio.gather(*(self._user(app_name, user) for user in unread))
            users |= dict(zip(unread, read, strict=True))
            founds = await asyncio.gather(*(read_session(self._places.session((app_name, *place))) for place in places))
            for (user, session_id), found in zip(places, founds, strict=True):
                if found is not None:
                    sessions.append(make_session(app_name, user, session_id, found, app, users[user], []))
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session with its events and state, if it exists. The state of its user and app stays."""
        session_id = session_id.strip() if session_id else session_id
        await self._places.session((app_name, user_id, session_id)).clear()

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user in an app, with keys that do not begin with `user:`."""
        return await self._user(app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and the changes of state it contains, and add it to the caller's session once it is stored.

        The caller's session may be older than the stored one: what others appended meanwhile stays. An equal event with
        the same id is stored once. Events of one session that wait at the same time are stored in one write. Changes of
        `app:` keys are written first, in a step of their own.

        Raises:
            InvalidMessage: The timestamp of the event is not a finite number.
            SessionNotFoundError: There is no such session.
            StaleSessionError: With `single_writer`, another caller has appended since the session was read.
        """
        if event.partial:
            return event
        append = await self._appends.append(session, event)
        if append.was_stored and any(each.id == event.id for each in session.events):
            return event
        await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        return event

    async def _user(self, app_name: str, user_id: str) -> dict[str, Any]:
        return await read_state(self._places.user(app_name, user_id))
