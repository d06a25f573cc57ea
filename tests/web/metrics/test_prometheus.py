"""Metrics have closed label sets and true numbers; the dashboard queries existing metrics; and spans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client.parser import text_string_to_metric_families
from support.checks import until
from support.http_service import Served, said, served

from redismem import Memory, Settings
from redismem.events import Event
from redismem.web.metrics import spans
from redismem.web.metrics.prometheus import OUTCOMES, Meters, listener, route_of

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text())
GIVEN_BY_PROMETHEUS = {"le"}


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def total(found: Any, name: str, **labels: str) -> float:
    return sum(value for own, value in found.get(name, []) if labels.items() <= own.items())


async def looked(http: Served) -> Any:
    answer = await http.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


async def test_turns_requests_and_queues_are_counted(store: Any, namespace: str) -> None:
    meters = Meters()
    options: Any = {"workers": True, "on_event": listener(meters)}
    few = Settings(threshold=4, recent_limit=2, max_sessions=2, tick_s=0.05)
    async with store.memory(namespace, few, **options) as memory, served(memory, meters=meters) as http:
        for number in range(4):
            for _ in range(3):
                await http.ask("POST", f"/v1/sessions/s-{number}/messages?read=true", json=[said(1), said(2)])
        await http.ask("GET", "/v1/sessions/none")
        await http.ask("GET", "/v1/secret-path/s-1")

        async def settled() -> Any:
            found = await looked(http)
            evicted = total(found, "redismem_evictions_total", outcome="ok")
            return evicted == 2 and total(found, "redismem_sessions") == 2 and found

        found = await until(settled)
        assert total(found, "redismem_operation_seconds_count", op="append_and_read", outcome="ok") == 12
        assert total(found, "redismem_http_request_seconds_count", method="POST", status="201") == 12
        route = "/v1/sessions/{session_id}"
        assert total(found, "redismem_http_request_seconds_count", route=route, status="404") == 1
        assert total(found, "redismem_http_request_seconds_count", route="other", status="404") == 1
        assert total(found, "redismem_append_tokens_count") == 12
        assert total(found, "redismem_summary_covered_tokens_count") >= 1
        assert total(found, "redismem_sessions_limit") == 2
        assert total(found, "redismem_degraded") == 0
        assert all("s-1" not in value for rows in found.values() for labels, _ in rows for value in labels.values())


async def test_a_store_that_is_away_is_degraded_till_it_is_back(redis_server: Any, proxy: Any, namespace: str) -> None:
    meters = Meters()
    settings = Settings(deadline_s=2, reply_timeout_s=1)
    options: Any = {"namespace": namespace, "settings": settings, "on_event": meters.event}
    async with Memory.connect(proxy.url, **options) as memory, served(memory, meters=meters) as http:
        assert total(await looked(http), "redismem_degraded") == 0
        proxy.break_next("swallow", count=float("inf"))
        assert total(await looked(http), "redismem_degraded") == 1
        proxy.heal()

        async def well() -> bool:
            return total(await looked(http), "redismem_degraded") == 0

        await until(well)


async def test_an_outage_is_measured_and_what_is_accepted_meanwhile(proxy: Any, namespace: str) -> None:
    meters = Meters()
    settings = Settings(deadline_s=2, reply_timeout_s=0.5, fallback_after_s=0.5)
    options: Any = {"namespace": namespace, "settings": settings, "fallback": True, "on_event": meters.event}
    async with Memory.connect(proxy.url, **options) as memory, served(memory, meters=meters) as http:

        def changes(found: Any, outcome: str) -> float:
            return total(found, "redismem_operation_seconds_count", op="breaker", outcome=outcome)

        await proxy.refuse()
        for _ in range(2):
            assert (await memory.session("a").append(said(1))).degraded

        async def missed() -> Any:
            found = await looked(http)
            return changes(found, "half_open") >= 2 and found

        found = await until(missed)
        assert total(found, "redismem_away_seconds", node="") > 0
        assert total(found, "redismem_backlog_messages") == 2
        assert changes(found, "open") == changes(found, "closed") + 1
        await proxy.accept_again()

        async def back() -> Any:
            found = await looked(http)
            return total(found, "redismem_backlog_messages") == 0 and found

        found = await until(back)
        assert found["redismem_away_seconds"] == [({"node": ""}, 0)]
        assert changes(found, "open") == changes(found, "closed") >= 1
        assert changes(found, "other") == 0


def test_a_node_is_named_while_it_does_not_answer() -> None:
    meters = Meters()

    def away(places: dict[str, float]) -> Any:
        return samples(meters.looked(None, 0, 0, {"": 0.0, **places}, 0).decode())["redismem_away_seconds"]

    assert away({"10.0.0.1:7000": 3.5}) == [({"node": ""}, 0), ({"node": "10.0.0.1:7000"}, 3.5)]
    assert away({}) == [({"node": ""}, 0)]


def test_a_counter_is_one_series_and_every_text_names_the_unit_of_its_name() -> None:
    meters = Meters()
    meters.event(Event("eviction", "ok", 1.0, "shop", "hash", sent_count=2))
    text = meters.looked(None, 0, 0, {}, 0).decode()
    assert "redismem_resent_total 1.0" in text
    assert "_created" not in text
    for unit in ("seconds", "messages", "tokens", "sessions"):
        said = [line for line in text.splitlines() if re.match(rf"# HELP redismem_\w*{unit} ", line)]
        assert said
        assert [line for line in said if unit not in line.split(" ", 3)[3].lower()] == []


def test_the_labels_are_of_closed_sets() -> None:
    meters = Meters()
    for outcome in (*OUTCOMES, "canary"):
        meters.event(Event("canary", outcome, 1.0, "shop", "hash"))
    text = meters.looked(None, 0, 0, {}, 0).decode()
    assert "canary" not in text
    assert 'op="other"' in text


def test_what_a_process_serves_while_redis_is_away_is_made_and_not_failed() -> None:
    meters = Meters()
    for outcome in ("ok", "degraded", "FallbackFull"):
        meters.event(Event("append", outcome, 1.0, "shop", "hash"))
    worked = meters.worked()
    assert (sum(worked.turns), worked.failed_count) == (2, 1)
    text = meters.looked(None, 0, 0, {}, 0).decode()
    assert all(f'op="append",outcome="{outcome}"' in text for outcome in ("degraded", "FallbackFull"))


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/v1/sessions/abc", "/v1/sessions/{session_id}"),
        ("/v1/sessions/a%2Fb/messages", "/v1/sessions/{session_id}/messages"),
        ("/v1/sessions/abc/secret", "other"),
        ("/v1/sessions/abc/messages/x", "other"),
        ("/v1/sessions", "/v1/sessions"),
        ("/x/abc", "other"),
    ],
)
def test_a_route_is_one_of_few(path: str, route: str) -> None:
    assert route_of(path) == route


def queries(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def exposed() -> dict[str, set[str]]:
    """Every sample there is, with its labels."""
    meters = Meters()
    found: dict[str, set[str]] = {}
    for metric in meters.registry.collect():
        suffixes = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}.get(metric.type, ("",))
        collector = meters.registry._names_to_collectors[metric.name]
        labels = set(getattr(collector, "_labelnames", getattr(collector, "_labels", ())))
        for suffix in suffixes:
            found[metric.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def faults(asked: list[str]) -> Iterator[str]:
    known = exposed()
    used: set[str] = set()
    for query in asked:
        names = set(re.findall(r"\bredismem_\w+", query))
        used |= names
        yield from (f"{name} is not measured" for name in names - known.keys())
        labels = set(re.findall(r"(\w+)=?[=!]~?\"", query))
        labels |= {word.strip() for group in re.findall(r"by \((.*?)\)", query) for word in group.split(",")}
        have = set.union(set(), *(known.get(name, set()) for name in names))
        yield from (f"{label} is no label of {names}" for label in labels - have)
    families = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in used}
    for name in known:
        family = re.sub(r"_(bucket|count|sum|total)$", "", name)
        if family not in families:
            yield f"{family} is in no panel"


def test_the_dashboard_asks_for_what_there_is_and_for_all_of_it() -> None:
    assert list(faults(queries(DASHBOARD))) == []


def test_a_dashboard_that_asks_for_something_else_is_noticed() -> None:
    asked = queries(DASHBOARD)
    assert list(faults([*asked, "redismem_nothing"])) == ["redismem_nothing is not measured"]
    assert [each for each in faults([*asked, 'redismem_streams{op="x"}']) if "op is no label" in each]
    assert "redismem_streams is in no panel" in list(faults([each for each in asked if "streams" not in each]))


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
    """A provider that is set up: the API's own way, as its SDK would do it, but forgotten after the test."""
    tracer = Recording()

    class Provider(trace.TracerProvider):
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return tracer

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", Provider())
    return tracer


async def test_who_wants_spans_gets_one_a_call(recording: Recording, memory: Memory, store: Any) -> None:
    assert spans.is_wanted()
    async with store.memory(memory.store.keys.namespace, on_event=listener(Meters())) as watched:
        await watched.session("canary").append({"role": "user", "content": "canary"})
    span = next(span for span in recording.spans if span.name == "append redis")
    assert (span.attributes["db.system.name"], span.attributes["db.operation.name"]) == ("redis", "append")
    spans.event_span(Event("append", "StoreUnavailable", 1.0, "shop"))
    assert recording.spans[-1].attributes["error.type"] == "StoreUnavailable"
    assert recording.spans[-1].status is trace.StatusCode.ERROR
    assert "canary" not in str([span.attributes for span in recording.spans])


def test_who_has_set_up_nothing_pays_nothing() -> None:
    meters = Meters()
    assert listener(meters) == meters.event
