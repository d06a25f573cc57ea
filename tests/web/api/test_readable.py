"""A damaged session over HTTP: reads say the fault, show what can be read, and write nothing."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, serve_memory
from support.stored import read_namespace

from redismem import Memory
from redismem.web.access import Access

PATH = "/v1/sessions/user-42"
KEY = "a-key-of-scope-read"
ROUTES = ("", "/messages", "/context", "/context/parts", "/context/request", "/state")


async def break_message(memory: Memory, raw: Any) -> None:
    await memory.session("user-42").append(*map(numbered_message, range(1, 4)))
    await raw.lset(memory.store.keys.session("user-42").messages, 1, b"\xc1")


async def test_reads_of_a_broken_session_say_the_fault_and_write_nothing(
    memory: Memory, raw: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await break_message(memory, raw)
    namespace = memory.store.keys.namespace
    before = await read_namespace(raw, namespace)
    access = Access.of(f"reader {namespace} read {sha256(KEY.encode()).hexdigest()}")
    async with serve_memory(memory, access=access) as http:
        http.client.headers["Authorization"] = f"Bearer {KEY}"
        answers = {route: await http.ask("GET", PATH + route) for route in ROUTES}
        parts = (await http.ask("GET", f"{PATH}/readable")).json()
    assert {route: answer.status_code for route, answer in answers.items()} == {
        **dict.fromkeys(ROUTES, 500),
        "": 200,
        "/state": 200,
    }
    assert "GET /v1/sessions/{session_id}/messages failed with CorruptSession" in caplog.messages
    told = answers["/messages"].json()
    assert (told["code"], told["detail"]) == ("unreadable", "a message cannot be decoded")
    assert parts["faults"] == ["1 of 3 messages cannot be read"]
    assert [each["message"]["content"] for each in parts["messages"]] == ["message 1", "message 3"]
    assert await read_namespace(raw, namespace) == before


@pytest.mark.parametrize("damage", ["no state", "no owner", "a foreign state"])
async def test_what_can_be_read_is_shown_to_no_other_owner(
    http: RunningService, memory: Memory, raw: Any, damage: str
) -> None:
    await memory.session("user-42", owner="anna").append(numbered_message(1))
    state = memory.store.keys.session("user-42").state
    assert (await http.ask("GET", f"{PATH}/readable?owner=anna")).status_code == 200
    if damage == "no owner":
        await raw.hdel(state, "owner", "counters")
    else:
        await raw.delete(state)
    if damage == "a foreign state":
        await raw.set(state, "x")
    for owner in ("bob", "anna"):
        refused = await http.ask("GET", f"{PATH}/readable?owner={owner}")
        assert (refused.status_code, refused.json()["code"]) == (403, "other_owner"), "nobody can tell whose it is"
    assert (await http.ask("GET", f"{PATH}/readable")).json()["messages"][0]["message"]["content"] == "message 1"


async def test_the_chat_and_an_append_go_on(http: RunningService, memory: Memory, raw: Any) -> None:
    await break_message(memory, raw)
    answer = await http.ask("POST", f"{PATH}/messages?read=true&owner=ann", json=numbered_message(4))
    assert answer.status_code == 403, "it was begun without an owner"
    answer = await http.ask("POST", f"{PATH}/messages?read=true", json=numbered_message(4))
    assert (answer.status_code, answer.json()["last_seq"]) == (201, 1)
    assert (await http.ask("GET", f"{PATH}/readable")).json()["faults"] == []
    assert (await http.ask("GET", "/v1/sessions/none/readable")).json()["code"] == "session_not_found"
