"""The list of conversations: its search, and the previews of newest messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.checks import until
from support.http_service import PATIENT, RunningService, numbered_message, run_service

from redismem import Memory
from redismem.web import previews, searching
from redismem.web.access import Access, new_key
from redismem.web.http.queries import is_search
from redismem.web.service import Limits, Service


async def test_conversations_are_found_by_a_part_of_their_id(
    http: RunningService, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "_PAGE_COUNT", 3)
    monkeypatch.setattr(searching, "_PAGES_COUNT", 2)
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
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0KGgo" * 2_000}}
    text = {"type": "text", "text": "Is this"}
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"town": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}
    await memory.session("parts").append({"role": "user", "content": [text, image, text | {"text": "broken?"}]})
    await memory.session("picture").append({"role": "user", "content": [image]})
    await memory.session("gemini").append({"role": "user", "parts": [{"text": "Guten Tag"}]})
    await memory.session("claude").append(
        {"role": "user", "content": [text | {"text": "Weather in Rome?"}]},
        *({"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}),
    )
    rows = (await http.ask("GET", "/v1/sessions", params={"newest": True})).json()["sessions"]
    newest = {row["session_id"]: row["newest"] for row in rows}
    assert newest["chat"] == {"seq": 1, "role": "user", "text": "message of mine"}
    assert newest["calls"] == {"seq": 1, "role": "assistant", "text": ""}
    assert len(newest["long"]["text"]) == 160
    assert "\n" not in newest["long"]["text"]
    assert newest["state-alone"] is None
    assert newest["parts"]["text"] == "Is this [image_url] broken?"
    assert (newest["claude"]["seq"], newest["claude"]["text"]) == (1, "Weather in Rome?"), "a result is no user's words"
    assert newest["gemini"]["text"] == "Guten Tag"
    assert newest["picture"]["text"] == "[image_url]"
    plain = (await http.ask("GET", "/v1/sessions")).json()["sessions"]
    assert all(set(row) == {"session_id", "active_ms"} for row in plain)


async def list_ids(http: RunningService, **query: Any) -> tuple[list[str], str | None]:
    page = (await http.ask("GET", "/v1/sessions", params=query)).json()
    return [row["session_id"] for row in page["sessions"]], page["cursor"]


async def test_a_session_that_has_ended_is_never_listed(http: RunningService, memory: Memory) -> None:
    await asyncio.gather(*(memory.session(f"s-{number}").merge({"a": 1}) for number in range(20)))
    ids, _ = await list_ids(http)
    await http.ask("DELETE", f"/v1/sessions/{ids[3]}")
    assert (await list_ids(http))[0] == [*ids[:3], *ids[4:]]
    assert ids[3] not in (await list_ids(http, contains=ids[3].upper()))[0]


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
    monkeypatch.setattr(previews, "_PREVIEWS_TOGETHER", 2)
    monkeypatch.setattr(previews, "_PREVIEW_TOKENS", 100)
    for number in range(5):
        await memory.session(f"s-{number}").append(numbered_message("x" * 1_000))
    rows = (await http.ask("GET", "/v1/sessions", params={"newest": True})).json()["sessions"]
    assert [row["newest"] is not None for row in rows] == [True, True, False, False, False]


class Blocked:
    """Replaces `searching.search`: those of one namespace wait until they are released."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.waiting_count = 0
        self.released = asyncio.Event()

    async def search(self, memory: Memory) -> searching.Rows:
        if memory.store.keys.namespace == self.namespace:
            self.waiting_count += 1
            try:
                await self.released.wait()
            finally:
                self.waiting_count -= 1
        return [], None


@pytest.fixture
def limits() -> Limits:
    return PATIENT


@pytest.fixture
async def two_tenants(
    store: Any, namespace: str, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RunningService, list[dict[str, str]], Blocked]]:
    """A service of two tenants, a header for each, and the blocked pages of the first."""
    keys = [new_key(name, f"{namespace}-{name}", ("read",)) for name in ("shop", "bank")]
    access = Access.of("\n".join(line for _, line in keys))
    blocked = Blocked(access.namespaces[0])

    async def search(memory: Memory, *_: Any) -> searching.Rows:
        return await blocked.search(memory)

    monkeypatch.setattr(searching, "search", search)
    async with contextlib.AsyncExitStack() as stack:
        memories = {name: await stack.enter_async_context(store.memory(name)) for name in access.namespaces}
        http = await stack.enter_async_context(run_service(Service(memories, access, limits)))
        yield http, [{"Authorization": f"Bearer {key}"} for key, _ in keys], blocked


async def test_few_lists_of_a_namespace_run_at_once_and_others_do_not_wait(
    two_tenants: tuple[RunningService, list[dict[str, str]], Blocked],
) -> None:
    http, (shop, bank), blocked = two_tenants
    lists = [asyncio.create_task(http.ask("GET", "/v1/sessions", headers=shop)) for _ in range(10)]
    await until(lambda: blocked.waiting_count == PATIENT.searches_count)
    assert (await http.ask("GET", "/v1/sessions", headers=bank)).status_code == 200
    assert (await http.ask("GET", "/v1/sessions/s/context", headers=shop)).status_code == 200
    assert blocked.waiting_count == PATIENT.searches_count
    blocked.released.set()
    assert {answer.status_code for answer in await asyncio.gather(*lists)} == {200}


@pytest.mark.parametrize("limits", [Limits(request_s=0.3, idle_s=60)])
async def test_a_list_that_waits_has_its_deadline_and_frees_its_place(
    two_tenants: tuple[RunningService, list[dict[str, str]], Blocked],
) -> None:
    http, (shop, _), blocked = two_tenants
    answers = await asyncio.gather(*(http.ask("GET", "/v1/sessions", headers=shop) for _ in range(9)))
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "too_late")}
    semaphore = http.service.searching(http.service.access.caller(shop["Authorization"].encode()))
    assert (blocked.waiting_count, semaphore.locked()) == (0, False)


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/v1/sessions", b"", True),
        ("HEAD", "/v1/sessions", b"contains=x", True),
        ("GET", "/v1/projects/apollo/tasks", b"at=2026-01-01T00:00:00Z", True),
        ("GET", "/v1/sessions/s/messages", b"include_originals=true", True),
        ("GET", "/v1/sessions/s/messages", b"", False),
        ("GET", "/v1/sessions/s/context", b"", False),
        ("POST", "/v1/search", b"", True),
        ("POST", "/v1/sessions", b"", False),
        ("POST", "/v1/projects/apollo/tasks/t/status", b"", False),
    ],
)
def test_a_turn_is_no_search(method: str, path: str, query: bytes, expected: bool) -> None:
    assert is_search(method, path, query) is expected


async def test_a_search_may_be_of_one_owner(memory: Memory) -> None:
    for owner in ("ann", "bob"):
        for number in range(3):
            text = {"role": "user", "content": f"Where is parcel {number}?"}
            await memory.session(f"{owner}-{number}", owner=owner).append(text)
    for filters in (
        searching.Filters(owner="ann"),
        searching.Filters("-", owner="ann"),
        searching.Filters(text="parcels", owner="ann"),
    ):
        found, cursor = [], None
        while True:
            rows, cursor = await searching.search(memory, filters, 2, cursor)
            found += [row["session_id"] for row in rows]
            if cursor is None:
                break
        assert sorted(found) == ["ann-0", "ann-1", "ann-2"]
