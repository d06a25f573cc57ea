"""Contexts of given messages in each provider's form, checked by its rules."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from redismem.context.context import Context
from redismem.context.results import State, Summary
from redismem.messages.message import Message
from support.converse_rules import check_converse
from support.openai_rules import check_chat, check_responses
from support.provider_rules import check_anthropic, check_gemini

Payload = dict[str, Any]
PNG = base64.b64encode(b"\x89PNG-bytes").decode()
URL = "https://example.com/cat.png"
VIEWS: dict[str, tuple[Callable[..., Any], Callable[[Any], None]]] = {
    "openai": (Context.to_openai, check_chat),
    "responses": (Context.to_responses, check_responses),
    "anthropic": (Context.to_anthropic, check_anthropic),
    "gemini": (Context.to_gemini, check_gemini),
    "converse": (Context.to_converse, check_converse),
}
"""Each view, and the check of its provider."""


def view_of(name: str, *payloads: Payload, **options: Any) -> Any:
    """Return a view that its provider accepts."""
    view, check = VIEWS[name]
    found = view(context(*payloads), **options)
    check(found)
    return found


def holds_picture(view: Any, data: str = PNG) -> bool:
    """True if a view has the bytes of a picture, encoded or not."""
    return data in str(view) or repr(base64.b64decode(data)) in str(view)


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
