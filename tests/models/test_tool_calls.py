"""Models that call tools of their caller, in each provider's format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.openai_rules import check_chat
from support.provider_answers import PIECES, SIGNATURE, call_message
from support.provider_rules import check_anthropic, check_gemini
from support.provider_server import ProviderServer

from redismem.models.streaming import open_streaming
from redismem.models.tool_calls import CallPart, CallsOfAnswer, ToolDelta, openai_parts

NAMED = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}}
FIND = {"type": "function", "function": {"name": "find_order", "description": "Find it.", "parameters": NAMED | SCHEMA}}
PING = {"type": "function", "function": {"name": "ping"}}
CALLS = [("c1", "find_order", {"id": "ü"}), ("c2", "ping", {})]
ASKED: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]


async def ask(provider: ProviderServer, name: Any, messages: list[Any], tools: list[Any]) -> list[Any]:
    model = open_streaming(name, "m", "key", base_url=provider.base_url, allow_http=True)
    try:
        return [piece async for piece in model.stream(messages, max_tokens=100, tools=tools)]
    finally:
        await model.aclose()


def blocks_of(content: Any) -> Any:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
async def test_calls_are_heard_and_their_results_go_back(name: str) -> None:
    with ProviderServer() as provider:
        provider.script.append(call_message(*CALLS, content="Let me look."))
        pieces = await ask(provider, name, ASKED, [FIND, PING])
        assert "".join(piece for piece in pieces if isinstance(piece, str)).strip() == "Let me look."
        deltas = [piece for piece in pieces if isinstance(piece, ToolDelta)]
        calls = [delta.whole for delta in deltas if delta.whole is not None]
        assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in calls] == [
            (called, arguments) for _, called, arguments in CALLS
        ]
        for call in calls:
            of_call = [delta for delta in deltas if delta.id == call["id"]]
            assert "".join(delta.delta for delta in of_call) in (call["function"]["arguments"], "")
            assert [delta.name for delta in of_call if delta.name] == [call["function"]["name"]]
        if name != "gemini":
            assert [call["id"] for call in calls] == ["c1", "c2"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "sent"} for call in calls]
        said = {"role": "assistant", "content": "Let me look.", "tool_calls": calls}
        assert "".join(await ask(provider, name, [*ASKED, said, *results], [FIND, PING])) == "".join(PIECES)
        first, second = provider.bodies
    if name == "openai":
        assert first["tools"] == [FIND, PING]
        check_chat(second["messages"])
    elif name == "anthropic":
        assert first["tools"] == [
            {"name": "find_order", "description": "Find it.", "input_schema": NAMED | SCHEMA},
            {"name": "ping", "input_schema": {"type": "object"}},
        ]
        check_anthropic({"messages": [turn | {"content": blocks_of(turn["content"])} for turn in second["messages"]]})
        assert [block["type"] for block in second["messages"][-1]["content"]] == ["tool_result", "tool_result"]
    else:
        assert first["tools"][0]["functionDeclarations"][0] == {
            "name": "find_order",
            "description": "Find it.",
            "parametersJsonSchema": SCHEMA,
        }
        check_gemini({"contents": second["contents"]})
        assert SIGNATURE in json.dumps(second["contents"])


async def test_without_tools_a_call_is_no_answer() -> None:
    with ProviderServer() as provider:
        provider.script.append(call_message(*CALLS, content="Let me look."))
        assert "".join(await ask(provider, "openai", ASKED, [])).strip() == "Let me look."
        assert "tools" not in provider.bodies[0]


def test_calls_of_lax_servers_are_told_apart() -> None:
    calls = CallsOfAnswer()
    deltas = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]},
        {"tool_calls": [{"index": 0, "id": "b", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": None}}, {"index": 1}, None]},
        {"tool_calls": [{"index": 7, "id": "a", "function": {"name": "h"}}]},
    ]
    for delta in deltas:
        for part in openai_parts(delta):
            calls.add(part)
    calls.add(CallPart(None, name="i", arguments="{}"))
    whole = [delta.whole for delta in calls.end() if delta.whole is not None]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in whole] == [
        ("f", '{"x": 1}'),
        ("g", "{}"),
        ("h", "{}"),
        ("i", "{}"),
    ]
    assert len({call["id"] for call in whole}) == 4
    assert [call["id"] for call in whole[:2]] == ["a", "b"]
