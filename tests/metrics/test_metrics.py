"""The metrics of an app without the server: of several memories, async or blocking, embedded too, and in an outage."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.stores import PATIENCE, short_deadlines

import redismem.blocking
from redismem import Memory, Settings
from redismem.metrics import Metrics

Samples = dict[tuple[str, str, str], float]


def read(text: bytes) -> Samples:
    """Return the samples by name, namespace, and op or queue."""
    found = {}
    for sample in (sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples):
        labels = sample.labels
        found[sample.name, labels.get("namespace", ""), labels.get("op", labels.get("queue", ""))] = sample.value
    return found


def user(count: int) -> list[Any]:
    return [{"role": "user", "content": "x"} for _ in range(count)]


async def test_collect_counts_the_calls_and_queues_of_each_memory(store: Any, namespace: str) -> None:
    metrics, other = Metrics(), f"{namespace}-2"
    async with (
        store.memory(namespace, Settings(max_sessions=7), on_event=metrics.event) as one,
        store.memory(other, on_event=metrics.event) as two,
    ):
        await one.session("a").append(*user(12))
        await two.session("b").append(*user(1))
        seen = read(await metrics.collect(one, two))
        assert seen["redismem_operation_seconds_count", "", "append"] == 2
        assert seen["redismem_queue_sessions", namespace, "overdue"] == 1
        assert seen["redismem_queue_sessions", other, "overdue"] == 0
        assert seen["redismem_sessions_limit", namespace, ""] == 7
        assert seen["redismem_last_tick_age_seconds", other, ""] == float("inf")
        assert seen["redismem_degraded", "", ""] == 0
        assert not any(name == other for _, name, _ in read(await metrics.collect(one)))


@pytest.mark.parametrize("url", ["real", "memory://"])
def test_collect_blocking_does_the_same(url: str, request: pytest.FixtureRequest, namespace: str) -> None:
    metrics = Metrics()
    address = request.getfixturevalue("redis_server").url if url == "real" else url
    with redismem.blocking.Memory.connect(address, namespace=namespace, on_event=metrics.event) as memory:
        memory.session("a").append(*user(12))
        seen = read(metrics.collect_blocking(memory))
    assert seen["redismem_queue_sessions", namespace, "overdue"] == 1
    assert seen["redismem_operation_seconds_count", "", "append"] == 1


async def test_in_an_outage_the_queues_keep_their_last_values(proxy: Any, namespace: str) -> None:
    metrics = Metrics()
    options: Any = {"namespace": namespace, "settings": Settings(**PATIENCE), "on_event": metrics.event}
    async with Memory.connect(proxy.url, **options) as memory:
        await memory.session("a").append(*user(12))
        assert read(await metrics.collect(memory))["redismem_degraded", "", ""] == 0
        await proxy.refuse()
        with short_deadlines(memory):
            seen = read(await metrics.collect(memory))
    assert (seen["redismem_degraded", "", ""], seen["redismem_away_seconds", "", ""] > 0) == (1, True)
    assert seen["redismem_queue_sessions", namespace, "overdue"] == 1
