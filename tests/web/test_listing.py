"""The list of conversations: search, previews, and copies that bound its cost with many shards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, serve_memory

from redismem import Memory, Settings
from redismem.events import Event
from redismem.info import SessionEntry
from redismem.store.sessions import cursor_after
from redismem.web import listing


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


@pytest.fixture
def events() -> list[Event]:
    """The events of the memory of `sharded`."""
    return []


@pytest.fixture
async def sharded(
    store: Any, namespace: str, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningService]:
    """A service of 20 sessions in 256 shards, whose copies last for the whole test."""
    monkeypatch.setattr(listing, "_COPY_S", 3_600)
    async with store.memory(namespace, Settings(shards=256), on_event=events.append) as memory:
        await asyncio.gather(*(memory.session(f"s-{number}").merge({"a": 1}) for number in range(20)))
        async with serve_memory(memory) as running:
            yield running


async def list_ids(http: RunningService, **query: Any) -> tuple[list[str], str | None]:
    page = (await http.ask("GET", "/v1/sessions", params=query)).json()
    return [row["session_id"] for row in page["sessions"]], page["cursor"]


async def test_with_many_shards_pages_come_from_one_reading(sharded: RunningService, events: list[Event]) -> None:
    expected, _ = await list_ids(sharded)
    events.clear()
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        ids, cursor = await list_ids(sharded, limit=3, **({"cursor": cursor} if cursor else {}))
        seen += ids
    assert seen == expected
    assert len(seen) == 20
    assert len(events) == 7, "one call per page asks whether its sessions are still there"


async def test_many_clients_cause_one_reading(sharded: RunningService, events: list[Event]) -> None:
    events.clear()
    pages = await asyncio.gather(*(list_ids(sharded, limit=5) for _ in range(20)))
    assert all(page == pages[0] for page in pages)
    assert len(events) == 20 + 3, "one reading: the time, and two round trips of 256 commands"


async def test_a_session_that_has_ended_is_never_listed(sharded: RunningService) -> None:
    ids, _ = await list_ids(sharded)
    await sharded.ask("DELETE", f"/v1/sessions/{ids[3]}")
    assert (await list_ids(sharded))[0] == [*ids[:3], *ids[4:]]
    assert (await list_ids(sharded, contains=ids[3].upper()))[0] == [each for each in ids if ids[3] in each][1:]


async def test_a_copy_is_forgotten(sharded: RunningService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_COPY_S", 0)
    await list_ids(sharded)
    await sharded.ask("POST", "/v1/sessions/new/messages", json=numbered_message(1))
    assert "new" in (await list_ids(sharded))[0]


async def test_few_copies_are_held_however_many_cursors_are_forged(sharded: RunningService) -> None:
    for number in range(30):
        entry = SessionEntry(f"s-{number}", 1 << 50)
        ids, _ = await list_ids(sharded, cursor=cursor_after(entry))
        assert len(ids) == 20
    held = sharded.service.listing(sharded.service.access.caller(None))
    assert len(held._copies) == 8


async def test_a_search_continues_behind_its_last_match(http: RunningService, memory: Memory) -> None:
    for number in range(7):
        await memory.session(f"shelf/{number}").merge({"a": 1})
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        ids, cursor = await list_ids(http, contains="shelf", limit=3, **({"cursor": cursor} if cursor else {}))
        seen += ids
    assert sorted(seen) == [f"shelf/{number}" for number in range(7)]


async def test_previews_end_when_the_messages_read_were_large(
    http: RunningService, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PREVIEWS_TOGETHER", 2)
    monkeypatch.setattr(listing, "_PREVIEW_TOKENS", 100)
    for number in range(5):
        await memory.session(f"s-{number}").append(numbered_message("x" * 1_000))
    rows = (await http.ask("GET", "/v1/sessions", params={"newest": True})).json()["sessions"]
    assert [row["newest"] is not None for row in rows] == [True, True, False, False, False]
