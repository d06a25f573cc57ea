"""Contexts of given messages in each provider's form, checked by its rules."""

from __future__ import annotations

import base64
from typing import Any

from redismem.context import Context, State, Summary
from redismem.messages.message import Message
from support.provider_rules import check_anthropic, check_gemini

Payload = dict[str, Any]
PNG = base64.b64encode(b"\x89PNG-bytes").decode()
URL = "https://example.com/cat.png"


def context(*payloads: Payload, summaries_count: int = 0) -> Context:
    summaries = [
        Summary(f"1-a:{at}", f"summary {at}", at, at, 0, 0, "m", 1, 0, ()) for at in range(1, summaries_count + 1)
    ]
    messages = [Message.from_openai(payload) for payload in payloads]
    return Context("s", summaries, messages, State(), len(messages), 1, len(messages), "1-a", 6)


def anthropic(*payloads: Payload, summaries_count: int = 0) -> Any:
    found = context(*payloads, summaries_count=summaries_count).to_anthropic()
    check_anthropic(found)
    return found


def gemini(*payloads: Payload, summaries_count: int = 0) -> Any:
    found = context(*payloads, summaries_count=summaries_count).to_gemini()
    check_gemini(found)
    return found


def user(content: Any) -> Payload:
    return {"role": "user", "content": content}


def assistant(content: Any, **others: Any) -> Payload:
    return {"role": "assistant", "content": content, **others}


def chat_call(*ids: str, arguments: str = '{"city": "Bern"}', **others: Any) -> Payload:
    function = {"name": "weather", "arguments": arguments}
    return assistant(None, tool_calls=[{"id": id, "type": "function", "function": function, **others} for id in ids])


def chat_result(id: str, content: Any = "sunny") -> Payload:
    return {"role": "tool", "tool_call_id": id, "content": content}


def text(words: str) -> Payload:
    return {"type": "text", "text": words}
