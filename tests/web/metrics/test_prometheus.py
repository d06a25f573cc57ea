"""Metrics with closed labels and true numbers, a dashboard whose queries match them, and spans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client.parser import text_string_to_metric_families
from support.checks import until
from support.http_service import RunningService, numbered_message, serve_memory
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory, Settings
from redismem.events import Event
from redismem.metrics.prometheus import OUTCOMES
from redismem.web.metrics import spans
from redismem.web.metrics.prometheus import Meters, listener, route_of

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text())


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return values


def total(metrics: Any, name: str, **labels: str) -> float:
    return sum(value for own, value in metrics.get(name, []) if labels.items() <= own.items())


async def scrape(http: RunningService) -> Any:
    answer = await http.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


async def test_turns_requests_and_queues_are_counted(store: Any, namespace: str) -> None:
    meters = Meters()
    options: Any = {"workers": True, "on_event": listener(meters)}
    few = Settings(threshold=4, recent_limit=2, max_sessions=2, tick_s=0.05)
    async with store.memory(namespace, few, **options) as memory, serve_memory(memory, meters=meters) as http:
        for number in range(4):
            for _ in range(3):
                await http.ask(
                    "POST",
                    f"/v1/sessions/s-{number}/messages?read=true",
                    json=[numbered_message(1), numbered_message(2)],
                )
        await http.ask("GET", "/v1/sessions/none")
        await http.ask("GET", "/v1/secret-path/s-1")

        async def has_settled() -> Any:
            metrics = await scrape(http)
            evicted = total(metrics, "redismem_evictions_total", outcome="ok")
            summarised = total(metrics, "redismem_summary_covered_tokens_count")
            return evicted == 2 and summarised and total(metrics, "redismem_sessions") == 2 and metrics

        metrics = await until(has_settled)
        assert total(metrics, "redismem_operation_seconds_count", op="append_and_read", outcome="ok") == 12
        assert total(metrics, "redismem_http_request_seconds_count", method="POST", status="201") == 12
        route = "/v1/sessions/{session_id}"
        assert total(metrics, "redismem_http_request_seconds_count", route=route, status="404") == 1
        assert total(metrics, "redismem_http_request_seconds_count", route="other", status="404") == 1
        assert total(metrics, "redismem_append_tokens_count") == 12
        assert total(metrics, "redismem_sessions_limit") == 2
        assert total(metrics, "redismem_degraded") == 0
        assert all("s-1" not in value for rows in metrics.values() for labels, _ in rows for value in labels.values())


async def test_a_store_is_degraded_until_it_answers_again(redis_server: Any, proxy: Any, namespace: str) -> None:
    meters = Meters()
    options: Any = {"namespace": namespace, "settings": LONG_DEADLINES, "on_event": meters.event}
    async with Memory.connect(proxy.url, **options) as memory, serve_memory(memory, meters=meters) as http:
        assert total(await scrape(http), "redismem_degraded") == 0
        with short_deadlines(memory):
            await proxy.refuse()
            assert total(await scrape(http), "redismem_degraded") == 1
            await proxy.accept_again()

        async def is_well() -> bool:
            return total(await scrape(http), "redismem_degraded") == 0

        await until(is_well)


async def test_an_outage_and_its_backlog_are_measured(proxy: Any, namespace: str) -> None:
    meters = Meters()
    options: Any = {"namespace": namespace, "settings": LONG_DEADLINES, "fallback": True, "on_event": meters.event}
    async with Memory.connect(proxy.url, **options) as memory, serve_memory(memory, meters=meters) as http:

        def changes(metrics: Any, outcome: str) -> float:
            return total(metrics, "redismem_operation_seconds_count", op="breaker", outcome=outcome)

        async def has_probed_twice() -> Any:
            metrics = await scrape(http)
            return changes(metrics, "half_open") >= 2 and metrics

        await proxy.refuse()
        with short_deadlines(memory):
            for _ in range(2):
                assert (await memory.session("a").append(numbered_message(1))).degraded

            metrics = await until(has_probed_twice)
        assert total(metrics, "redismem_away_seconds", node="") > 0
        assert total(metrics, "redismem_backlog_messages") == 2
        assert changes(metrics, "open") == changes(metrics, "closed") + 1
        await proxy.accept_again()

        async def has_replayed() -> Any:
            metrics = await scrape(http)
            return total(metrics, "redismem_backlog_messages") == 0 and metrics

        metrics = await until(has_replayed)
        assert metrics["redismem_away_seconds"] == [({"node": ""}, 0)]
        assert changes(metrics, "open") == changes(metrics, "closed") >= 1
        assert changes(metrics, "other") == 0


def test_a_node_is_named_while_it_does_not_answer() -> None:
    meters = Meters()

    def away(places: dict[str, float]) -> Any:
        breakers = [SimpleNamespace(place=place, away_s=partial(float, seconds)) for place, seconds in places.items()]
        health = SimpleNamespace(backlog_message_count=0)
        store: Any = SimpleNamespace(
            transport=SimpleNamespace(calls_count=0),
            availability=SimpleNamespace(away=lambda: breakers),
            health=lambda: health,
        )
        return samples(meters.render([store], {}).decode())["redismem_away_seconds"]

    assert away({"10.0.0.1:7000": 3.5}) == [({"node": ""}, 0), ({"node": "10.0.0.1:7000"}, 3.5)]
    assert away({}) == [({"node": ""}, 0)]


def test_a_counter_is_one_series_and_every_help_text_names_the_unit() -> None:
    meters = Meters()
    meters.event(Event("eviction", "ok", 1.0, "shop", "hash", sent_count=2))
    text = meters.render([], {}).decode()
    assert "redismem_resent_total 1.0" in text
    assert "_created" not in text
    for unit in ("seconds", "messages", "tokens", "sessions"):
        help_lines = [line for line in text.splitlines() if re.match(rf"# HELP redismem_\w*{unit} ", line)]
        assert help_lines
        assert [line for line in help_lines if unit not in line.split(" ", 3)[3].lower()] == []


def test_unknown_words_become_the_label_other() -> None:
    meters = Meters()
    for outcome in (*OUTCOMES, "canary"):
        meters.event(Event("canary", outcome, 1.0, "shop", "hash"))
    text = meters.render([], {}).decode()
    assert "canary" not in text
    assert 'op="other"' in text


def test_turns_served_while_redis_is_down_do_not_count_as_failed() -> None:
    meters = Meters()
    for outcome in ("ok", "degraded", "FallbackFull"):
        meters.event(Event("append", outcome, 1.0, "shop", "hash"))
    work = meters.work()
    assert (sum(work.turns), work.failed_count) == (2, 1)
    text = meters.render([], {}).decode()
    assert all(f'op="append",outcome="{outcome}"' in text for outcome in ("degraded", "FallbackFull"))


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/sessions/abc", "/v1/sessions/{session_id}"),
        ("/v1/sessions/a%2Fb/messages", "/v1/sessions/{session_id}/messages"),
        ("/v1/sessions/abc/secret", "other"),
        ("/v1/sessions/abc/messages/x", "other"),
        ("/v1/sessions/abc/messages/7", "/v1/sessions/{session_id}/messages/{seq}"),
        ("/v1/sessions", "/v1/sessions"),
        ("/x/abc", "other"),
    ],
)
def test_a_path_belongs_to_one_of_few_routes(path: str, route: str) -> None:
    assert route_of(path) == route


async def test_each_path_of_the_api_has_a_route(store: Any, namespace: str) -> None:
    async with store.memory(namespace) as memory, serve_memory(memory) as http:
        paths = (await http.ask("GET", "/openapi.json")).json()["paths"]
    assert len(paths) > 20
    assert [path for path in paths if route_of(re.sub("{.*?}", "7", path)) == "other"] == []


def queries_of(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def exposed_labels() -> dict[str, set[str]]:
    """Return the labels of every sample by its name."""
    meters = Meters()
    labels_by_name: dict[str, set[str]] = {}
    for metric in meters.registry.collect():
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}.get(metric.type, ("",))
        collector = meters.registry._names_to_collectors[metric.name]
        labels = set(getattr(collector, "_labelnames", ()))
        for suffix in suffixes:
            labels_by_name[metric.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return labels_by_name


def faults(queries: list[str]) -> Iterator[str]:
    exposed = exposed_labels()
    used: set[str] = set()
    for query in queries:
        names = set(re.findall(r"\bredismem_\w+", query))
        used |= names
        yield from (f"{name} is not measured" for name in names - exposed.keys())
        labels = set(re.findall(r"(\w+)=?[=!]~?\"", query))
        labels |= {word.strip() for group in re.findall(r"by \((.*?)\)", query) for word in group.split(",")}
        have = set.union(set(), *(exposed.get(name, set()) for name in names))
        yield from (f"{label} is no label of {names}" for label in labels - have)
    families = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in used}
    for name in exposed:
        family = re.sub(r"_(bucket|count|sum|total)$", "", name)
        if family not in families:
            yield f"{family} is in no panel"


def test_the_dashboard_queries_every_metric_and_no_other() -> None:
    assert list(faults(queries_of(DASHBOARD))) == []


def test_a_wrong_query_of_a_dashboard_is_noticed() -> None:
    queries = queries_of(DASHBOARD)
    assert list(faults([*queries, "redismem_nothing"])) == ["redismem_nothing is not measured"]
    assert [fault for fault in faults([*queries, 'redismem_streams{op="x"}']) if "op is no label" in fault]
    assert "redismem_streams is in no panel" in list(faults([query for query in queries if "streams" not in query]))


class Recorded(trace.NonRecordingSpan):
    def __init__(self, name: str, attributes: Any) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.name, self.attributes = name, dict(attributes or {})
        self.status: Any = None

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Any, description: Any = None) -> None:
        self.status = status


class Recording(trace.NoOpTracer):
    def __init__(self) -> None:
        self.spans: list[Recorded] = []

    def start_span(self, name: str, *_: Any, attributes: Any = None, **__: Any) -> Any:
        self.spans.append(Recorded(name, attributes))
        return self.spans[-1]


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Set up a tracer provider, as the SDK would, for the time of the test."""
    tracer = Recording()

    class Provider(trace.TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return tracer

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Provider())
    return tracer


async def test_with_a_tracer_provider_each_call_has_one_span(recording: Recording, memory: Memory, store: Any) -> None:
    assert spans.is_wanted()
    async with store.memory(memory.store.keys.namespace, on_event=listener(Meters())) as watched:
        await watched.session("canary").append({"role": "user", "content": "canary"})
    span = next(span for span in recording.spans if span.name == "append redis")
    assert (span.attributes["db.system.name"], span.attributes["db.operation.name"]) == ("redis", "append")
    spans.record_event(Event("append", "StoreUnavailable", 1.0, "shop"))
    assert recording.spans[-1].attributes["error.type"] == "StoreUnavailable"
    assert recording.spans[-1].status is trace.StatusCode.ERROR
    assert "canary" not in str([span.attributes for span in recording.spans])


def test_without_a_tracer_provider_events_go_to_the_meters_alone() -> None:
    meters = Meters()
    assert listener(meters) == meters.event
