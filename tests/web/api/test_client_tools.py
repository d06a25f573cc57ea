"""Tools that clients of other protocols run: calls in their events, and results in their requests."""

from __future__ import annotations

import json
from typing import Any

import httpx
from support.http_service import serve_chat
from support.provider_answers import TEXT, call_message
from support.provider_server import ProviderServer as Provider

from redismem import Memory

CALLED = call_message(("c1", "find_order", {"id": "O-1"}), content="Let me look.")
FUNCTION = {"name": "find_order", "description": "Find it.", "parameters": {"type": "object"}}
STORED = [CALLED, {"role": "tool", "tool_call_id": "c1", "content": "sent"}]


def documents(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]


def types(found: list[Any]) -> list[str]:
    return [each["type"] for each in found]


def text_of(found: list[Any]) -> str:
    return "".join(each["delta"] for each in found if each["type"] in ("text-delta", "TEXT_MESSAGE_CONTENT"))


async def test_use_chat_goes_on_with_the_message_whose_tools_it_ran(memory: Memory, provider: Provider) -> None:
    provider.script.append(CALLED)
    tools = [{"type": "function", "function": FUNCTION}]
    async with serve_chat(memory, provider) as http:
        user = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Where is O-1?"}]}
        first = documents(await http.ask("POST", "/ui/chat", json={"id": "s", "messages": [user], "tools": tools}))
        (call,) = [each for each in first if each["type"] == "tool-input-available"]
        part = {**call, "type": "tool-find_order", "state": "output-available", "output": "sent"}
        message_id, parts = (
            first[0]["messageId"],
            [{"type": "step-start"}, {"type": "text", "text": "Let me look."}, part],
        )
        messages = [user, {"id": message_id, "role": "assistant", "parts": parts}]
        body = {"id": "s", "trigger": "submit-message", "messageId": message_id, "messages": messages, "tools": tools}
        second = documents(await http.ask("POST", "/ui/chat", json=body))
        assert (second[0]["type"], second[0]["messageId"], text_of(second)) == ("start", message_id, TEXT)
        assert documents(await http.ask("POST", "/ui/chat", json=body)) == second
    assert provider.bodies[0]["tools"] == tools
    assert provider.bodies[1]["messages"][2:] == STORED
    assert len(provider.bodies) == 2


async def test_an_agent_of_ag_ui_goes_on_in_a_new_run(memory: Memory, provider: Provider) -> None:
    provider.script.append(CALLED)
    asked = {"id": "m", "role": "user", "content": "Where is O-1?"}
    run = {"threadId": "s", "runId": "r1", "messages": [asked], "tools": [FUNCTION]}
    async with serve_chat(memory, provider) as http:
        first = documents(await http.ask("POST", "/ag-ui", json=run))
        (begun,) = [each for each in first if each["type"] == "TOOL_CALL_START"]
        assert (begun["toolCallId"], begun["toolCallName"]) == ("c1", "find_order")
        called = {"id": "a", "role": "assistant", "content": "Let me look.", "toolCalls": CALLED["tool_calls"]}
        result = {"id": "t", "role": "tool", "toolCallId": "c1", "content": "sent"}
        goes_on = run | {"runId": "r2", "messages": [asked, called, result]}
        second = documents(await http.ask("POST", "/ag-ui", json=goes_on))
        assert text_of(second) == TEXT
        part = {"id": "b", "role": "assistant", "content": "Your"}
        again = documents(await http.ask("POST", "/ag-ui", json=goes_on | {"messages": [asked, called, result, part]}))
        (snapshot,) = [each for each in again if each["type"] == "MESSAGES_SNAPSHOT"]
        assert snapshot["messages"] == [asked, called, result]
        assert text_of(again) == TEXT
        first_again = documents(await http.ask("POST", "/ag-ui", json=run | {"messages": [asked, called]}))
        assert "TOOL_CALL_START" in types(first_again)
        unknown = await http.ask(
            "POST", "/ag-ui", json=goes_on | {"runId": "r3", "messages": [asked, called, result, part]}
        )
        assert unknown.status_code == 422
    assert provider.bodies[1]["messages"][2:] == STORED
    assert len(provider.bodies) == 2


async def test_a_response_goes_on_with_outputs_of_functions(memory: Memory, provider: Provider) -> None:
    provider.script.append(CALLED)
    create: dict[str, Any] = {"conversation": "s", "input": "Where is O-1?"}
    create["tools"] = [{"type": "function", **FUNCTION, "strict": True}, {"type": "web_search"}]
    output = [{"type": "function_call_output", "call_id": "c1", "output": "sent"}]
    async with serve_chat(memory, provider) as http:
        first = (await http.ask("POST", "/openai/responses", json=create)).json()
        assert [item["type"] for item in first["output"]] == ["message", "function_call"]
        assert first["output"][1]["call_id"] == "c1"
        goes_on = {"previous_response_id": first["id"], "input": output, "tools": create["tools"]}
        second = (await http.ask("POST", "/openai/responses", json=goes_on)).json()
        assert second["output"][0]["content"][0]["text"] == TEXT
        late = await http.ask("POST", "/openai/responses", json=goes_on)
        assert (late.status_code, late.json()["code"]) == (409, "conflict")
        wrong = await http.ask(
            "POST", "/openai/responses", json=create | {"tools": [{"type": "function", "name": "a b"}]}
        )
        assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid")
    assert provider.bodies[0]["tools"] == [{"type": "function", "function": FUNCTION | {"strict": True}}]
    assert provider.bodies[1]["messages"][2:] == STORED


async def test_a_model_without_tools_answers_clients_that_have_some(memory: Memory, provider: Provider) -> None:
    async with serve_chat(memory, provider, chat={"alternate": True}) as http:
        run = {"threadId": "s", "runId": "r", "messages": [{"role": "user", "content": "x"}], "tools": [FUNCTION]}
        assert text_of(documents(await http.ask("POST", "/ag-ui", json=run))) == TEXT
    assert "tools" not in provider.bodies[0]
