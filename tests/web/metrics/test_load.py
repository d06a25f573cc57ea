"""The load of a server over the last minutes, and the list of conversations."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks import until
from support.http_service import RunningService, numbered_message

from redismem.events import Event
from redismem.web.metrics import load
from redismem.web.metrics.load import Load, quantile_ms
from redismem.web.metrics.prometheus import Meters

BOUNDS_S = (0.001, 0.01, 0.1)


def turn(outcome: str = "ok", duration_ms: float = 1.5, op: str = "append_and_read") -> Event:
    return Event(op, outcome, duration_ms, "shop")


async def test_a_slot_counts_the_work_between_two_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "SLOT_S", 0.001)
    meters = Meters()
    meters.event(turn())
    load_now = Load(meters)
    running = asyncio.create_task(load_now.run())
    for event in (turn(), turn(duration_ms=70), turn("StoreUnavailable"), turn(op="read"), turn(op="eviction")):
        meters.event(event)
    document = load_now.document()
    assert document["whole"]["turns_count"] == 2
    assert document["whole"]["failed_count"] == 1
    assert document["whole"]["evictions_count"] == 1
    assert 1 <= document["whole"]["p50_ms"] <= 2.5
    assert 50 <= document["whole"]["p99_ms"] <= 100
    slots = await until(lambda: load_now.document()["slots"])
    assert sum(slot["turns_count"] for slot in slots) == 2
    assert load_now.document()["whole"]["turns_count"] == 2
    await until(lambda: len(load_now.document()["slots"]) == 120)
    await until(lambda: load_now.document()["whole"]["turns_count"] == 0)
    assert load_now.document()["whole"]["p99_ms"] is None
    running.cancel()


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0.01, 1))
def test_a_quantile_lies_in_the_bucket_of_its_rank(counts: list[int], part: float) -> None:
    quantile = quantile_ms(BOUNDS_S, counts, part)
    if sum(counts) == 0:
        assert quantile is None
        return
    assert quantile is not None
    buckets = [number for number, count in enumerate(counts) for _ in range(count)]
    bucket = buckets[min(len(buckets) - 1, max(0, -int(-(part * len(buckets)) // 1) - 1))]
    low = 0 if bucket == 0 else BOUNDS_S[min(bucket, 3) - 1] * 1000
    high = BOUNDS_S[min(bucket, 2)] * 1000
    assert low - 0.01 <= quantile <= high + 0.01


async def test_the_load_is_served(http: RunningService) -> None:
    await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
    document = (await http.ask("GET", "/v1/load")).json()
    assert (document["store"], document["away_since_ms"]) == ("closed", None)
    assert document["whole"]["took_ms"] >= 0
