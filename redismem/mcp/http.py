"""The server over streamable HTTP: a key in each request says which namespace it reaches."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import MutableMapping
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
from redismem.web.edge import App, Receive, Send, check_repeated
from redismem.web.http.problems import Problem, to_problem
from redismem.web.server import serve
from redismem.web.service import Service

PATH = "/mcp"
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
    return server, Gate(service, routes if events is None else events.wrap(routes), resumable=resumable)


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
    """The ASGI application in front of the SDK's: it checks path, method, key and rate of every request."""

    def __init__(self, service: Service, routes: Any, *, resumable: bool) -> None:
        self._service = service
        self._routes = routes
        self._resumable = resumable

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        try:
            caller = await self._admit(scope)
        except (Problem, RedismemError) as error:
            await _refuse(to_problem(error), send)
            return
        _caller.set(caller)
        # The SDK lets only the key that has begun a session use it.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.name, scopes=[]))
        await self._routes(scope, receive, send)

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
        if self._service.stopping.is_set():
            raise Problem("stopping")
        self._service.memory(caller)  # that of a new key may not be open yet
        await self._service.take_rate(caller)
        return caller


async def _refuse(problem: Problem, send: Send) -> None:
    body = problem.document()
    headers = [*problem.headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def serve_http(
    service: Service, made: tuple[MCPServer[Any], App], listening: socket.socket, stop: asyncio.Event, stop_s: float
) -> None:
    """Answer requests until `stop` is set; then refuse new ones and finish the running ones within `stop_s`.

    `made` is from `create_app`.
    """
    server, app = made
    async with server.session_manager.run():
        await serve(service, listening, stop, stop_s, app)
