"""Bodies, queries and methods of requests. A refusal names what is allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from support.http_service import RunningService, numbered_message

from redismem.web.api.schemas import FAULTS_COUNT, StateChange

CANARY = "canary-7c1f"
UNKNOWN: dict[str, Any] = {f"unknown{number}": 0 for number in range(1_000)}


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", ""])
async def test_a_body_is_json_whatever_its_type_is_called(http: RunningService, media_type: str) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    requests = [
        ("POST", "/v1/sessions/s/messages", json.dumps(numbered_message(1))),
        ("PATCH", "/v1/sessions/s/state", '{"plan": 1}'),
        ("POST", "/v1/dead/drop", '{"session_ids": ["s"]}'),
        ("POST", "/api/chat/stop", '{"session_id": "s"}'),
    ]
    for method, path, body in requests:
        assert (await http.ask(method, path, content=body, headers=headers)).status_code < 300, path
        for wrong in (b"plan=1", b"\xff"):
            refused = await http.ask(method, path, content=wrong, headers=headers)
            assert (refused.status_code, refused.json()["detail"]) == (400, "the body is not JSON"), path


async def test_a_request_with_an_unknown_or_invalid_part_is_refused(http: RunningService) -> None:
    for method, path, detail in [
        ("GET", "/v1/sessions/s/context?foramt=canary-7c1f", "a query here has max_tokens, format, owner, and no"),
        ("POST", "/v1/sessions/s/messages?reed=true", "a query here has read, owner, recall, recall_scope, and no"),
        ("GET", "/v1/about?x", "there is no query here"),
        ("POST", f"/v1/sessions/s/messages?{'read&' * 101}", "a query has at most 100 fields"),
        ("DELETE", "/v1/sessions?owner=canary-7c1f&owner=b", "each name of a query comes once"),
        ("POST", "/v1/sessions/s/messages?owner=canary-7c1f&owner=b", "each name of a query comes once"),
        ("GET", "/v1/sessions/s/context?format=canary-7c1f", "Input should be 'openai', "),
        ("GET", "/v1/sessions?limit=5000", "Input should be less than or equal to 1000"),
        ("POST", "/v1/sessions", "send no body"),
    ]:
        refused = await http.ask(method, path, json=numbered_message(CANARY) if method == "POST" else None)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
        assert detail in refused.text, path
        assert CANARY not in refused.text


@pytest.mark.parametrize(("method", "path"), [("DELETE", "/v1/sessions"), ("POST", "/v1/sessions/s/messages")])
async def test_a_query_in_another_encoding_names_no_other_owner(http: RunningService, method: str, path: str) -> None:
    for owner in ("J%F6rg", "a%FF", "%ED%A0%80"):
        refused = await http.ask(
            method, f"{path}?owner={owner}", json=numbered_message(1) if method == "POST" else None
        )
        assert (refused.status_code, refused.json()["detail"]) == (400, "a query is percent-encoded UTF-8")
    assert (await http.ask("GET", "/v1/sessions/s")).status_code == 404


async def test_clients_of_other_protocols_name_one_owner_too_and_may_add_names(http: RunningService) -> None:
    """They may add what their protocol has, such as `include[]` of OpenAI's. But nobody guesses whom they speak for."""
    agent = {"threadId": "s", "runId": "t", "messages": [{"role": "user", "content": "x"}]}
    parts = [{"type": "text", "text": "x"}]
    for method, path, body in [
        ("GET", "/ui/chat/s/stream", None),
        ("POST", "/ui/chat", {"id": "s", "messages": [{"id": "t", "role": "user", "parts": parts}]}),
        ("POST", "/ag-ui", agent),
        ("POST", "/openai/responses", {"conversation": "s", "input": "x"}),
    ]:
        for query, status in [("owner=a%FF", 400), ("owner=%ED%A0%80", 400), ("owner=ann&owner=bob", 422)]:
            refused = await http.ask(method, f"{path}?{query}", json=body)
            assert refused.status_code == status, (path, query)
    assert (await http.ask("GET", "/v1/sessions/s")).status_code == 404
    more = "owner=ann&include[]=a&include[]=b"
    assert (await http.ask("POST", f"/ag-ui?{more}", json=agent)).status_code == 200
    assert (await http.ask("GET", "/v1/sessions/s?owner=ann")).status_code == 200


@pytest.mark.parametrize("body", [{"remove_params": [""] * 1_000}, {"remove_params": [0] * 1_000}, UNKNOWN])
def test_the_number_of_faults_of_a_body_is_limited(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        StateChange.model_validate(body)
    assert refused.value.error_count() <= FAULTS_COUNT


async def test_the_first_faults_of_many_are_reported(http: RunningService) -> None:
    refused = await http.ask("PATCH", "/v1/sessions/s/state", json=UNKNOWN | {"waiting_for_param": 5, "plan": 1})
    faults = [(fault["where"], fault["what"]) for fault in refused.json()["faults"]]
    unknown = [(f"body.unknown{number}", "extra_forbidden") for number in range(FAULTS_COUNT)]
    assert faults == [("body.waiting_for_param", "string_type"), *unknown][:FAULTS_COUNT]


async def test_a_name_that_takes_several_values_may_be_repeated(http: RunningService) -> None:
    path = "/v1/projects/p/context"
    assert (await http.ask("GET", f"{path}?term=a&term=b")).status_code == 200
    refused = await http.ask("GET", f"{path}?term=a&term=b&max_tokens=60&max_tokens=70")
    assert (refused.status_code, refused.json()["detail"]) == (422, "each name of a query comes once")


async def test_probes_may_be_asked_with_any_query(http: RunningService) -> None:
    for path in ("/livez?verbose", "/readyz?x=1", "/metrics?target=a"):
        assert (await http.ask("GET", path)).status_code == 200


async def test_a_refused_method_is_answered_with_the_allowed_methods(http: RunningService) -> None:
    allowed = {
        "/v1/sessions": "DELETE, GET, HEAD, POST",
        "/v1/sessions/s": "DELETE, GET, HEAD",
        "/v1/sessions/s/messages": "GET, HEAD, POST",
        "/v1/sessions/s/events": "GET",
        "/v1/projects/p/board": "GET, HEAD",
        "/api/chat": "POST",
        "/livez": "GET, HEAD",
        "/": "GET, HEAD",
    }
    for path, methods in allowed.items():
        refused = await http.ask("PUT", path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods), path
    assert set((await http.ask("PUT", "/openapi.json")).headers["allow"].split(", ")) == {"GET", "HEAD"}


async def test_head_is_answered_like_get_without_a_body(http: RunningService) -> None:
    await http.ask("POST", "/v1/sessions/s/messages", json=numbered_message(1))
    for path in ("/livez", "/readyz", "/v1/sessions/s", "/v1/sessions/none", "/v1/sessions?limit=1"):
        got, head = await http.ask("GET", path), await http.ask("HEAD", path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    assert (await http.ask("HEAD", "/v1/sessions/s/events")).status_code == 405
