"""The search of conversations: ids, texts, times and failing summaries, each bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from support.clock import Clock
from support.http_service import RunningService, serve_memory
from support.stores import Store

from redismem import Memory, Settings
from redismem.errors import ModelFailed
from redismem.models import open_extractive
from redismem.web import searching
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker


class Refusing:
    """A strategy that refuses every summary for good."""

    async def compact(self, messages: Any, previous: str | None) -> Any:
        raise ModelFailed("400", reason="openai answered 400", permanent=True)


async def search(http: RunningService, **conditions: Any) -> dict[str, Any]:
    answer = await http.ask("POST", "/v1/search", json=conditions)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def ids(http: RunningService, **conditions: Any) -> list[str]:
    return [row["session_id"] for row in (await search(http, **conditions))["sessions"]]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_texts_are_found_in_the_window_and_behind_summaries(memory: Memory) -> None:
    old = memory.session("shop-1")
    await old.append(user("My blue kettles leak, order O-4711."), *(user(f"number {n}") for n in range(30)))
    await Worker(memory.store, Summarize(open_extractive())).drain()
    await memory.session("shop-2").append(user("Where is the kettle?"), user("Thanks"))
    await memory.session("other").append({"role": "user", "content": [{"type": "text", "text": "A KETTLE, in blue"}]})
    async with serve_memory(memory) as http:
        rows = (await search(http, text="blue kettle"))["sessions"]
        assert {row["session_id"]: row["match"]["seq"] for row in rows} == {"other": 1, "shop-1": 1}
        assert rows[-1]["match"] == {"seq": 1, "role": "user", "text": "My blue kettles leak, order O-4711."}
        assert sorted(await ids(http, text="kettles")) == ["other", "shop-1", "shop-2"]
        assert sorted(await ids(http, text="kettles", contains="SHOP")) == ["shop-1", "shop-2"]
        assert await ids(http, text="O-4711") == ["shop-1"]
        assert await ids(http, text="no such thing at all") == []
        assert await ids(http, text="the") == []
        # Cleared is gone.
        await old.clear()
        assert await ids(http, text="O-4711") == []


async def test_filters_by_time_and_by_failing(store: Store, namespace: str, clock: Clock) -> None:
    begin_ms = clock.now_ms

    def moment(hours: float) -> str:
        return datetime.fromtimestamp(begin_ms / 1000 + 3_600 * hours, UTC).isoformat()

    async with store.memory(namespace, Settings(extractive_after_s=0)) as memory:
        for hours, name in enumerate(("first", "second", "third")):
            clock.now_ms = begin_ms + hours * 3_600_000
            await memory.session(name).append(*(user(f"number {number}") for number in range(12)))
        await Worker(memory.store, Refusing()).attend("second")
        async with serve_memory(memory) as http:
            assert await ids(http) == ["third", "second", "first"]
            assert await ids(http, active_since=moment(0.5)) == ["third", "second"]
            assert await ids(http, active_before=moment(1.5)) == ["second", "first"]
            assert await ids(http, active_before="1969-12-31T00:00:00Z") == []
            assert await ids(http, active_since=moment(0.5), active_before=moment(1.5), text="number") == ["second"]
            failing = await search(http, failing=True, newest=True)
            (row,) = failing["sessions"]
            assert (row["session_id"], row["failing"], row["last_text"]) == (
                "second",
                "openai answered 400",
                "number 11",
            )
            listed = (await http.ask("GET", "/v1/sessions?newest=true")).json()["sessions"]
            assert {each["session_id"]: (each["failing"], each["dead"]) for each in listed} == {
                "first": (None, False),
                "second": ("openai answered 400", True),
                "third": (None, False),
            }
            assert await ids(http, failing=True, text="3") == ["second"]
            assert await ids(http, failing=True, active_before=moment(0.5)) == []
            for wrong in (
                {"active_since": "yesterday"},
                {"active_since": "2026-01-01T00:00:00"},
                {"tetx": "x"},
                {"limit": 0},
            ):
                assert (await http.ask("POST", "/v1/search", json=wrong)).json()["code"] == "invalid"
            assert (await http.ask("POST", "/v1/search", json={"cursor": "?"})).json()["code"] == "bad_request"


async def test_a_search_in_texts_looks_at_few_sessions_and_goes_on(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_TEXTS_COUNT", 3)
    monkeypatch.setattr(searching, "_TEXT_PAGES_COUNT", 2)
    for number in range(14):
        await memory.session(f"s-{number:02}").append(user("a kettle" if number % 2 else "a cup"))
    async with serve_memory(memory) as http:
        calls_count = memory.store.transport.calls_count
        page = await search(http, text="kettle")
        assert len(page["sessions"]) == 3
        assert memory.store.transport.calls_count - calls_count <= 20
        found: list[str] = []
        cursor = None
        for _ in range(20):
            page = await search(http, text="kettle", limit=2, cursor=cursor)
            found += [row["session_id"] for row in page["sessions"]]
            cursor = page["cursor"]
            if cursor is None:
                break
        assert cursor is None
        assert sorted(found) == [f"s-{number:02}" for number in range(1, 14, 2)]
        # A hostile text costs linear time, and a hostile query is bounded.
        await memory.session("long").append(user("kettle " + "x" * 1_000_000))
        assert await ids(http, text="kettle", contains="long") == ["long"]
        assert (await http.ask("POST", "/v1/search", json={"text": "x" * 1_001})).json()["code"] == "invalid"
