"""The server over streamable HTTP: a key in each request says which namespace it reaches."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings

from redismem import Memory, RedismemError
from redismem.mcp.access import Scope
from redismem.mcp.events import EventStore
from redismem.mcp.server import server_over
from redismem.web.access import Caller
from redismem.web.edge import check_repeated
from redismem.web.http.failures import App, Receive, Send, contain, to_logged_problem
from redismem.web.http.problems import Problem
from redismem.web.open_streams import OpenStream, StreamKind
from redismem.web.server import serve
from redismem.web.service import Service

PATH = "/mcp"
_SESSION = b"mcp-session-id"
_LAST_WRITE_S = 1.0
_caller: ContextVar[Caller] = ContextVar("redismem.mcp.caller")


def create_app(
    service: Service, hidden: frozenset[str], host: str, *, resumable: bool = False
) -> tuple[MCPServer[Any], App]:
    """Return the MCP server of a service that listens on `host`, and its ASGI application.

    Every request stands alone, so any server that shares the Redis can answer it. If it is resumable, clients of older
    protocols have sessions in this process, and answers come as streams, which any server can continue.
    """

    def memory_of(scope: Scope) -> Memory:
        caller = _caller.get()
        if scope not in caller.scopes:
            raise ToolError(f"this key does not have the scope {scope}")
        return service.memory(caller)

    events = EventStore(lambda: service.memory(_caller.get())) if resumable else None
    server = server_over(memory_of, hidden, events)
    routes = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=events is None,
        json_response=events is None,
        event_store=events,
        max_request_body_size=service.limits.body_bytes,
        transport_security=_security(service, host),
    )
    gate = Gate(service, routes if events is None else events.wrap(routes), events)
    return server, contain(gate, PATH)


def _security(service: Service, host: str) -> TransportSecuritySettings:
    """Return the check of Host and Origin. It keeps web pages away from a server without keys (DNS rebinding)."""
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    hosts = [form for name in sorted(names) for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=service.access.is_open,
        allowed_hosts=hosts,
        allowed_origins=[f"http://{each}" for each in hosts],
    )


class Gate:
    """The ASGI application in front of the SDK's: it checks path, method, key, rate and places of every request."""

    def __init__(self, service: Service, routes: Any, events: EventStore | None) -> None:
        self._service = service
        self._routes = routes
        self._events = events
        self._resumable = events is not None
        self._sessions: dict[str, OpenStream] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        answer = _Answer(self._service, scope, send)
        try:
            caller = await self._admit(scope)
            _caller.set(caller)
            # The SDK lets only the key that has begun a session use it.
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.name, scopes=[]))
            place = self._service.take_place(
                caller, StreamKind.EVENTS if scope["method"] == "GET" else StreamKind.ANSWER
            )
            try:
                with self._beginning(caller, scope, answer):
                    await _until(place.revoked, self._routes(scope, receive, answer.send))
            finally:
                place.leave()
        except (Problem, RedismemError) as error:
            if not answer.is_begun:
                raise
            to_logged_problem(error, scope["method"], PATH)
            await answer.end()

    @contextlib.contextmanager
    def _beginning(self, caller: Caller, scope: MutableMapping[str, Any], answer: _Answer) -> Iterator[None]:
        """Hold a place for the session that the request may begin. Raises Problem."""
        if self._events is None or scope["method"] != "POST" or _names_session(scope):
            yield
            return
        for session_id, place in list(self._sessions.items()):
            if place.revoked.done() or not self._events.serves(session_id):
                self._sessions.pop(session_id).leave()
        place = self._service.take_place(caller, StreamKind.SESSION)
        try:
            yield
        finally:
            if self._events.serves(answer.session_id):
                self._sessions[answer.session_id] = place
            else:
                place.leave()

    async def _admit(self, scope: MutableMapping[str, Any]) -> Caller:
        """Return the caller of a request. Raises Problem."""
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]):
            check_repeated(scope["headers"])
        if scope["path"] != PATH:
            raise Problem("not_found", f"the server answers at {PATH}")
        # The server sends nothing of its own accord, so a stream without a request would only hold a connection.
        is_resumed = scope["method"] == "DELETE" or (scope["method"] == "GET" and b"last-event-id" in headers)
        if scope["method"] != "POST" and not (self._resumable and is_resumed):
            raise Problem("method_not_allowed", allow="GET, POST, DELETE" if self._resumable else "POST")
        caller = self._service.access.caller(headers.get(b"authorization"))
        if caller.owner is not None:
            raise Problem("not_allowed", "a key of one owner is for `redismem serve` alone")
        if self._service.stopping.is_set():
            raise Problem("stopping")
        self._service.memory(caller)  # that of a new key may not be open yet
        await self._service.take_rate(caller)
        return caller


class _Answer:
    """The answer to a request: whether it has begun and ended, and the session that it names."""

    def __init__(self, service: Service, scope: MutableMapping[str, Any], send: Send) -> None:
        self._service, self._scope, self._send = service, scope, send
        self.is_begun = self.is_ended = False
        self.session_id = ""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """Send a message. A client that reads nothing is cut off."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            self.session_id = dict(message.get("headers", ())).get(_SESSION, b"").decode("latin-1")
        else:
            self.is_ended = not message.get("more_body", False)
        await self._write(message, self._service.limits.stream_write_s)

    async def end(self) -> None:
        """End an answer that has begun, though its client may not read it."""
        if not self.is_ended:
            await self._write({"type": "http.response.body", "body": b"", "more_body": False}, _LAST_WRITE_S)

    async def _write(self, message: MutableMapping[str, Any], limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await self._send(message)
        except TimeoutError:
            self._service.cut_off(self._scope)


def _names_session(scope: MutableMapping[str, Any]) -> bool:
    return any(name == _SESSION for name, _ in scope["headers"])


async def _until(revoked: asyncio.Future[None], answering: Awaitable[None]) -> None:
    """Await an answer. Raises Problem once the key of its caller is no longer valid."""
    task = asyncio.ensure_future(answering)
    try:
        await asyncio.wait((task, revoked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
            await asyncio.wait((task,))
    if is_late:
        raise Problem("no_key", "the key is no longer valid")
    task.result()


async def serve_http(
    service: Service, made: tuple[MCPServer[Any], App], listening: socket.socket, stop: asyncio.Event, stop_s: float
) -> None:
    """Answer requests until `stop` is set; then refuse new ones and finish the running ones within `stop_s`.

    `made` is from `create_app`.
    """
    server, app = made
    async with server.session_manager.run():
        await serve(service, listening, stop, stop_s, app)
