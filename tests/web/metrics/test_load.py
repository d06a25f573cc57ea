"""The load of a server over the last minutes, and the list of conversations."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checks import until
from support.http_service import RunningService, numbered_message

from redismem import Memory
from redismem.events import Event
from redismem.web.api import listing
from redismem.web.metrics import load
from redismem.web.metrics.load import Load, quantile_ms
from redismem.web.metrics.prometheus import Meters

BOUNDS_S = (0.001, 0.01, 0.1)


def turn(outcome: str = "ok", duration_ms: float = 1.5, op: str = "append_and_read") -> Event:
    return Event(op, outcome, duration_ms, "shop")


async def test_a_slot_counts_the_work_between_two_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "SLOT_S", 0.01)
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


async def test_conversations_are_found_by_a_part_of_their_id(
    http: RunningService, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PAGE_COUNT", 3)
    monkeypatch.setattr(listing, "_PAGES_COUNT", 2)
    for number in range(10):
        await memory.session(f"Shelf/{number}").append(numbered_message(number))
    session_ids: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        query = {"contains": "SHELF/", "limit": 100} | ({"cursor": cursor} if cursor else {})
        page = (await http.ask("GET", "/v1/sessions", params=query)).json()
        assert len(page["sessions"]) <= 6
        session_ids += [row["session_id"] for row in page["sessions"]]
        cursor = page["cursor"]
    assert sorted(session_ids) == [f"Shelf/{number}" for number in range(10)]
    empty_page = (await http.ask("GET", "/v1/sessions", params={"contains": "unknown"})).json()
    assert empty_page["sessions"] == []


async def test_the_list_shows_the_newest_message(http: RunningService, memory: Memory) -> None:
    call: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
    await memory.session("chat").append(numbered_message("of mine"), {"role": "assistant", "content": "an answer"})
    await memory.session("calls").append(call)
    await memory.session("long").append(numbered_message("x\n " * 500))
    await memory.session("state-alone").merge({"size": 1})
    rows = (await http.ask("GET", "/v1/sessions", params={"newest": True})).json()["sessions"]
    newest = {row["session_id"]: row["newest"] for row in rows}
    assert newest["chat"] == {"seq": 1, "role": "user", "text": "message of mine"}
    assert newest["calls"] == {"seq": 1, "role": "assistant", "text": ""}
    assert len(newest["long"]["text"]) == 160
    assert "\n" not in newest["long"]["text"]
    assert newest["state-alone"] is None
    plain = (await http.ask("GET", "/v1/sessions")).json()["sessions"]
    assert all(set(row) == {"session_id", "active_ms"} for row in plain)
