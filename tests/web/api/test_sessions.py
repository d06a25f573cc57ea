"""The routes of conversations, over a real connection and on both stores."""

from __future__ import annotations

import re
from typing import Any, get_args
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from support.checks import until
from support.http_service import RunningService, numbered_message, serve_memory
from support.json_values import session_ids

from redismem import Memory, Settings
from redismem.web.http.json import Format

IDS = [
    "a",
    "a/b",
    "..",
    ".",
    "%2F",
    "a b",
    "ü" * 128,
    "x" * 256,
    "?q=1&r=2",
    "a#b",
    "{a}",
    "messages",
    "/",
    "日本",
    "+",
]


def path(session_id: str, rest: str = "") -> str:
    # Clients take ".." as a step upward, so dots are encoded too.
    segment = quote(session_id, safe="")
    return f"/v1/sessions/{segment.replace('.', '%2E')}{rest}"


async def test_a_new_session_has_an_id_and_begins_with_its_first_message(http: RunningService) -> None:
    new = await http.ask("POST", "/v1/sessions")
    session_id = new.json()["session_id"]
    assert (new.status_code, new.headers["location"]) == (201, f"/v1/sessions/{session_id}")
    assert (await http.ask("GET", path(session_id))).status_code == 404
    posted = await http.ask("POST", path(session_id, "/messages"), json=numbered_message(1))
    info = (await http.ask("GET", path(session_id))).json()
    assert posted.status_code == 201
    assert re.fullmatch(f'"{info["epoch"]}-1-[0-9a-f]{{20}}"', posted.headers["etag"])
    assert posted.json() == {
        "session_id": session_id,
        "first_seq": 1,
        "last_seq": 1,
        "total": 1,
        "created": True,
        "duplicate": False,
        "degraded": False,
    }
    assert (info["session_id"], info["total_messages"], info["window_count"]) == (session_id, 1, 1)


async def test_any_id_works_in_a_path(http: RunningService) -> None:
    for session_id in IDS:
        posted = await http.ask("POST", path(session_id, "/messages"), json=[numbered_message(1), numbered_message(2)])
        assert posted.json()["session_id"] == session_id
        assert (await http.ask("GET", path(session_id))).json()["session_id"] == session_id
        listed = (await http.ask("GET", path(session_id, "/messages"))).json()["messages"]
        assert [row["message"] for row in listed] == [numbered_message(1), numbered_message(2)]
        assert (await http.ask("PATCH", path(session_id, "/state"), json={"plan": 1})).status_code == 204
        assert (await http.ask("GET", path(session_id, "/state"))).json()["plan"] == 1
        assert (await http.ask("DELETE", path(session_id))).status_code == 204
        assert (await http.ask("DELETE", path(session_id))).status_code == 404


async def test_every_valid_id_works_in_a_path(memory: Memory) -> None:
    async with serve_memory(memory) as http:

        @settings(suppress_health_check=list(HealthCheck))
        @given(session_ids)
        def each(session_id: str) -> None:
            found.append(session_id)

        found: list[str] = []
        each()
        for session_id in found:
            posted = await http.ask("POST", path(session_id, "/messages"), json=numbered_message(1))
            assert (posted.status_code, posted.json()["session_id"]) in ((201, session_id),)
            assert (await http.ask("DELETE", path(session_id))).status_code == 204


async def test_an_invalid_id_is_refused(http: RunningService) -> None:
    for segment in ["%00", "%0A", "%ff", "%20", "x" * 257, "%C3%BC" * 129]:
        for method, rest in (("GET", ""), ("POST", "/messages"), ("GET", "/messages"), ("GET", "/context")):
            refused = await http.ask(method, f"/v1/sessions/{segment}{rest}", content=b'{"role":"user"}')
            assert (refused.status_code, refused.json()["code"]) == (400, "bad_session_id"), segment


async def test_an_append_with_read_answers_with_the_context(http: RunningService) -> None:
    await http.ask("POST", path("s", "/messages"), json=[numbered_message(1), numbered_message(2, "assistant")])
    read = await http.ask("POST", path("s", "/messages?read=true"), json=numbered_message(3))
    found = read.json()
    assert read.status_code == 201
    assert found["request"] == {
        "messages": [numbered_message(1), numbered_message(2, "assistant"), numbered_message(3)]
    }
    assert (found["last_seq"], found["receipt"]["first_seq"]) == (3, 3)
    context = (await http.ask("GET", path("s", "/context"))).json()
    assert context == found | {"receipt": None}


async def test_an_append_with_a_key_is_made_once(http: RunningService) -> None:
    headers = {"Idempotency-Key": "turn-1"}
    first = await http.ask("POST", path("s", "/messages"), json=numbered_message(1), headers=headers)
    again = await http.ask("POST", path("s", "/messages"), json=numbered_message(1), headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"duplicate": True}
    read = await http.ask("POST", path("s", "/messages?read=true"), json=numbered_message(1), headers=headers)
    assert (read.status_code, read.json()["total_messages"]) == (200, 1)


async def test_if_match_refuses_a_stale_seq(http: RunningService) -> None:
    assert (
        await http.ask("POST", path("s", "/messages"), json=numbered_message(1), headers={"If-Match": '"0"'})
    ).status_code == 201
    assert (
        await http.ask("POST", path("s", "/messages"), json=numbered_message(2), headers={"If-Match": "1"})
    ).status_code == 201
    refused = await http.ask("POST", path("s", "/messages"), json=numbered_message(3), headers={"If-Match": '"1"'})
    assert (refused.status_code, refused.json()["code"], refused.json()["last_seq"]) == (409, "conflict", 2)
    for wrong in ("x", "", '"-1"', "9" * 40, "*"):
        answer = await http.ask("POST", path("s", "/messages"), json=numbered_message(3), headers={"If-Match": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_if_match_of_an_etag_refuses_a_reply_to_a_cleared_session(http: RunningService) -> None:
    posted = await http.ask("POST", path("s", "/messages"), json=numbered_message(1))
    again = await http.ask(
        "POST", path("s", "/messages"), json=numbered_message(2), headers={"If-Match": posted.headers["etag"]}
    )
    assert again.status_code == 201
    await http.ask("DELETE", path("s"))
    for number in (1, 2):
        await http.ask("POST", path("s", "/messages"), json=numbered_message(number))
    refused = await http.ask(
        "POST", path("s", "/messages"), json=numbered_message(3), headers={"If-Match": again.headers["etag"]}
    )
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "cleared" in refused.json()["detail"]


async def test_messages_are_read_page_by_page(http: RunningService) -> None:
    await http.ask("POST", path("s", "/messages"), json=[numbered_message(number) for number in range(1, 8)])
    seen: list[int] = []
    before: Any = None
    while True:
        query = {"limit": 3} | ({} if before is None else {"before": before})
        page = (await http.ask("GET", path("s", "/messages"), params=query)).json()
        seen = [row["seq"] for row in page["messages"]] + seen
        before = page["before"]
        if before is None:
            break
    assert seen == [1, 2, 3, 4, 5, 6, 7]
    assert (await http.ask("GET", path("none", "/messages"))).json()["code"] == "session_not_found"
    timed = await http.ask("GET", path("s", "/messages"), params={"before": "2001-01-01T00:00:00Z"})
    assert timed.json() == {"messages": [], "before": None}
    for wrong in ("x", "0", "-1", "2001-01-01T00:00:00", "9" * 30):
        refused = await http.ask("GET", path("s", "/messages"), params={"before": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_originals_are_listed_on_request(memory: Memory, store: Any) -> None:
    kept = Settings(keep_originals=True, strategy="summarize", threshold=4, recent_limit=2)
    async with store.memory(memory.store.keys.namespace, kept, workers=True) as working, serve_memory(working) as http:
        await http.ask("POST", path("s", "/messages"), json=[numbered_message(number) for number in range(1, 9)])

        async def summarised() -> Any:
            context = (await http.ask("GET", path("s", "/context"))).json()
            return context["summaries"] and context

        context = await until(summarised)
        assert "<summary>" in context["request"]["messages"][0]["content"]
        window = (await http.ask("GET", path("s", "/messages"))).json()["messages"]
        everything = (await http.ask("GET", path("s", "/messages?include_originals=true"))).json()["messages"]
        assert [row["seq"] for row in window] == [7, 8]
        assert [row["seq"] for row in everything] == list(range(1, 9))


async def test_a_context_fits_max_tokens_and_names_its_format(http: RunningService) -> None:
    await http.ask("POST", path("s", "/messages"), json=[numbered_message(number) for number in range(1, 8)])
    small = (await http.ask("GET", path("s", "/context?max_tokens=25"))).json()
    assert 0 < len(small["request"]["messages"]) < 7
    assert small["format"] == "openai"
    for wrong in ("?format=other", "?max_tokens=0", "?max_tokens=x"):
        assert (await http.ask("GET", path("s", f"/context{wrong}"))).status_code == 422


LISTS = {"openai": "messages", "responses": "input"}


@pytest.mark.parametrize("form", get_args(Format))
async def test_a_format_is_written_as_the_context_writes_it(http: RunningService, memory: Memory, form: str) -> None:
    await http.ask("POST", path("s", "/messages"), json=[numbered_message(1), numbered_message(2, "assistant")])
    answer = await http.ask("GET", path("s", f"/context?format={form}"))
    written = getattr(await memory.session("s").read(), f"to_{form}")()
    assert answer.json()["format"] == form
    assert answer.json()["request"] == (written if isinstance(written, dict) else {LISTS[form]: written})


async def test_the_state_is_changed_and_read(http: RunningService) -> None:
    change = {"params": {"order": 17, "none": None}, "waiting_for_param": "size", "last_intent": ["buy"], "plan": {}}
    assert (await http.ask("PATCH", path("s", "/state"), json=change)).status_code == 204
    state = (await http.ask("GET", path("s", "/state"))).json()
    assert state == {
        "params": {"order": 17, "none": None},
        "hidden_params": [],
        "waiting_for_param": "size",
        "last_intent": ["buy"],
        "last_result": None,
        "plan": {},
        "instruction": None,
        "degraded": False,
    }
    taken = {"remove_params": ["order"], "waiting_for_param": None}
    assert (await http.ask("PATCH", path("s", "/state"), json=taken)).status_code == 204
    left = (await http.ask("GET", path("s", "/state"))).json()
    assert (left["params"], left["waiting_for_param"], left["plan"]) == ({"none": None}, None, {})
    refused: list[Any] = [{}, {"parms": {}}, {"params": []}, [], {"params": {"": 1}}, {"waiting_for_param": 7}]
    for wrong in refused:
        assert (await http.ask("PATCH", path("s", "/state"), json=wrong)).status_code == 422


async def test_a_param_is_set_or_removed(http: RunningService) -> None:
    await http.ask("PATCH", path("s", "/state"), json={"params": {"order": 17}})
    both = {"params": {"order": 18, "size": 4}, "remove_params": ["order"], "plan": 1}
    refused = await http.ask("PATCH", path("s", "/state"), json=both)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    state = (await http.ask("GET", path("s", "/state"))).json()
    assert (state["params"], state["plan"]) == ({"order": 17}, None)


async def test_a_change_with_a_key_is_made_once(http: RunningService) -> None:
    headers = {"Idempotency-Key": "change-1"}
    await http.ask("PATCH", path("s", "/state"), json={"plan": "first"}, headers=headers)
    await http.ask("PATCH", path("s", "/state"), json={"plan": "second"})
    again = await http.ask("PATCH", path("s", "/state"), json={"plan": "first"}, headers=headers)
    assert (again.status_code, (await http.ask("GET", path("s", "/state"))).json()["plan"]) == (204, "second")
    appended = await http.ask("POST", path("s", "/messages"), json=numbered_message(1), headers=headers)
    assert (appended.status_code, appended.json()["code"]) == (422, "invalid")


RULES: dict[str, Any] = {"keep_whole": True, "idle_timeout_s": 900.0, "exempt": True, "zone": "Asia/Tokyo"}
NO_RULES = {"keep_whole": False, "idle_timeout_s": None, "exempt": False, "zone": None}


async def test_a_policy_is_replaced_whole(http: RunningService) -> None:
    missing = await http.ask("PUT", path("s", "/policy"), json=RULES)
    assert (missing.status_code, missing.json()["code"]) == (404, "session_not_found")
    await http.ask("POST", path("s", "/messages"), json=numbered_message(1))
    for rules in (NO_RULES, RULES, RULES | {"idle_timeout_s": 0.5, "exempt": False, "zone": None}, RULES, NO_RULES):
        assert (await http.ask("PUT", path("s", "/policy"), json=rules)).status_code == 204
        assert (await http.ask("GET", path("s"))).json()["policy"] == rules


async def test_a_malformed_policy_changes_nothing(http: RunningService) -> None:
    await http.ask("POST", path("s", "/messages"), json=numbered_message(1))
    for wrong in [
        {},
        {"keep_whole": True},
        RULES | {"keepwhole": True},
        RULES | {"keep_whole": "yes"},
        RULES | {"exempt": 1},
        RULES | {"zone": "Mars/Olympus"},
        *(RULES | {"idle_timeout_s": value} for value in (0, -1, "900", True, 1e12)),
    ]:
        await http.ask("PUT", path("s", "/policy"), json=RULES)
        refused = await http.ask("PUT", path("s", "/policy"), json=wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), wrong
        assert (await http.ask("GET", path("s"))).json()["policy"] == RULES


async def test_sessions_are_listed_page_by_page(http: RunningService) -> None:
    for number in range(5):
        await http.ask("POST", path(f"s-{number}", "/messages"), json=numbered_message(1))
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await http.ask("GET", f"/v1/sessions?limit=2{cursor and '&cursor=' + quote(cursor)}")).json()
        seen += [row["session_id"] for row in page["sessions"]]
        cursor = page["cursor"]
    assert sorted(seen) == [f"s-{number}" for number in range(5)]
    for wrong in ("x", "W10="):
        assert (await http.ask("GET", "/v1/sessions", params={"cursor": wrong})).json()["code"] == "bad_request"
    assert (await http.ask("GET", "/v1/sessions?limit=0")).status_code == 422


async def test_unusual_json_comes_back_unchanged(http: RunningService) -> None:
    """Halves of surrogate pairs and integers beyond 64 bits are stored; numbers that are not finite are refused."""
    body = b'{"role":"user","content":"\\ud800","number":123456789012345678901234567890}'
    assert (await http.ask("POST", path("s", "/messages?read=true"), content=body)).status_code == 201
    (row,) = (await http.ask("GET", path("s", "/messages"))).json()["messages"]
    assert row["message"] == {"role": "user", "content": "\ud800", "number": 123456789012345678901234567890}
    for wrong, code in ((b'{"a":1e999}', "invalid"), (b'{"a":NaN}', "bad_request"), (b"{", "bad_request")):
        assert (await http.ask("POST", path("s", "/messages"), content=wrong)).json()["code"] == code


@pytest.mark.parametrize("query", ["", "?read=true"])
async def test_a_refused_body_is_explained_in_terms_of_http(http: RunningService, query: str) -> None:
    said_of = {
        "the array in the body is empty": [],
        "not an object with `messages`": {"messages": [numbered_message(1)]},
        "a message needs a role": {"content": "hello"},
    }
    for words, body in said_of.items():
        refused = (await http.ask("POST", path("s", f"/messages{query}"), json=body)).json()
        assert refused["code"] == "invalid"
        assert words in refused["detail"]
        assert "append" not in refused["detail"]
        assert "merge" not in refused["detail"]


async def test_a_malformed_message_is_refused_and_not_stored(http: RunningService) -> None:
    for body in [b"", b"[]", b"7", b'"x"', b"[[]]", b"[" * 10_000, b"\xff", b"[{}, 7]"]:
        refused = await http.ask("POST", path("s", "/messages"), content=body)
        assert refused.status_code in (400, 422), body
        assert (await http.ask("GET", path("s"))).status_code == 404
