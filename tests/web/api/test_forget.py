"""An owner over HTTP, and the removal of all sessions of a person."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_service import ASKED, RunningService, numbered_message, read_events, serve_chat

from redismem import ForgetIncomplete, ForgottenSessions, Memory
from redismem.web.http.problems import to_problem


async def begin(http: RunningService, session_id: str, owner: str | None) -> None:
    query = "" if owner is None else f"?owner={owner}"
    posted = await http.ask("POST", f"/v1/sessions/{session_id}/messages{query}", json=numbered_message(1))
    assert posted.status_code == 201


async def test_an_append_or_state_change_that_begins_a_session_gives_it_an_owner(http: RunningService) -> None:
    for session_id, query in (("plain", "?owner=ann"), ("read", "?read=true&owner=ann%20%C3%BC")):
        await http.ask("POST", f"/v1/sessions/{session_id}/messages{query}", json=numbered_message(1))
    await http.ask("PATCH", "/v1/sessions/state/state?owner=bob", json={"plan": 1})
    await begin(http, "none", None)
    owners = [
        (await http.ask("GET", f"/v1/sessions/{name}")).json()["owner"] for name in ("plain", "read", "state", "none")
    ]
    assert owners == ["ann", "ann ü", "bob", None]


async def test_a_chat_that_begins_a_session_gives_it_an_owner(memory: Memory) -> None:
    async with serve_chat(memory, None) as http:
        for more in ({"owner": "ann"}, {}):
            await read_events(http.client, "/api/chat", json=ASKED | more)
        assert (await memory.session("s").info()).owner == "ann"
        for wrong in ("", " ", "a\n", 7):
            refused = await http.ask("POST", "/api/chat", json={"session_id": "t", "message": "x", "owner": wrong})
            assert refused.status_code in (400, 422)
        assert not await memory.session("t").exists()
        assert (await http.ask("DELETE", "/v1/sessions?owner=ann")).json()["session_count"] == 1
    assert await memory.count() == 0


async def test_an_invalid_owner_is_refused(http: RunningService) -> None:
    for query in ["?owner=", "?owner=%20", "?owner=a%0A", "?owner=" + "x" * 257]:
        answer = await http.ask("POST", f"/v1/sessions/s/messages{query}", json=numbered_message(1))
        assert answer.status_code == 400, query
        assert (await http.ask("GET", "/v1/sessions/s")).status_code == 404


@pytest.mark.parametrize("query", ["?owner=ann", "?prefix=a-"])
async def test_all_sessions_of_a_person_are_removed(http: RunningService, query: str) -> None:
    for session_id in ("a-1", "a-2"):
        await begin(http, session_id, "ann")
    await begin(http, "b-1", "bob")
    answer = await http.ask("DELETE", f"/v1/sessions{query}")
    document = answer.json()
    assert answer.status_code == 200
    assert document.pop("proven_ms") > 0
    counts = ("quarantined_count", "unattributed_count", "record_count", "item_count", "rate_count")
    assert document == {"session_count": 2, **dict.fromkeys(counts, 0), "left_items": [], "not_searched": []}
    listed = (await http.ask("GET", "/v1/sessions")).json()["sessions"]
    assert [row["session_id"] for row in listed] == ["b-1"]


async def test_an_empty_variable_forgets_nobody(http: RunningService) -> None:
    await begin(http, "a-1", "ann")
    for query in ["", "?owner=", "?prefix=", "?owner=a&prefix=b", "?prefix=%20", "?name=ann"]:
        assert (await http.ask("DELETE", f"/v1/sessions{query}")).status_code in (400, 422), query
        assert (await http.ask("GET", "/v1/sessions/a-1")).status_code == 200


async def test_what_was_removed_before_a_failure_is_in_the_answer(
    http: RunningService, memory: Memory, monkeypatch: Any
) -> None:
    async def fail(**_: Any) -> None:
        raise ForgetIncomplete("stopped: Redis is down", forgotten=ForgottenSessions(4, 1))

    monkeypatch.setattr(type(memory), "forget", lambda self, **named: fail(**named))
    answer = await http.ask("DELETE", "/v1/sessions?owner=ann")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    document = answer.json()
    assert (document["code"], document["session_count"], document["quarantined_count"]) == ("forget_incomplete", 4, 1)
    assert "Redis" not in document.get("detail", "")
    more = {"session_count": 0, "quarantined_count": 0, "record_count": 0}
    assert to_problem(ForgetIncomplete("x")).more == more
