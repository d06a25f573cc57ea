"""Events of streamable HTTP in Redis: a client whose stream broke gets the rest of it, from any server process."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from functools import partial
from typing import Any
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from mcp.server import streamable_http as sdk
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, jsonrpc_message_adapter
from sse_starlette import EventSourceResponse

from redismem import InvalidSettings, Memory, RedismemError, StoreUnavailable
from redismem.adapters.sessions import check_memory
from redismem.events import facts
from redismem.record import Change, Page, Record
from redismem.record.erasure import EVENTS_PREFIX

log = logging.getLogger("redismem")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_CALLER = b"caller"
_PAGE_COUNT = 100
_FIRST_POLL_S, _LAST_POLL_S = 0.05, 1.0


class _Session:
    """A session of the SDK in this process: the number of its last event, and the sizes of those that are stored."""

    def __init__(self, session_id: str = "") -> None:
        self.id = session_id
        """Empty until the answer to the first request names it, and once the client has ended the session."""
        self.caller = b""
        self.last = 0
        self.sizes: deque[tuple[int, int]] = deque()
        self.total_bytes = 0
        self.writing = asyncio.Lock()


_session: ContextVar[_Session | None] = ContextVar("redismem.mcp.session", default=None)
_replayed: ContextVar[int | None] = ContextVar("redismem.mcp.replayed", default=None)
"""The last event that the running request has replayed. Its stream goes on behind this one."""


class EventStore(sdk.EventStore):
    """The `event_store` of an MCP server over streamable HTTP.

    ```
    events = EventStore(memory)
    app = events.wrap(server.streamable_http_app(event_store=events))
    ```

    The SDK names a stream by the id of its request, which every client counts from 1. So the store has to know the
    session of a request, and learns it in `wrap`. A client only gets events of the session whose id it sends.

    While Redis is away, events are sent but not stored, with a warning in the log: only what breaks then is lost.
    """

    def __init__(
        self,
        memory: Memory | Callable[[], Memory],
        *,
        max_events: int = 1_000,
        max_bytes: int = 16 * 1024 * 1024,
        ttl_s: float = 1_800,
    ) -> None:
        """Return a store, without I/O.

        Args:
            memory: The memory that has the events, or a function that returns that of the running request.
            max_events: The newest events of a session that are kept.
            max_bytes: The size of the newest events of a session that are kept. A larger event is sent but not stored.
            ttl_s: Seconds after a session's last event, after which Redis removes its events. A client that resumes
                later gets nothing.

        Raises:
            InvalidSettings: A limit is not positive, or the memory is of another type.
        """
        if not callable(memory):
            check_memory(memory, Memory)
        if max_events < 1 or max_bytes < 1 or ttl_s <= 0:
            raise InvalidSettings("max_events, max_bytes and ttl_s must be positive")
        self._memory_of = memory if callable(memory) else lambda: memory
        self._max_events, self._max_bytes, self._ttl_s = max_events, max_bytes, ttl_s
        # A session lives as long as the task that serves it, whose context refers to it.
        self._sessions: WeakValueDictionary[str, _Session] = WeakValueDictionary()

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its id. `None` as the message stores nothing: the id begins the stream.

        Raises:
            InvalidSettings: The application of the server is not wrapped by `wrap`.
        """
        session = _known_session()
        if message is None or not session.id:  # a client cannot resume before it knows the session
            replayed = _replayed.get()
            return _event_id(session.last if replayed is None else replayed, stream_id)
        session.last += 1
        event_id = _event_id(session.last, stream_id)
        event = f"{quote(stream_id, safe='')}\n{message.model_dump_json(by_alias=True, exclude_unset=True)}".encode()
        async with session.writing:
            if session.id:
                change = self._change(session, event)
                await self._attempt("an event cannot be sent again", self._record(session.id).write(change))
        return event_id

    def _change(self, session: _Session, event: bytes) -> Change:
        """Return the change that adds an event, and removes those beyond the limits."""
        member = _member(session.last)
        session.sizes.append((session.last, len(event)))
        session.total_bytes += len(event)
        gone = []
        while len(session.sizes) > self._max_events or session.total_bytes > self._max_bytes:
            number, size = session.sizes.popleft()
            session.total_bytes -= size
            gone.append(_member(number))
        if member in gone:
            return Change(drops=gone, removes=gone)
        # Each event names the caller: `clear` may have removed the record meanwhile.
        return Change(sets={member: event, _CALLER: session.caller}, adds=[member], drops=gone, removes=gone)

    async def replay_events_after(self, last_event_id: str, send_callback: sdk.EventCallback) -> str | None:
        """Send the events of a stream after this one, each once and in their order.

        The stream of a request is followed until its answer, wherever it is served; then, and for an unknown event,
        returns None. For the stream of the server's own messages, returns its id: the SDK goes on.
        """
        session = _known_session()
        number, stream_id = _parse_event_id(last_event_id)
        if number is None or not session.id:
            return None
        _replayed.set(number)
        async for at, message in self._follow(session.id, stream_id, number):
            await send_callback(sdk.EventMessage(message, _event_id(at, stream_id)))
            _replayed.set(at)
        return stream_id if stream_id == sdk.GET_STREAM_KEY else None

    async def _follow(self, session_id: str, stream_id: str, number: int) -> AsyncIterator[tuple[int, JSONRPCMessage]]:
        """Yield the events of a stream after this number: those that are stored, and then those that come."""
        record, key = self._record(session_id), quote(stream_id, safe="").encode()
        at, poll_s, end_s = max(number - 1, 0), _FIRST_POLL_S, time.monotonic() + self._ttl_s
        while True:
            page = await self._page(record, at)
            for found in page.found:
                at, poll_s = int(found.member, 16), _FIRST_POLL_S
                stream, _, text = (found.value or b"").partition(b"\n")
                if stream != key:
                    continue
                message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                if at > number:
                    yield at, message
                if isinstance(message, JSONRPCResponse | JSONRPCError) and stream_id != sdk.GET_STREAM_KEY:
                    return
            if page.after is not None:
                continue
            if stream_id == sdk.GET_STREAM_KEY or time.monotonic() > end_s:
                return
            if poll_s == _LAST_POLL_S and await self._is_gone(record):
                return
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, _LAST_POLL_S)

    async def _page(self, record: Record, at: int) -> Page:
        """Return the events after a number, of all streams; none while Redis is away."""
        try:
            return await record.page(after=_member(at), limit=_PAGE_COUNT)
        except StoreUnavailable:
            return Page([], None)

    async def _is_gone(self, record: Record) -> bool:
        """True if the session has ended, or its events have expired."""
        with contextlib.suppress(StoreUnavailable):
            return not await record.exists()
        return False

    async def clear(self) -> int:
        """Remove the stored events of all sessions, and return the number of these sessions.

        Call it after text was removed that a tool may have returned. A stream that is broken at this moment cannot be
        resumed from before; later events are stored as usual.

        Raises:
            StoreUnavailable: Redis did not answer in time.
        """
        memory, count, cursor, is_first = self._memory_of(), 0, None, True
        while cursor is not None or is_first:
            page = await memory.records(EVENTS_PREFIX, _PAGE_COUNT, cursor)
            for entry in page.records:
                count += await memory.record(entry.id, tag=entry.tag).clear()
            cursor, is_first = page.cursor, False
        return count

    def serves(self, session_id: str) -> bool:
        """True if this process has the session, whose client has not ended it."""
        session = self._sessions.get(session_id)
        return session is not None and session.id != ""

    def wrap(self, app: App) -> App:
        """Return an ASGI application that tells this store the session of each request, and removes ended sessions.

        It also answers a client that resumes a stream whose session is in another process: with the events that the
        other process stores.
        """

        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            headers = dict(scope["headers"])
            session_id = headers.get(b"mcp-session-id", b"").decode("latin-1")
            session = self._sessions.get(session_id) or _Session(session_id)
            _session.set(session)
            last_event_id = headers.get(b"last-event-id", b"").decode("latin-1")
            answer = _Answer(partial(self._begin, session, scope), send)
            if scope["method"] == "DELETE":
                answer.end = partial(self._end, session)
            answer.may_resume = scope["method"] == "GET" and session_id != "" and last_event_id != ""
            await app(scope, receive, answer.send)
            if answer.held and await self._is_of_caller(session_id, scope):
                await EventSourceResponse(self._replay(session_id, last_event_id))(scope, receive, send)
                return
            for message in answer.held:
                await send(message)

        return wrapped

    async def _replay(self, session_id: str, last_event_id: str) -> AsyncIterator[dict[str, str]]:
        """Yield the rest of a stream whose session is in another process."""
        number, stream_id = _parse_event_id(last_event_id)
        if number is None or stream_id == sdk.GET_STREAM_KEY:
            return
        async for at, message in self._follow(session_id, stream_id, number):
            text = message.model_dump_json(by_alias=True, exclude_unset=True)
            yield {"event": "message", "id": _event_id(at, stream_id), "data": text}

    async def _begin(self, session: _Session, scope: Scope, session_id: str) -> None:
        """Name the session that the first request has opened, and note its caller for the other processes."""
        if not session.id:
            session.id, session.caller = session_id, _caller(scope)
            self._sessions[session_id] = session
            begun = Change(sets={_CALLER: session.caller})
            await self._attempt("other processes do not resume it", self._record(session_id).write(begun))

    async def _end(self, session: _Session) -> None:
        """Remove the events of a session that its client has ended. What its requests still send is not stored."""
        async with session.writing:
            session_id, session.id = session.id, ""
            if session_id:
                await self._attempt("its events stay until they expire", self._record(session_id).clear())

    async def _is_of_caller(self, session_id: str, scope: Scope) -> bool:
        """True if this caller has begun the session, in whichever process. False while Redis is away."""
        with contextlib.suppress(RedismemError):
            (caller,) = await self._record(session_id).get(_CALLER)
            return caller == _caller(scope)
        return False

    async def _attempt(self, loss: str, write: Awaitable[object]) -> None:
        """Await a write. Without it the session goes on, so a failure is only logged, with what is lost."""
        try:
            await write
        except RedismemError as error:
            kind = type(error).__name__
            log.warning("an MCP session could not be stored, so %s: %s", loss, kind, extra=facts(op="mcp", error=kind))

    def _record(self, session_id: str) -> Record:
        # Whoever has a session's id may resume it, so the id itself is not stored.
        digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
        return self._memory_of().record(f"{EVENTS_PREFIX}{digest}", ttl_s=self._ttl_s)


class _Answer:
    """The answer to a request. It names a new session, ends one, or holds back the 404 of a session elsewhere."""

    def __init__(self, begin: Callable[[str], Awaitable[None]], send: Send) -> None:
        self._begin, self._send = begin, send
        self.end: Callable[[], Awaitable[None]] | None = None
        self.may_resume = False
        self.status = 0
        self.held: list[MutableMapping[str, Any]] = []

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            named = dict(message.get("headers", ())).get(b"mcp-session-id")
            if named and self.status < 400:  # the SDK also names the session that it does not begin
                await self._begin(named.decode("latin-1"))
            if self.end is not None and self.status == 200:
                await self.end()  # before the client hears of it
        if self.may_resume and self.status == 404:
            self.held.append(message)
        else:
            await self._send(message)


def _known_session() -> _Session:
    session = _session.get()
    if session is None:
        raise InvalidSettings("the store does not know the session: serve the application that EventStore.wrap returns")
    return session


def _caller(scope: Scope) -> bytes:
    """Return a digest of the principal that the SDK, or a middleware, has authenticated. It is the same without one."""
    user = scope.get("user")
    principal = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
    return hashlib.sha256(json.dumps(principal, sort_keys=True).encode()).digest()


def _member(number: int) -> bytes:
    return b"%016x" % number


def _event_id(number: int, stream_id: str) -> str:
    # A stream id comes from the client: it must not end the line of the event.
    return f"{number:x}.{quote(stream_id, safe='')}"


def _parse_event_id(event_id: str) -> tuple[int | None, str]:
    number, dot, stream = event_id.partition(".")
    try:
        return (int(number, 16) if dot and number.isalnum() and len(number) <= 16 else None), unquote(stream)
    except ValueError:
        return None, ""
