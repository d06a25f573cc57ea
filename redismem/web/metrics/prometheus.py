"""The metrics of a server, for Prometheus: those of its memories, and of its requests and streams."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from redismem.events import Event, OnEvent, Op
from redismem.metrics.prometheus import SECONDS, Metrics, word_or_other
from redismem.web.http.static import is_page
from redismem.web.metrics import spans


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TURNS = frozenset(op for op in Op if op.is_turn)
_DONE = frozenset(["ok", "duplicate", "degraded", "conflict"])
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
_SESSION, _PROJECT, _RECORD = "/v1/sessions/", "/v1/projects/", "/v1/records/"
_SESSION_ROUTES = frozenset(
    [
        "",
        "/messages",
        "/context",
        "/context/parts",
        "/context/request",
        "/state",
        "/events",
        "/policy",
        "/prune",
        "/forget",
        "/readable",
        "/recall",
        "/find",
        "/turns",
        "/turns/current",
        "/turns/current/stop",
    ]
)
_MESSAGE = "/messages/"
_ROUTES = _words(
    """
    /v1/sessions /v1/search /v1/projects /v1/about /v1/load /v1/doctor /v1/queues /v1/dead /v1/dead/retry
    /v1/dead/drop /v1/quarantine /v1/quarantine/show /v1/quarantine/restore /v1/quarantine/drop /livez /readyz
    /v1/records /metrics /openapi.json /api/chat /api/chat/clear /api/chat/stop /ui/chat /ag-ui /openai/responses
    """
)
_NAMED = (("/ui/chat/", "/stream"), ("/openai/responses/", "/cancel"), ("/openai/responses/", ""))
"""The beginnings and ends of routes with an id between them."""


def listener(meters: Meters) -> OnEvent:
    """Return the `on_event` of a memory. It also records spans if the process has a tracer provider."""
    if not spans.is_wanted():
        return meters.event

    def record(event: Event) -> None:
        meters.event(event)
        spans.record_event(event)

    return record


def route_of(path: str) -> str:
    """Return the route of a percent-encoded path, or 'other'."""
    if path.startswith(_SESSION):
        _, slash, rest = path[len(_SESSION) :].partition("/")
        if (slash + rest).startswith(_MESSAGE) and rest[len(_MESSAGE) - 1 :].isdecimal():
            return f"{_SESSION}{{session_id}}{_MESSAGE}{{seq}}"
        return f"{_SESSION}{{session_id}}{slash}{rest}" if slash + rest in _SESSION_ROUTES else "other"
    for start in (_PROJECT, _RECORD):
        if path.startswith(start):
            return f"{start}{{name}}"
    for start, end in _NAMED:
        if path.startswith(start) and path.endswith(end) and "/" not in path[len(start) : len(path) - len(end)]:
            return f"{start}{{id}}{end}"
    if is_page(path):
        return "page"
    return path if path in _ROUTES else "other"


class Work(NamedTuple):
    """Counts of appends by duration, failed appends and evictions."""

    bounds_s: Sequence[float]
    turns: Sequence[int]
    """Successful appends per bucket. The last bucket counts the appends that took longer than the last bound."""
    failed_count: int
    evictions_count: int

    def since(self, before: Work) -> Work:
        """Return the work that was done after the snapshot `before`."""
        turns = [now - then for now, then in zip(self.turns, before.turns, strict=True)]
        failed_count = self.failed_count - before.failed_count
        return Work(self.bounds_s, turns, failed_count, self.evictions_count - before.evictions_count)


class Meters(Metrics):
    """The metrics of one server."""

    def __init__(self) -> None:
        super().__init__()
        self._streams = self._gauge("redismem_streams")
        self._answers = self._gauge("redismem_answers")
        self._turns = self._counter("redismem_turns", "outcome")
        self._requests = self._histogram("redismem_http_request_seconds", SECONDS, "route", "method", "status")
        self._request = lru_cache(maxsize=1_024)(self._find_request)

    def set_streams(self, count: int, answers_count: int) -> None:
        """Set the number of open streams, and of turns that this server answers."""
        self._streams.set(count)
        self._answers.set(answers_count)

    def count_turn(self, outcome: str) -> None:
        """Count a turn that this server has answered."""
        self._turns.labels(outcome).inc()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response, and the seconds from the request to the start of the response."""
        self._request(route, method, status)(seconds)

    def work(self) -> Work:
        """Return a snapshot of the work since this server began."""
        below, failed_count, evictions_count = Tally[float](), 0, 0
        (metric,) = self.operations.collect()
        for sample in metric.samples:
            op, outcome = sample.labels["op"], sample.labels["outcome"]
            is_turn, is_total = op in _TURNS, sample.name.endswith("_count")
            if is_turn and outcome in _DONE and "le" in sample.labels:
                below[float(sample.labels["le"])] += int(sample.value)
            elif is_turn and outcome not in _DONE and is_total:
                failed_count += int(sample.value)
            elif op == Op.EVICTION and outcome == "ok" and is_total:
                evictions_count += int(sample.value)
        turns = [high - low for low, high in pairwise([0, *(below[bound_s] for bound_s in (*SECONDS, math.inf))])]
        return Work(SECONDS, turns, failed_count, evictions_count)

    def _find_request(self, route: str, method: str, status: int) -> Callable[[float], Any]:
        return self._requests.labels(route, word_or_other(method, _METHODS), str(status)).observe
