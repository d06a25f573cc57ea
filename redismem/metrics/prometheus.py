"""The metrics of a process, for Prometheus.

Label values never contain a session, key or path. They come from fixed sets, except for namespaces, and for the
addresses of cluster nodes, which appear only while the node does not answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import Metric

from redismem import blocking
from redismem.concurrency.run_sync import run_without_loop
from redismem.context.info import QUEUES, Queues
from redismem.errors import NotAllowed, StoreUnavailable
from redismem.events import Event, Op
from redismem.inspection.findings import FAIL, NOT_HERE, OK, WARN, Finding
from redismem.memory.memory import Memory
from redismem.store.depths import depths_of
from redismem.store.overload import is_overloaded, refusals
from redismem.store.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPERATIONS = frozenset(Op)
_OUTCOMES = """
ok duplicate conflict nothing job none notdue leased gone noop dead already fenced stale waiting failed paused
busy stopping near recent unavailable degraded open half_open closed StoreUnavailable FallbackFull Overloaded
Unconfirmed NotAllowed TooLarge InvalidState InvalidTime NotInWindow
TurnBusy TurnKnown TurnLost SessionExists CorruptSession UnsupportedFormat WrongShards ScriptFailed CancelledError
"""
OUTCOMES = frozenset(_OUTCOMES.split())
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MESSAGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, 10_000)
_TOKENS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000)

# The help text of each metric. It names the unit.
_TEXTS = {
    "redismem_operation_seconds": "Seconds of a call to Redis or a piece of work, retries included",
    "redismem_resent": "Calls to Redis sent again because no reply came",
    "redismem_refused": "Calls and requests that this process refused because it was overloaded, by reason",
    "redismem_overloaded": "1 while this process gets more calls than it can make in time, else 0",
    "redismem_window_messages": "Messages in the window of a session, after each append or read",
    "redismem_summary_covered_tokens": "Tokens of the messages that a new summary covers",
    "redismem_append_tokens": "Tokens of all messages of an append",
    "redismem_evictions": "Evictions that this process tried, by outcome; ok means a session was evicted",
    "redismem_degraded": "1 while Redis or a node of a cluster does not answer, else 0",
    "redismem_away_seconds": "Seconds since Redis or a node of a cluster stopped answering; 0 means it answers",
    "redismem_backlog_messages": "Messages that this process accepted while Redis was down and has not replayed yet",
    "redismem_queue_sessions": "Sessions in a queue of the namespace",
    "redismem_queue_lag_seconds": "Seconds since the first session of a queue was due; 0 means no session is due",
    "redismem_sessions": "Live sessions of the namespace, without those exempt from the limit",
    "redismem_sessions_limit": "Sessions that the namespace may hold; sessions above it are evicted",
    "redismem_last_tick_age_seconds": "Seconds since a worker last polled the queues; +Inf means none did within a day",
    "redismem_processes": "Running processes with workers for the namespace",
    "redismem_finding": "1 for the verdict of each question of `redismem doctor`: ok, warn or fail; else 0",
    "redismem_calls_in_flight": "Calls of this process to Redis without a reply yet",
    "redismem_streams": "Open streams of this server: events, and answers of the chat",
    "redismem_answers": "Turns in progress that this server answers, with or without listeners",
    "redismem_turns": "Turns that this server has answered, by outcome: done, stopped, failed, lost",
    "redismem_http_request_seconds": "Seconds from a request to the start of its response",
}
_NO_FINDINGS: Mapping[str, Sequence[Finding]] = {}


class _Registry(CollectorRegistry):
    """A registry without the `_created` series. prometheus_client can only drop them for the whole process."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """The metrics of the memories of a process, for any number of memories and namespaces.

    >>> metrics = Metrics()
    >>> memory = Memory.connect("redis://127.0.0.1:6379/0", on_event=metrics.event)
    >>> text = await metrics.collect(memory)  # the answer to a scrape, of the type `metrics.content_type`
    """

    content_type = CONTENT_TYPE

    def __init__(self) -> None:
        """Make the metrics, in a registry of their own: `registry`, a prometheus_client.CollectorRegistry."""
        self.registry: CollectorRegistry = _Registry()
        self.operations = self._histogram("redismem_operation_seconds", SECONDS, "op", "outcome")
        self._resent = self._counter("redismem_resent")
        self._refused = self._counter("redismem_refused", "reason")
        self._overloaded = self._gauge("redismem_overloaded")
        self._refused_counts: dict[str, int] = {}
        self._window = self._histogram("redismem_window_messages", _MESSAGES)
        self._covered = self._histogram("redismem_summary_covered_tokens", _TOKENS)
        self._appended = self._histogram("redismem_append_tokens", _TOKENS)
        self._evictions = self._counter("redismem_evictions", "outcome")
        self._degraded = self._gauge("redismem_degraded")
        self._is_degraded = False  # saves setting the gauge, which takes a lock, per event
        self._away = self._gauge("redismem_away_seconds", "node")
        self._backlog = self._gauge("redismem_backlog_messages")
        self._queues = self._gauge("redismem_queue_sessions", "namespace", "queue")
        self._lag = self._gauge("redismem_queue_lag_seconds", "namespace", "queue")
        self._sessions = self._gauge("redismem_sessions", "namespace")
        self._limit = self._gauge("redismem_sessions_limit", "namespace")
        self._tick_age = self._gauge("redismem_last_tick_age_seconds", "namespace")
        self._processes = self._gauge("redismem_processes", "namespace")
        self._findings = self._gauge("redismem_finding", "namespace", "name", "verdict")
        self._of_namespaces = (
            *(self._queues, self._lag, self._sessions, self._limit, self._tick_age, self._processes, self._findings),
        )
        self._last: dict[str, Queues] = {}
        self._calls = self._gauge("redismem_calls_in_flight")
        # Looking up a child by its labels takes longer than counting.
        self._operation = lru_cache(maxsize=1_024)(self._find_operation)

    def _histogram(self, name: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(name, _TEXTS[name], labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, *labels: str) -> Counter:
        return Counter(name, _TEXTS[name], labels, registry=self.registry)

    def _gauge(self, name: str, *labels: str) -> Gauge:
        return Gauge(name, _TEXTS[name], labels, registry=self.registry)

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
            self._evictions.labels(word_or_other(event.outcome, OUTCOMES)).inc()

    async def collect(self, *memories: Memory) -> bytes:
        """Return all metrics as text, with the queues of these memories. Never raises for a Redis that is down.

        If Redis does not answer, the queues keep their last values, and `redismem_degraded` is 1.
        """
        stores = [memory.store for memory in memories]
        return self.render(stores, {store.keys.namespace: await _queues_of(store) for store in stores})

    def collect_blocking(self, *memories: blocking.Memory) -> bytes:
        """Return all metrics as text, with the queues of these blocking memories; else as `collect`."""
        stores = [memory.store for memory in memories]
        return self.render(stores, {store.keys.namespace: run_without_loop(_queues_of(store)) for store in stores})

    def render(
        self,
        stores: Sequence[Store],
        queues: Mapping[str, Queues | None],
        findings: Mapping[str, Sequence[Finding]] = _NO_FINDINGS,
    ) -> bytes:
        """Return all metrics as text, with the gauges of these stores and of exactly these namespaces.

        Args:
            queues: The queues by namespace; `None` means that Redis does not answer: then the last ones count.
            findings: The findings by namespace.
        """
        self._calls.set(sum(store.transport.calls_count for store in stores))
        self._overloaded.set(is_overloaded())
        for reason, count in refusals.counts.items():
            self._refused.labels(reason).inc(count - self._refused_counts.get(reason, 0))
            self._refused_counts[reason] = count
        self._backlog.set(sum(store.health().backlog_message_count for store in stores))
        self._away.clear()  # drops nodes that answer again or were removed
        for place, seconds in _away_s(stores).items():
            self._away.labels(place).set(seconds)
        self._is_degraded = any(each is None or each.degraded for each in queues.values())
        self._degraded.set(self._is_degraded)
        for gauge in self._of_namespaces:
            gauge.clear()  # a scrape with the key of one tenant shows nothing of another
        for namespace, each in queues.items():
            if each is not None:
                self._last[namespace] = each
            if (known := self._last.get(namespace)) is not None:
                self._set_queues(known)
        for namespace, answers in findings.items():
            self._set_findings(namespace, answers)
        return generate_latest(self.registry)

    def _set_findings(self, namespace: str, findings: Sequence[Finding]) -> None:
        for finding in findings:
            for verdict in (OK, WARN, FAIL) if finding.verdict != NOT_HERE else ():
                self._findings.labels(namespace, finding.name, str(verdict)).set(finding.verdict == verdict)

    def _set_queues(self, queues: Queues) -> None:
        namespace, age_ms = queues.namespace, queues.tick_age_ms
        self._sessions.labels(namespace).set(queues.session_count)
        self._limit.labels(namespace).set(queues.max_sessions)
        self._processes.labels(namespace).set(queues.process_count)
        if age_ms is not None or not queues.degraded:  # a node that is away may have the time of the last tick
            self._tick_age.labels(namespace).set(math.inf if age_ms is None else age_ms / 1000)
        for queue in QUEUES:
            self._queues.labels(namespace, queue).set(getattr(queues, queue).count)
            self._lag.labels(namespace, queue).set(queues.lag_ms(queue) / 1000)

    def _find_operation(self, op: str, outcome: str) -> Callable[[float], Any]:
        return self.operations.labels(word_or_other(op, OPERATIONS), word_or_other(outcome, OUTCOMES)).observe


async def _queues_of(store: Store) -> Queues | None:
    try:
        return (await depths_of(store)).queues()
    except (StoreUnavailable, NotAllowed):
        return None


def _away_s(stores: Sequence[Store]) -> Mapping[str, float]:
    """Return how long each node has not answered, in seconds, by address. "" stands for the store as a whole."""
    away_s = {"": 0.0}
    for breaker in (breaker for store in stores for breaker in store.availability.away()):
        away_s[breaker.place] = max(away_s.get(breaker.place, 0.0), breaker.away_s())
    return away_s


def word_or_other(word: str, words: frozenset[str]) -> str:
    """Return the word, or "other" if it is none of these words."""
    return word if word in words else "other"
