"""The metrics of a server, for Prometheus.

Label values never contain a session, key or path. They come from fixed sets, except for the addresses of cluster nodes,
which appear only while the node does not answer.
"""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from redismem.errors import StoreUnavailable
from redismem.events import Event, OnEvent, Op
from redismem.info import QUEUES
from redismem.store.depths import Depths
from redismem.web.http.static import is_page
from redismem.web.metrics import spans


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPERATIONS = frozenset(Op)
OUTCOMES = _words(
    """
    ok duplicate conflict nothing job none notdue leased gone noop dead already fenced stale waiting failed paused
    busy stopping unavailable degraded open half_open closed StoreUnavailable FallbackFull
    Unconfirmed NotAllowed TooLarge InvalidState InvalidTime NotInWindow
    SessionExists CorruptSession UnsupportedFormat WrongShards ScriptFailed CancelledError
    """
)
_TURNS = frozenset(op for op in Op if op.is_turn)
_DONE = frozenset(["ok", "duplicate", "degraded", "conflict"])
_METHODS = frozenset(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
_SESSION, _PROJECT = "/v1/sessions/", "/v1/projects/"
_SESSION_ROUTES = frozenset(
    ["", "/messages", "/context", "/context/parts", "/context/request", "/state", "/events", "/prune", "/forget"]
)
_MESSAGE = "/messages/"
_ROUTES = _words(
    """
    /v1/sessions /v1/projects /v1/about /v1/load /v1/queues /v1/dead /v1/dead/retry /v1/dead/drop /livez /readyz
    /metrics /openapi.json /api/chat /api/chat/clear /api/chat/stop
    """
)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MESSAGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000)
_TOKENS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000)

# The help text of each metric. It names the unit.
_TEXTS = {
    "redismem_operation_seconds": "Seconds of a call to Redis or a piece of work, retries included",
    "redismem_resent": "Calls to Redis sent again because no reply came",
    "redismem_window_messages": "Messages in the window of a session, after each append or read",
    "redismem_summary_covered_tokens": "Tokens of the messages that a new summary covers",
    "redismem_append_tokens": "Tokens of all messages of an append",
    "redismem_evictions": "Evictions that this server tried, by outcome; ok means a session was evicted",
    "redismem_degraded": "1 while Redis does not answer, else 0",
    "redismem_away_seconds": "Seconds since Redis or a node of a cluster stopped answering; 0 means it answers",
    "redismem_backlog_messages": "Messages that this server accepted while Redis was down and has not replayed yet",
    "redismem_queue_sessions": "Sessions in a queue of the namespace of the key",
    "redismem_queue_lag_seconds": "Seconds since the first session of a queue was due; 0 means no session is due",
    "redismem_sessions": "Live sessions of the namespace of the key",
    "redismem_sessions_limit": "Sessions that the namespace of the key may hold; sessions above it are evicted",
    "redismem_calls_in_flight": "Calls of this server to Redis without a reply yet",
    "redismem_streams": "Open streams of this server: events, and answers of the chat",
    "redismem_http_request_seconds": "Seconds from a request to the start of its response",
}


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
    if path.startswith(_PROJECT):
        return f"{_PROJECT}{{name}}"
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


class _Registry(CollectorRegistry):
    """A registry without the `_created` series. prometheus_client can only drop them for the whole process."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Meters:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = registry = _Registry()

        def histogram(name: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, _TEXTS[name], labels, buckets=buckets, registry=registry)

        def counter(name: str, *labels: str) -> Counter:
            return Counter(name, _TEXTS[name], labels, registry=registry)

        def gauge(name: str, *labels: str) -> Gauge:
            return Gauge(name, _TEXTS[name], labels, registry=registry)

        self._operations = histogram("redismem_operation_seconds", _SECONDS, "op", "outcome")
        self._resent = counter("redismem_resent")
        self._window = histogram("redismem_window_messages", _MESSAGES)
        self._covered = histogram("redismem_summary_covered_tokens", _TOKENS)
        self._appended = histogram("redismem_append_tokens", _TOKENS)
        self._evictions = counter("redismem_evictions", "outcome")
        self._degraded = gauge("redismem_degraded")
        self._is_degraded = False  # saves setting the gauge, which takes a lock, per event
        self._away = gauge("redismem_away_seconds", "node")
        self._backlog = gauge("redismem_backlog_messages")
        self._queues = gauge("redismem_queue_sessions", "queue")
        self._lag = gauge("redismem_queue_lag_seconds", "queue")
        self._sessions = gauge("redismem_sessions")
        self._limit = gauge("redismem_sessions_limit")
        self._calls = gauge("redismem_calls_in_flight")
        self._streams = gauge("redismem_streams")
        self._requests = histogram("redismem_http_request_seconds", _SECONDS, "route", "method", "status")
        # Looking up a child by its labels takes longer than counting.
        self._operation = lru_cache(maxsize=1_024)(self._find_operation)
        self._request = lru_cache(maxsize=1_024)(self._find_request)

    def event(self, event: Event) -> None:
        """Count an event; the `on_event` of a memory."""
        self._operation(event.op, event.outcome)(event.duration_ms / 1000)
        if event.sent_count > 1:
            self._resent.inc(event.sent_count - 1)
        if event.sent_count and (event.outcome == StoreUnavailable.__name__) is not self._is_degraded:
            self._is_degraded = not self._is_degraded
            self._degraded.set(self._is_degraded)
        if event.window_count is not None:
            self._window.observe(event.window_count)
        if event.op == Op.COMMIT and event.outcome == "ok":
            self._covered.observe(event.tokens)
        elif event.message_bytes:
            self._appended.observe(event.tokens)
        elif event.op == Op.EVICTION:
            self._evictions.labels(_word_or_other(event.outcome, OUTCOMES)).inc()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a response, and the seconds from the request to the start of the response."""
        self._request(route, method, status)(seconds)

    def work(self) -> Work:
        """Return a snapshot of the work since this server began."""
        below, failed_count, evictions_count = Tally[float](), 0, 0
        (metric,) = self._operations.collect()
        for sample in metric.samples:
            op, outcome = sample.labels["op"], sample.labels["outcome"]
            is_turn, is_total = op in _TURNS, sample.name.endswith("_count")
            if is_turn and outcome in _DONE and "le" in sample.labels:
                below[float(sample.labels["le"])] += int(sample.value)
            elif is_turn and outcome not in _DONE and is_total:
                failed_count += int(sample.value)
            elif op == Op.EVICTION and outcome == "ok" and is_total:
                evictions_count += int(sample.value)
        turns = [high - low for low, high in pairwise([0, *(below[bound_s] for bound_s in (*_SECONDS, math.inf))])]
        return Work(_SECONDS, turns, failed_count, evictions_count)

    def render(
        self,
        depths: Depths | None,
        calls_count: int,
        streams_count: int,
        away_s: Mapping[str, float],
        backlog_count: int,
    ) -> bytes:
        """Return all metrics as text, with the gauges set to these values.

        Args:
            depths: The depths of the queues; `None` means that the store did not answer.
            away_s: The seconds since a node stopped answering, by address. "" stands for the whole store.
        """
        self._calls.set(calls_count)
        self._streams.set(streams_count)
        self._backlog.set(backlog_count)
        self._away.clear()  # drops nodes that answer again or were removed
        for place, seconds in away_s.items():
            self._away.labels(place).set(seconds)
        self._is_degraded = depths is None
        self._degraded.set(self._is_degraded)
        if depths is not None:
            self._sessions.set(depths.sessions_count)
            self._limit.set(depths.max_sessions)
            for queue in QUEUES:
                depth = depths.total(queue)
                lag_ms = 0 if depth.first_ms is None else max(0, depths.now_ms - depth.first_ms)
                self._queues.labels(queue).set(depth.count)
                self._lag.labels(queue).set(lag_ms / 1000)
        return generate_latest(self.registry)

    def _find_operation(self, op: str, outcome: str) -> Callable[[float], Any]:
        return self._operations.labels(_word_or_other(op, OPERATIONS), _word_or_other(outcome, OUTCOMES)).observe

    def _find_request(self, route: str, method: str, status: int) -> Callable[[float], Any]:
        return self._requests.labels(route, _word_or_other(method, _METHODS), str(status)).observe


def _word_or_other(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"
