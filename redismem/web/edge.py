"""The edge of the service: checks key, size, rate and time of every request, and sends the answer."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, MutableMapping
from contextlib import nullcontext
from functools import lru_cache
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from redismem.web.access import Caller, needed_scope
from redismem.web.api.appends import KEY, append_messages, is_append
from redismem.web.http.deadlines import Deadlines
from redismem.web.http.failures import App, Receive, Scope, Send, to_logged_problem
from redismem.web.http.json import check_encoding, encode_json
from redismem.web.http.problems import Problem, may_be_done
from redismem.web.http.protocol import WHOLE, header_lines
from redismem.web.http.queries import Documented, is_search, is_stream
from redismem.web.http.request_queue import ARRIVED_S
from redismem.web.http.static import HEADERS as PAGE_HEADERS
from redismem.web.http.static import is_page, load_pages, respond_with_page
from redismem.web.metrics.prometheus import route_of
from redismem.web.owner_keys import confine
from redismem.web.service import CALLER, Service

Whole = dict[str, Callable[..., Any]]

HEADERS = [
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]
_LINES = header_lines(HEADERS)
_EMPTY: dict[str, Any] = {}
_AT_ONCE = nullcontext[None]()
_OPENAPI = "/openapi.json"
_JSON = (b"content-type", b"application/json")
_ONCE = frozenset(
    (b"authorization", b"content-length", b"host", b"idempotency-key", b"if-match", b"last-event-id", b"origin")
)
_OWN_HOSTS = frozenset(["localhost", "127.0.0.1", "::1"])
_ALLOWED = b"authorization, content-type, idempotency-key, if-match, last-event-id, prefer"
_EXPOSED = b"etag, location, retry-after, turn-id"


def cors_headers(origins: Container[str], headers: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """Return the headers that let a page of one of these origins read the answer to a request with these headers."""
    origin = headers.get(b"origin")
    if origin is None or origin.decode("latin-1") not in origins:
        return []
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        (b"vary", b"origin"),
    ]


class Gone(Exception):
    """The client disconnected before it had sent the whole request."""


class Edge:
    """The ASGI application that wraps the routes."""

    def __init__(self, service: Service, routes: App, document: dict[str, Any]) -> None:
        """Wrap the routes. `document` is their OpenAPI document."""
        self._service = service
        self._deadlines = Deadlines(service.limits.request_s)
        self._routes = routes
        load_pages()  # at the start, since joining and compressing them takes milliseconds
        self._documented = Documented(document)
        self._document = encode_json(document)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        headers = dict(scope["headers"])
        whole = scope.get("extensions", _EMPTY).get(WHOLE)
        answer = Response(send, scope, whole, cors_headers(self._service.cors_origins, headers))
        # Routes get the path undecoded, so that the %2F of a session id does not separate segments.
        path = scope["path"] = scope["raw_path"].decode("latin-1")
        begun_s = scope.get(ARRIVED_S) or monotonic()
        try:
            await self._answer(scope, path, headers, receive, answer, begun_s)
        except Gone:
            return
        except Exception as error:
            problem = to_logged_problem(error, scope["method"], route_of(path))
            if scope["method"] == "POST" and is_append(path) and KEY not in headers and may_be_done(error):
                problem.retry_after_s = None  # a retry without a key could store the message twice
            # Once the head is out, the server sees an answer without an end and closes the connection.
            if not answer.begun_s:
                await answer.send_whole(problem.status, *problem.whole())
        finally:
            ended_s = answer.begun_s or monotonic()
            self._service.meters.request(route_of(path), scope["method"], answer.status, ended_s - begun_s)

    async def _answer(
        self, scope: Scope, path: str, headers: dict[bytes, bytes], receive: Receive, answer: Response, begun_s: float
    ) -> None:
        service, method = self._service, scope["method"]
        if len(headers) < len(scope["headers"]):
            check_repeated(scope["headers"])
        if method == "OPTIONS" and b"access-control-request-method" in headers:
            await answer.preflight()
            return
        self._check_origin(headers)
        scope_needed = needed_scope(method, path)
        if scope_needed is None or is_page(path):
            await self._answer_open(scope, path, headers, receive, answer)
            return
        caller = service.access.caller(headers.get(b"authorization"))
        if scope_needed not in caller.scopes:
            raise Problem("not_allowed", f"this needs the scope {scope_needed}")
        if service.stopping.is_set() and path != "/metrics":
            raise Problem("stopping")
        scope[CALLER] = caller
        with self._deadlines.begin(begun_s) as deadline:
            if service.limits.rate_per_s is not None:
                await service.take_rate(caller)
            body = b""
            if method not in ("GET", "HEAD"):
                body = await _receive_body(scope, headers, receive, service.limits.body_bytes)
            body = self._confine(caller, scope, body)
            if is_stream(path):
                deadline.lift()
            if method == "POST" and is_append(path):
                await append_messages(service, caller, path, scope["query_string"], headers, body, answer)
            else:
                check_encoding(body)
                is_slow = is_search(method, path, scope["query_string"])
                async with service.searching(caller) if is_slow else _AT_ONCE:
                    await self._route(scope, _replay_body(body, receive), answer)

    def _confine(self, caller: Caller, scope: Scope, body: bytes) -> bytes:
        """Let a request with a key of one owner name this owner. Return its body. Raises Problem."""
        if caller.owner is not None:
            method, path, query = scope["method"], scope["path"], scope["query_string"]
            scope["query_string"], body = confine(self._documented, caller.owner, method, path, query, body)
        return body

    async def _answer_open(
        self, scope: Scope, path: str, headers: dict[bytes, bytes], receive: Receive, answer: Response
    ) -> None:
        """Answer a request that needs no key. Raises Problem."""
        method = scope["method"]
        if is_page(path):
            await _send_page(method, path, headers, answer)
        elif path == _OPENAPI:
            length = (b"content-length", b"%d" % len(self._document))
            await _send_file(method, 200, [_JSON, length], self._document, answer)
        else:
            await self._route(scope, receive, answer)

    async def _route(self, scope: Scope, receive: Receive, answer: Response) -> None:
        """Pass a request to the routes, a HEAD to the route of GET: the server drops the body. Raises Problem."""
        method, path = scope["method"], scope["path"]
        if method == "HEAD" and not is_stream(path):
            method = "GET"
        self._documented.check(method, path, scope["query_string"])
        # `curl -d` labels its body as a form; every body is parsed as JSON.
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        scope = {**scope, "method": method, "headers": [*headers, (b"content-type", b"application/json")]}
        await self._routes(scope, receive, answer.send)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        """Refuse requests from pages of other hosts if the service has no keys. Raises Problem."""
        if not self._service.access.is_open:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        if not _is_own(host):
            raise Problem("not_allowed", "without keys this server answers only requests to localhost")
        origin = headers.get(b"origin")
        if origin is None or origin.decode("latin-1") in self._service.cors_origins:
            return
        if origin.decode("latin-1") != f"http://{host}":
            raise Problem("not_allowed", "without keys this server refuses pages of other origins")


def check_repeated(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a request with two values of a header that has one: a proxy may have checked the other. Raises Problem."""
    names = [name for name, _ in headers if name in _ONCE]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise Problem("bad_request", f"the header {repeated.decode()} occurs more than once")


@lru_cache(maxsize=256)
def _is_own(host: str) -> bool:
    """True if a Host header names this machine."""
    try:
        return urlsplit(f"//{host}").hostname in _OWN_HOSTS
    except ValueError:
        return False


class Response:
    """The answer to one request. Adds the headers that every answer has."""

    def __init__(self, send: Send, scope: Scope, whole: Whole | None, cors: list[tuple[bytes, bytes]]) -> None:
        """Begin an answer. `whole` is the server's extension that writes head and body at once, or `None`."""
        self._send = send
        self._scope = scope
        self._whole = whole
        self._cors = cors
        self.begun_s = 0.0
        self.headers = HEADERS
        self.status = 499
        """The status; 499 until the answer begins, since a request that gets no answer was left by its client."""

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun_s, self.status = monotonic(), message["status"]
            message["headers"] = [*message["headers"], *self.headers, *self._cors]
        await self._send(message)

    async def send_whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Send head and body. `headers` must contain nothing that a client sent, because they are not escaped."""
        if self._whole is not None and self.headers is HEADERS:
            lines = header_lines([*headers, *self._cors])
            self.begun_s, self.status = monotonic(), status
            if self._whole["send"](self._scope, status, lines + _LINES, body):
                return
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def preflight(self) -> None:
        if not self._cors:
            raise Problem("not_allowed", "pages of this origin are not allowed")
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
            (b"access-control-allow-headers", _ALLOWED),
            (b"access-control-max-age", b"600"),
        ]
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})


async def _send_page(method: str, path: str, headers: dict[bytes, bytes], answer: Response) -> None:
    """Send a file of the page. Raises Problem."""
    file_answer = respond_with_page(path, headers.get(b"if-none-match", b""), headers.get(b"accept-encoding", b""))
    if file_answer is None:
        raise Problem("not_found")
    status, own_headers, body = file_answer
    answer.headers = PAGE_HEADERS
    await _send_file(method, status, own_headers, body, answer)


async def _send_file(
    method: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes, answer: Response
) -> None:
    """Send bytes that are the same for all clients. Raises Problem: method_not_allowed."""
    if method not in ("GET", "HEAD"):
        raise Problem("method_not_allowed", allow="GET, HEAD")
    await answer.send({"type": "http.response.start", "status": status, "headers": headers})
    await answer.send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


async def _receive_body(scope: Scope, headers: dict[bytes, bytes], receive: Receive, limit_bytes: int) -> bytes:
    """Receive the whole body. Raises Gone, and Problem (too_large) as soon as the body exceeds the limit."""
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length[:20]) > limit_bytes:
        raise _too_large(limit_bytes)
    if (whole := scope.get("extensions", _EMPTY).get(WHOLE)) is not None and (
        taken := whole["body"](scope)
    ) is not None:
        if len(taken) > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(taken)
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part: bytes = message.get("body", b"")
        if len(body) + len(part) > limit_bytes:
            raise _too_large(limit_bytes)
        body = body + part if body else part
        if not message.get("more_body"):
            return body


def _too_large(limit_bytes: int) -> Problem:
    return Problem("too_large", f"a body may have at most {limit_bytes} bytes")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns this body and then calls the original one."""
    is_first = True

    async def receive_again() -> MutableMapping[str, Any]:
        nonlocal is_first
        if is_first:
            is_first = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receive_again
