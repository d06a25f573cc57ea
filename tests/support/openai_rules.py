"""Checks of requests to OpenAI's two APIs: the types of its SDK, and what its servers refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from support.provider_rules import check_openai, check_sendable, consume_iterables

Payload = dict[str, Any]
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_PARTS = {
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
}


def check_chat(messages: list[Any]) -> None:
    """Check messages for chat completions.

    Raises:
        ValidationError: A message does not fit the types.
        AssertionError: OpenAI refuses a message.
    """
    check_sendable(messages)
    check_openai(messages)
    assert [fault for at, message in enumerate(messages) for fault in _message_faults(at, message)] == []
    assert list(_pair_faults(messages)) == []


def _message_faults(at: int, message: Payload) -> Iterator[str]:
    role, content = message.get("role"), message.get("content")
    if role not in (*_PARTS, "function"):
        yield f"{at}: role {role}"
    if isinstance(content, list):
        kinds = {part["type"] for part in content}
        if not content or not kinds <= _PARTS.get(str(role), set()):
            yield f"{at}: {kinds} from {role}"
    elif content is None:
        if role != "assistant" or not any(
            message.get(name) for name in ("tool_calls", "function_call", "audio", "refusal")
        ):
            yield f"{at}: null content"
    elif not isinstance(content, str):
        yield f"{at}: content {content!r}"
    if "name" in message and role != "tool" and not re.fullmatch(r"[^\s<|\\/>]{1,64}", message["name"]):
        yield f"{at}: name {message['name']!r}"
    if message.get("tool_calls") == []:
        yield f"{at}: no calls"
    yield from _call_faults(at, message)


def _call_faults(at: int, message: Payload) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        function = call.get(call.get("type"), {})
        if call.get("type") not in ("function", "custom") or not _NAME.fullmatch(function.get("name", "")):
            yield f"{at}: {call}"
        if not isinstance(call.get("id"), str) or not 0 < len(call["id"]) <= 40:
            yield f"{at}: id {call.get('id')!r}"
        if call["type"] == "function":
            json.loads(function["arguments"], parse_int=str)


def _pair_faults(messages: list[Payload]) -> Iterator[str]:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message["role"]
        if role in ("tool", "function"):
            answered = message["tool_call_id" if role == "tool" else "name"]
            if answered not in waiting:
                yield f"{at}: {answered} is not waited for"
            else:
                waiting.remove(answered)
            continue
        if waiting:
            yield f"{at}: {waiting} without results"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        waiting += [message["function_call"]["name"]] if message.get("function_call") else []


@cache
def _items() -> dict[str, TypeAdapter[Any]]:
    """The types of the items that a view writes anew; all others go back as they came."""
    from openai.types import responses
    from openai.types.responses import response_input_item_param as items

    return {
        "message": TypeAdapter(responses.EasyInputMessageParam | responses.ResponseOutputMessageParam),
        "function_call": TypeAdapter(responses.ResponseFunctionToolCallParam),
        "function_call_output": TypeAdapter(items.FunctionCallOutput),
        "custom_tool_call": TypeAdapter(responses.ResponseCustomToolCallParam),
        "custom_tool_call_output": TypeAdapter(responses.ResponseCustomToolCallOutputParam),
    }


def check_responses(items: list[Any], *, store: bool = True) -> None:
    """Check the input of the Responses API; without `store`, OpenAI knows no ids.

    Raises:
        ValidationError: An item does not fit the types.
        AssertionError: OpenAI refuses an item.
    """
    check_sendable(items)
    for item in items:
        kind = item.get("type", "message")
        if kind in _items():
            typed = _filled(item) if kind == "message" else item
            consume_iterables(_items()[kind].validate_python(typed))
    assert list(_item_faults(items, store)) == []


def _filled(message: Payload) -> Payload:
    """Return a message with the fields that the types ask for, and the servers do not."""
    content = message["content"]
    if isinstance(content, list):
        content = [{"detail": "auto", **part} if part["type"] == "input_image" else part for part in content]
    return {**({"id": "of the type"} if "type" in message else {}), **message, "content": content}


def _item_faults(items: list[Payload], store: bool) -> Iterator[str]:
    seen: set[str] = set()
    made: set[str] = set()
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        item_id = item.get("id")
        if item_id is not None and (item_id in seen or not store):
            yield f"{at}: id {item_id}"
        seen.add(str(item_id))
        if kind == "message":
            yield from _content_faults(at, item)
        if kind == "function_call":
            json.loads(item["arguments"], parse_int=str)
        if kind in ("function_call", "custom_tool_call"):
            made.add(item["call_id"])
            if not _NAME.fullmatch(item["name"]) or not 0 < len(item["call_id"]) <= 64:
                yield f"{at}: {item}"
        if kind in ("function_call_output", "custom_tool_call_output"):
            if item["call_id"] not in made:
                yield f"{at}: {item['call_id']} is not waited for"
            if not isinstance(item["output"], str | list):
                yield f"{at}: {item['output']!r}"


def _content_faults(at: int, item: Payload) -> Iterator[str]:
    if not item.keys() <= {"role", "content", "type", "id", "status", "phase"}:
        yield f"{at}: fields {sorted(item)}"
    content = item["content"]
    allowed = ("output_text", "refusal") if item["role"] == "assistant" else ("input_text", "input_image", "input_file")
    if isinstance(content, list) and (not content or any(part["type"] not in allowed for part in content)):
        yield f"{at}: content of {item['role']}"
