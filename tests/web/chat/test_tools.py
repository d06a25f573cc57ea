"""Tools of the caller: the model's calls are told and stored, and their results go on with the answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.http_service import (
    RunningService,
    Servers,
    StreamEvent,
    joined_text,
    notice_codes,
    read_events,
    serve_chat,
    serve_memory,
)
from support.openai_rules import check_chat
from support.provider_answers import TEXT, call_message
from support.provider_server import ProviderServer as Provider

from redismem import Memory
from redismem.web.api.turn_schemas import CHAT_EVENTS
from redismem.web.chat.chat import Chat

ORDER = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find an order.",
        "parameters": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    },
}
TOOLS = {"tools": [ORDER]}
ASKED = {"session_id": "s", "message": "Where is O-1?", **TOOLS}
CALLS = call_message(("c1", "find_order", {"id": "O-1"}), ("c2", "find_order", {"id": "ü"}), content="Let me look.")
RESULTS = [{"tool_call_id": "c1", "content": "sent"}, {"tool_call_id": "c2", "content": "lost"}]
GOES_ON = {"session_id": "s", "tool_results": RESULTS, **TOOLS}


def key(name: str) -> dict[str, str]:
    return {"idempotency-key": name}


def of(events: list[StreamEvent], kind: str) -> list[Any]:
    return [each.document for each in events if each.event == kind]


async def stored(http: RunningService) -> list[Any]:
    messages = (await http.ask("GET", "/v1/sessions/s/messages")).json()["messages"]
    return [each["message"] for each in messages]


async def test_calls_are_told_and_stored_and_another_server_goes_on_with_the_results(
    servers: Servers, provider: Provider
) -> None:
    first, second = servers
    provider.script.append(CALLS)
    begun = await read_events(first.client, "/api/chat", json=ASKED, headers=key("t-1"))
    assert joined_text(begun) == "Let me look."
    assert [(call["id"], json.loads(call["arguments"])) for call in of(begun, "tool_call")] == [
        ("c1", {"id": "O-1"}),
        ("c2", {"id": "ü"}),
    ]
    assert of(begun, "end") == [{"complete": True, "reason": "tool_calls", "seq": 2, "waiting_for": None}]
    assert (await stored(first))[1] == CALLS
    assert provider.bodies[0]["tools"] == [ORDER]
    # A retry tells the same, also once only the stored reply is left.
    again = await read_events(second.client, "/api/chat", json=ASKED, headers=key("t-1"))
    assert of(again, "tool_call") == of(begun, "tool_call")

    for event in begun:  # as the types of generated clients say
        CHAT_EVENTS[event.event].model_validate(event.document, strict=True, extra="forbid")

    turns = [
        read_events(each.client, "/api/chat", json=GOES_ON, headers=key("t-2")) for each in (second, first, second)
    ]
    for ended in await asyncio.gather(*turns):
        assert (joined_text(ended), of(ended, "end")[0]["reason"]) == (TEXT, "done")
    assert len(provider.bodies) == 2
    sent = provider.bodies[1]["messages"]
    check_chat(sent)
    assert sent[2:] == [CALLS, *({"role": "tool", **result} for result in RESULTS)]
    assert [each["role"] for each in await stored(first)] == ["user", "assistant", "tool", "tool", "assistant"]
    late = await second.ask("POST", "/api/chat", json=GOES_ON, headers=key("t-3"))
    assert (late.status_code, late.json()["code"], late.json()["cleared"]) == (409, "conflict", False)


async def test_unanswered_calls_break_no_later_request_and_no_result_goes_astray(
    servers: Servers, provider: Provider
) -> None:
    first, _ = servers
    provider.script.append(CALLS)
    await read_events(first.client, "/api/chat", json=ASKED)
    part = await first.ask("POST", "/api/chat", json=GOES_ON | {"tool_results": RESULTS[:1]})
    assert (part.status_code, part.json()["code"]) == (422, "invalid")
    for wrong in ({"tool_call_id": "c9", "content": ""}, {"tool_call_id": "c9", "content": ""}):
        refused = await first.ask("POST", "/api/chat", json=GOES_ON | {"tool_results": [*RESULTS, wrong]})
        assert refused.status_code == 409
    assert len(await stored(first)) == 2, "nothing was written"
    for tools in (TOOLS, {}):
        told = await read_events(first.client, "/api/chat", json={"session_id": "s", "message": "Well?", **tools})
        assert joined_text(told) == TEXT
        check_chat(provider.bodies[-1]["messages"])
        assert "find_order" in str(provider.bodies[-1]["messages"])
    moved = await first.ask("POST", "/api/chat", json=GOES_ON)
    assert (moved.status_code, moved.json()["code"]) == (409, "conflict")
    provider.script.append(CALLS)
    await read_events(first.client, "/api/chat", json=ASKED)
    await first.ask("DELETE", "/v1/sessions/s")
    cleared = await first.ask("POST", "/api/chat", json=GOES_ON)
    assert (cleared.status_code, cleared.json()["cleared"]) == (409, True)
    assert (await first.ask("GET", "/v1/sessions/s")).status_code == 404


async def test_a_failed_answer_to_results_begins_again_and_another_round_may_use_an_id_again(
    servers: Servers, provider: Provider
) -> None:
    first, second = servers
    provider.script.extend((CALLS, call_message(("c1", "find_order", {"id": "O-2"}))))
    await read_events(first.client, "/api/chat", json=ASKED)
    provider.modes.append("500")
    failed = await read_events(first.client, "/api/chat", json=GOES_ON, headers=key("t-2"))
    assert (of(failed, "end")[0]["complete"], notice_codes(failed)) == (False, ["model_failed"])
    again = await read_events(second.client, "/api/chat", json=GOES_ON, headers=key("t-2"))
    assert [each["id"] for each in of(again, "tool_call")] == ["c1"]
    last = GOES_ON | {"tool_results": RESULTS[:1]}
    assert joined_text(await read_events(first.client, "/api/chat", json=last)) == TEXT
    roles = ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert [each["role"] for each in await stored(first)] == roles
    check_chat(provider.bodies[-1]["messages"])


async def test_a_clear_behind_the_check_leaves_nothing(
    memory: Memory, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_chat(memory, provider) as http:
        provider.script.append(CALLS)
        await read_events(http.client, "/api/chat", json=ASKED)
        begin = Chat.begin

        async def clear_first(*given: Any) -> Any:
            await memory.session("s").clear()
            return await begin(*given)

        monkeypatch.setattr(Chat, "begin", clear_first)
        refused = await http.ask("POST", "/api/chat", json=GOES_ON)
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert not await memory.session("s").exists()
        assert len(provider.bodies) == 1


@pytest.mark.parametrize(
    ("format", "kinds"),
    [
        ("events", ["tool_call", "tool_call", "tool_call"]),
        ("ai", ["tool-input-start", "tool-input-delta", "tool-input-available"]),
        ("ag-ui", ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]),
        ("openai", ["response.function_call_arguments.delta", "response.function_call_arguments.done"]),
    ],
)
async def test_each_format_tells_a_call_in_its_own_events(
    memory: Memory, provider: Provider, format: str, kinds: list[str]
) -> None:
    called = call_message(("c1", "find_order", {"id": "O-1"}))
    provider.script.append(called)
    async with serve_chat(memory, provider) as http:
        begun = await http.ask("POST", f"/v1/sessions/s/turns?format={format}", json={"message": "Where?", **TOOLS})
        documents = [json.loads(line[6:]) for line in begun.text.split("\n") if line.startswith("data: {")]
        told = [each for each in documents if each["type"] in kinds]
        assert [each["type"] for each in told] == kinds
        result = {"role": "tool", "tool_call_id": "c1", "content": "sent"}
        body = {"message": result, **TOOLS}
        ended = await http.ask("POST", f"/v1/sessions/s/turns?format={format}", json=body)
        assert ended.status_code == 200, ended.text
    assert provider.bodies[1]["messages"][2:] == [called, result]


WRONG: list[dict[str, Any]] = [
    {"message": "x", "tool_results": RESULTS},
    {},
    {"tool_results": []},
    {"message": "x", "tools": [{"type": "function", "function": {"name": "a b"}}]},
    {"message": "x", "tools": [ORDER, ORDER]},
    {"message": "x", "tools": [{"type": "custom", "custom": {"name": "a"}}]},
    {"message": "x", "tools": [{"function": {"name": f"t{at}"}} for at in range(65)]},
    {"message": "x", "tools": [{"function": {"name": "a", "parameters": {"x": "y" * 70_000}}}]},
]


async def test_tools_are_checked_before_anything_is_written(memory: Memory, provider: Provider) -> None:
    async with serve_chat(memory, provider) as http:
        for body in WRONG:
            refused = await http.ask("POST", "/api/chat", json={"session_id": "s", **body})
            assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), body
        new = await http.ask("POST", "/api/chat", json={"tool_results": RESULTS})
        (fault,) = new.json()["faults"]
        assert (new.status_code, fault["expected"]) == (
            422,
            "Value error, tool_results need the session of their calls",
        )
    async with serve_chat(memory, provider, chat={"alternate": True}) as http:
        assert (await http.ask("POST", "/api/chat", json=ASKED)).status_code == 422
    async with serve_memory(memory) as http:  # without a model, the offline answer makes no calls
        assert joined_text(await read_events(http.client, "/api/chat", json=ASKED))
    assert not provider.bodies
