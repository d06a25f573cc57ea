"""The list of conversations: its search, and what it shows of each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.checks import until
from support.http_service import PATIENT, RunningService, numbered_message, run_service

from redismem import Memory
from redismem.web import searching
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


async def test_the_list_shows_owners_titles_and_last_messages(http: RunningService, memory: Memory) -> None:
    await memory.session("chat", owner="ann").append(
        numbered_message("of mine"), {"role": "assistant", "content": "so"}
    )
    await memory.session("named", owner="bob").append(numbered_message("x\n " * 500), title="Kettles")
    await memory.session("state-alone").merge({"size": 1})
    rows = (await http.ask("GET", "/v1/sessions", params={"newest": True})).json()["sessions"]
    told = {row["session_id"]: row for row in rows}
    names = ("owner", "title", "last_role", "last_text")
    assert [told["chat"][name] for name in names] == ["ann", "message of mine", "assistant", "so"]
    assert [told["named"][name] for name in names[:3]] == ["bob", "Kettles", "user"]
    assert len(told["named"]["last_text"]) == 160
    assert "\n" not in told["named"]["last_text"]
    assert [told["state-alone"][name] for name in names] == [None, None, None, ""]
    plain = (await http.ask("GET", "/v1/sessions")).json()["sessions"]
    assert all(set(row) == {"session_id", "active_ms"} for row in plain)
    assert (await http.ask("GET", "/v1/sessions/named")).json()["title"] == "Kettles"
    assert (await http.ask("GET", "/v1/sessions/chat")).json()["title"] is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("KETTLE", ["named"]), ("bo", ["named"]), ("mine an", ["chat"]), ("AM", ["named"]), ("so", [])],
)
async def test_conversations_are_found_by_title_owner_and_id(
    http: RunningService, memory: Memory, name: str, expected: list[str]
) -> None:
    await memory.session("chat", owner="ann").append(
        numbered_message("of mine"), {"role": "assistant", "content": "so"}
    )
    await memory.session("named", owner="bob").append(numbered_message("x"), title="Kettles")
    rows = (await http.ask("POST", "/v1/search", json={"name": name, "newest": True})).json()["sessions"]
    assert [row["session_id"] for row in rows] == expected
    rows = (await http.ask("POST", "/v1/search", json={"name": name, "owner": "ann"})).json()["sessions"]
    assert [row["session_id"] for row in rows] == [each for each in expected if each == "chat"]


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
