"""Quarantine over HTTP: listed, shown, restored and dropped by operators alone, and its texts only for readers."""

from __future__ import annotations

from typing import Any

from support.http_service import RunningService, numbered_message, serve_memory
from support.quarantined import move_record, move_session

from redismem import Memory
from redismem.record import Change
from redismem.web.access import Access, new_key

PATH = "/v1/quarantine"
PUT_MS = 1_700_000_000_000
NAMED = {"id": "user/42", "put_ms": PUT_MS}


async def put_aside(memory: Memory, put_ms: int = PUT_MS) -> None:
    await memory.session("user/42", owner="anna").append(*map(numbered_message, range(1, 4)))
    assert await move_session(memory.store, "user/42", put_ms)


async def entries(http: RunningService) -> list[dict[str, Any]]:
    document = (await http.ask("GET", PATH)).json()
    assert document["cursor"] is None
    found: list[dict[str, Any]] = document["entries"]
    return found


async def test_a_session_and_a_record_are_listed_shown_restored_and_dropped(
    http: RunningService, memory: Memory
) -> None:
    await put_aside(memory)
    record = memory.record("plan", owner="ben")
    await record.write(Change(sets={b"m": b"1"}, adds=[b"m"]))
    assert await move_record(memory.store, record.keys, PUT_MS + 1)
    session, other = await entries(http)
    assert (session["kind"], session["id"], session["put_ms"], session["owner"]) == ("session", *NAMED.values(), "anna")
    assert {key["name"]: key["entry_count"] for key in session["keys"]}["messages"] == 3
    assert (other["kind"], other["id"], other["owner"]) == ("record", "plan", "ben")
    doctor = (await http.ask("GET", "/v1/doctor?again=true")).json()
    seen = {row["name"]: row["seen"] for row in doctor["findings"]}["quarantine"]
    assert (seen, doctor["quarantined"]) == ("1 session and 1 record in this namespace, first user/42", ["user/42"])

    shown = (await http.ask("POST", f"{PATH}/show", json=NAMED)).json()
    assert (shown["faults"], shown["is_live"], shown["messages_count"]) == ([], False, 3)
    assert [each["message"]["content"] for each in shown["messages"]] == [f"message {number}" for number in (1, 2, 3)]
    await memory.session("user/42").append(numbered_message("new"))
    assert (await http.ask("POST", f"{PATH}/show", json=NAMED)).json()["is_live"]
    refused = await http.ask("POST", f"{PATH}/restore", json=NAMED)
    assert (refused.status_code, refused.json()["code"]) == (409, "session_exists")
    back = await http.ask("POST", f"{PATH}/restore", json=NAMED | {"swap": True})
    assert (back.status_code, back.json()["messages_count"]) == (200, 3)
    assert [each.content for each in await memory.session("user/42").messages()] == [
        f"message {number}" for number in (1, 2, 3)
    ]
    named = {"kind": "record", "id": "plan", "put_ms": PUT_MS + 1}
    shown = (await http.ask("POST", f"{PATH}/show", json=named)).json()
    assert (shown["is_readable"], shown["messages_count"], shown["messages"]) == (True, 0, [])
    assert (await http.ask("POST", f"{PATH}/restore", json=named)).status_code == 200
    assert (await record.get(b"m")) == [b"1"]
    (swapped,) = await entries(http)
    named = {"id": swapped["id"], "put_ms": swapped["put_ms"]}
    assert (await http.ask("POST", f"{PATH}/drop", json=named)).status_code == 204
    assert await entries(http) == []
    for verb in ("show", "restore", "drop"):
        refused = await http.ask("POST", f"{PATH}/{verb}", json=named)
        assert (refused.status_code, refused.json()["code"]) == (404, "session_not_found")


async def test_a_damaged_one_comes_back_as_far_as_it_can_be_read(
    http: RunningService, memory: Memory, raw: Any
) -> None:
    await memory.session("user/42").append(*map(numbered_message, range(1, 4)))
    await raw.lset(memory.store.keys.session("user/42").messages, 1, b"\xc1")
    assert await move_session(memory.store, "user/42", PUT_MS)
    shown = (await http.ask("POST", f"{PATH}/show", json=NAMED)).json()
    assert (shown["faults"], shown["messages_count"]) == (["1 of 3 messages cannot be read"], 2)
    refused = await http.ask("POST", f"{PATH}/restore", json=NAMED)
    assert (refused.status_code, refused.json()["code"]) == (409, "damaged")
    assert refused.json()["detail"] == "1 of 3 messages cannot be read"
    back = (await http.ask("POST", f"{PATH}/restore", json=NAMED | {"salvage": True})).json()
    assert (back["messages_count"], back["left_out_count"]) == (2, 1)
    assert len(await entries(http)) == 1, "the whole stays"


async def test_only_operators_ask_and_texts_are_for_readers(memory: Memory) -> None:
    await put_aside(memory)
    namespace = memory.store.keys.namespace
    scopes = {"admin": ["admin"], "reader": ["read"], "writer": ["read", "write"], "both": ["read", "admin"]}
    made = {name: new_key(name, namespace, given) for name, given in scopes.items()}
    made["owner"] = new_key("owner", namespace, ["read", "write"], "anna")
    async with serve_memory(memory, access=Access.of("\n".join(line for _, line in made.values()))) as http:
        for name, (key, _) in made.items():
            http.client.headers["Authorization"] = f"Bearer {key}"
            listed = await http.ask("GET", PATH)
            shown = await http.ask("POST", f"{PATH}/show", json=NAMED)
            if name in ("admin", "both"):
                assert listed.status_code == shown.status_code == 200
                assert (shown.json()["messages"] is None) is (name == "admin"), "without the scope read, no text"
                assert ("message 1" in shown.text) is (name == "both")
                continue
            asked = [listed, shown]
            asked += [await http.ask("POST", f"{PATH}/{verb}", json=NAMED) for verb in ("restore", "drop")]
            assert {answer.status_code for answer in asked} == {403}, name
