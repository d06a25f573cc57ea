"""The priority of each request in a server, and the answer to one that the server could not answer in time."""

from __future__ import annotations

import random
from typing import Any

from redismem.store.overload import LATE_REQUEST, refusals
from redismem.web.access import needed_scope
from redismem.web.api.appends import is_append
from redismem.web.edge import HEADERS, cors_headers
from redismem.web.http.problems import Problem
from redismem.web.http.protocol import header_lines
from redismem.web.http.request_queue import Answer, Priority, RequestQueue
from redismem.web.http.static import is_page
from redismem.web.metrics.prometheus import route_of
from redismem.web.service import Service

_AT_ONCE = ("/stop", "/cancel", "/clear", "/forget")


def _answer(retry_after_s: int) -> Answer:
    detail = "this server has more requests than it can answer in time, so it did nothing"
    problem = Problem("overloaded", detail, retry_after_s=retry_after_s)
    headers, body = problem.whole()
    return problem.status, header_lines([*headers, *HEADERS]), body


_ANSWERS = [_answer(retry_after_s) for retry_after_s in (1, 2, 3)]  # not all clients must return at once


def request_queue(service: Service) -> RequestQueue:
    """Return the queue of a server."""

    def refuse(scope: Any) -> Answer:
        refusals.note(LATE_REQUEST)
        service.meters.request(route_of(_path(scope)), scope["method"], 503, 0.0)
        status, lines, body = random.choice(_ANSWERS)
        if service.cors_origins:
            lines += header_lines(cors_headers(service.cors_origins, dict(scope["headers"])))
        return status, lines, body

    return RequestQueue(priority_of, refuse)


def priority_of(scope: Any) -> Priority:
    """Return the priority of a request: stops, removals, probes and operators come first, then what ends a turn."""
    method, path = scope["method"], _path(scope)
    # A browser asks by OPTIONS before a stop or a removal.
    if method in ("DELETE", "OPTIONS") or (method == "POST" and path.endswith(_AT_ONCE)):
        return Priority.AT_ONCE
    if needed_scope(method, path) in (None, "admin") or is_page(path):
        return Priority.AT_ONCE
    is_reply = method == "POST" and is_append(path) and b"read=true" not in scope["query_string"]
    return Priority.REPLY if is_reply else Priority.NEW_WORK


def _path(scope: Any) -> str:
    """Return the path of a request undecoded, as the edge reads it."""
    path: str = scope["raw_path"].decode("latin-1")
    return path
