"""The parts of a context with their figures, and its request as JSON to copy."""

from __future__ import annotations

import json
from typing import Any, get_args

from support.http_service import RunningService, numbered_message
from support.writers import Echo

from redismem import Memory, Message
from redismem.web.http.json import Format
from redismem.workers.summaries import Worker

LISTS = {"openai": "messages", "responses": "input"}
URL = "/v1/sessions/s/context"


async def test_the_parts_are_those_of_the_context(http: RunningService, memory: Memory) -> None:
    session = memory.session("s")
    await session.append({"role": "system", "content": "Be brief."}, *map(numbered_message, range(20)))
    await Worker(memory.store, Echo()).drain()
    await session.append(*map(numbered_message, range(9)))
    context = await session.read()
    assert context.summaries
    assert context.pending
    assert context.first_seq > 1, "the system prompt has left the window"
    document = (await http.ask("GET", f"{URL}/parts")).json()
    parts: dict[str, list[Any]] = {
        "summaries": context.summaries,
        "pinned": context.pinned,
        "pending": context.pending,
        "recent": context.recent,
    }
    assert document["parts"] == {
        name: {"count": len(part), "tokens": sum(each.tokens for each in part)} for name, part in parts.items()
    }
    assert [(each["seq"], each["message"]["content"]) for each in document["pinned"]] == [(1, "Be brief.")]
    whole = (await http.ask("GET", URL)).json()
    shared = whole.keys() & document.keys()
    assert whole.keys() - shared == {"format", "request", "receipt"}
    assert {name: document[name] for name in shared} == {name: whole[name] for name in shared}


async def test_the_request_is_the_models_input_to_the_last_digit(http: RunningService, memory: Memory) -> None:
    # JavaScript would round the number and sort the keys.
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"10": 1}'}}
    told: list[dict[str, Any]] = [
        {"role": "user", "content": "Pay it, \ud83d please", "10": 12345678901234567890, "2": 1.0},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    ]
    session = memory.session("s")
    await session.append(*told)
    context = await session.read()
    for form in get_args(Format):
        answer = await http.ask("GET", f"{URL}/request", params={"format": form})
        written: Any = getattr(context, f"to_{form}")()
        assert answer.json() == (written if isinstance(written, dict) else {LISTS[form]: written})
        assert answer.headers["content-type"] == "application/json"
        assert answer.text.startswith('{\n  "')
    text = (await http.ask("GET", f"{URL}/request")).text
    assert '"10": 12345678901234567890,\n      "2": 1.0' in text
    # An opaque message stays as it is, even with half an emoji, which UTF-8 cannot encode.
    await session.append(Message.opaque({"half": "\ud83d"}))
    text = (await http.ask("GET", f"{URL}/request")).text
    assert json.loads(text)["messages"][-1] == {"half": "\ud83d"}
