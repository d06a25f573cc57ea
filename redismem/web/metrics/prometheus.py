"""Metrics for Prometheus. No label names a session, a key or a path.

They are words of closed sets, but for the nodes of a cluster, which are named only while they do not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import Metric

from redismem.errors import StoreUnavailable
from redismem.events import Event, OnEvent, Op
from redismem.inspection.depths import QUEUES, Depths
from redismem.web.http.static import is_page
from redismem.web.metrics import spans
from redismem.web.metrics.histograms import Histogram


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
_METHODS = frozenset(["GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS"])
_SESSION, _PROJECT = "/v1/sessions/", "/v1/projects/"
_OF_A_SESSION = frozenset(["", "/messages", "/context", "/state", "/events"])
_ROUTES = _words(
    """
    /v1/sessions /v1/projects /v1/about /v1/load /v1/queues /v1/dead /v1/dead/retry /v1/dead/drop /livez /readyz
    /metrics /openapi.json /api/chat /api/chat/clear /api/chat/stop
    """
)
_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MESSAGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000)
_TOKENS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000)

# What each of them counts, and in what unit.
_TEXTS = {
    "redismem_operation_seconds": "Seconds that a call to Redis or a piece of work took, with all that was sent again",
    "redismem_resent": "Times that a call to Redis was sent again, for want of a reply",
    "redismem_window_messages": "Messages in the window of a session, after each append or read of it",
    "redismem_summary_covered_tokens": "Tokens of the messages that a summary came to cover",
    "redismem_append_tokens": "Tokens of the messages of an append, all together",
    "redismem_evictions": "Evictions that this server has tried, by outcome; ok: a session was evicted",
    "redismem_degraded": "1 while Redis does not answer, else 0",
    "redismem_away_seconds": "Seconds since Redis, or a node of a cluster, went away; 0: it is there",
    "redismem_backlog_messages": "Messages that this server accepted while Redis was away, still to be replayed",
    "redismem_queue_sessions": "Sessions in a queue of the namespace of the key",
    "redismem_queue_lag_seconds": "Seconds since the first session of a queue was due; 0: none is",
    "redismem_sessions": "Live sessions of the namespace of the key",
    "redismem_sessions_limit": "Sessions that the namespace of the key may have; more are evicted",
    "redismem_calls_in_flight": "Calls to Redis of this server without an answer yet",
    "redismem_streams": "Streams of this server that are open: events, and answers of the chat",
    "redismem_http_request_seconds": "Seconds from a request to the beginning of its answer",
}


def listener(meters: Meters) -> OnEvent:
    """The `on_event` of a memory: what is measured, and spans if somebody has set up a provider of them."""
    if not spans.is_wanted():
        return meters.event

    def both(event: Event) -> None:
        meters.event(event)
        spans.event_span(event)

    return both


def route_of(path: str) -> str:
    """The route of a path as it was sent: one of a closed set."""
    if path.startswith(_SESSION):
        _, slash, rest = path[len(_SESSION) :].partition("/")
        return f"{_SESSION}{{session_id}}{slash}{rest}" if slash + rest in _OF_A_SESSION else "other"
    if path.startswith(_PROJECT):
        return f"{_PROJECT}{{name}}"
    if is_page(path):
        return "page"
    return path if path in _ROUTES else "other"


class Worked(NamedTuple):
    """Appends, by how long they took, those that failed, and evictions."""

    bounds_s: Sequence[float]
    turns: Sequence[int]
    """The number of turns in each duration bucket; the last bucket has no upper bound."""
    failed_count: int
    evictions_count: int

    def since(self, before: Worked) -> Worked:
        """Return the work since `before`."""
        turns = [now - then for now, then in zip(self.turns, before.turns, strict=True)]
        failed_count = self.failed_count - before.failed_count
        return Worked(self.bounds_s, turns, failed_count, self.evictions_count - before.evictions_count)


class _Registry(CollectorRegistry):
    """Without the moment that each counter began: a series a counter, which prometheus_client drops for all or none."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Meters:
    """The numbers of one server."""

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
        self._is_degraded = False  # setting a gauge takes a lock
        self._away = gauge("redismem_away_seconds", "node")
        self._backlog = gauge("redismem_backlog_messages")
        self._queues = gauge("redismem_queue_sessions", "queue")
        self._lag = gauge("redismem_queue_lag_seconds", "queue")
        self._sessions = gauge("redismem_sessions")
        self._limit = gauge("redismem_sessions_limit")
        self._calls = gauge("redismem_calls_in_flight")
        self._streams = gauge("redismem_streams")
        self._requests = histogram("redismem_http_request_seconds", _SECONDS, "route", "method", "status")
        # Finding a child by its labels takes longer than counting.
        self._operation = lru_cache(maxsize=1_024)(self._operation_of)
        self._request = lru_cache(maxsize=1_024)(self._request_of)

    def event(self, event: Event) -> None:
        """The `on_event` of a memory."""
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
            self._evictions.labels(_known(event.outcome, OUTCOMES)).inc()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Counts one answer, and how long it took."""
        self._request(route, method, status)(seconds)

    def worked(self) -> Worked:
        """Return the work since the start of this server."""
        bounds_s = self._operations.bounds
        turns, failed_count, evictions_count = [0] * (len(bounds_s) + 1), 0, 0
        for (op, outcome), counts in self._operations.children():
            if op in _TURNS and outcome in _DONE:
                turns = [a + b for a, b in zip(turns, counts.counts, strict=True)]
            elif op in _TURNS:
                failed_count += sum(counts.counts)
            elif op == Op.EVICTION and outcome == "ok":
                evictions_count += sum(counts.counts)
        return Worked(bounds_s, turns, failed_count, evictions_count)

    def looked(
        self,
        depths: Depths | None,
        calls_count: int,
        streams_count: int,
        away_s: Mapping[str, float],
        backlog_count: int,
    ) -> bytes:
        """All of it as text, with what was looked up just now; without depths the store did not answer.

        `away_s`: how long a node has not answered, by its place; "" is the place of all together.
        """
        self._calls.set(calls_count)
        self._streams.set(streams_count)
        self._backlog.set(backlog_count)
        self._away.clear()  # a node that is back, or gone for good, is named no more
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

    def _operation_of(self, op: str, outcome: str) -> Callable[[float], Any]:
        return self._operations.labels(_known(op, OPERATIONS), _known(outcome, OUTCOMES)).observe

    def _request_of(self, route: str, method: str, status: int) -> Callable[[float], Any]:
        return self._requests.labels(route, _known(method, _METHODS), str(status)).observe


def _known(word: str, words: frozenset[str]) -> str:
    return word if word in words else "other"
