"""Checks of a context by the types in the providers' SDKs, and by the rules of their servers."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter

Payload = dict[str, Any]
_ADDRESS = r"://[\w.-]+(:\d{1,5})?([/?#][!-;=?-\[\]_a-z~]*)?"
_FROM_URL = str.maketrans("-_", "+/")
_TEXTS = r"text/(plain|html|css|csv|xml|rtf|md|markdown|javascript|x-python)"
_GEMINI_TYPES = (
    rf"image/(png|jpeg|webp|heic|heif)|{_TEXTS}|application/(pdf|json|x-javascript|x-python)|(audio|video)/[a-z0-9-]+"
)


# Imported inside functions, as the SDKs take seconds to import and every process collects all tests.
@cache
def _openai_message() -> TypeAdapter[Any]:
    from openai.types.chat import ChatCompletionMessageParam

    return TypeAdapter(ChatCompletionMessageParam)


@cache
def _anthropic_types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """Return the types of a message and of a block of the system text."""
    from anthropic.types import MessageParam, TextBlockParam

    return TypeAdapter(MessageParam), TypeAdapter(TextBlockParam)


def consume_iterables(value: Any) -> Any:
    """Return the value with all iterables read: pydantic validates iterables only on reading."""
    if isinstance(value, dict):
        return {key: consume_iterables(item) for key, item in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, BaseModel):  # some published types of input hold models of output
        return consume_iterables(value.model_dump(exclude_unset=True))
    return [consume_iterables(item) for item in value]


def check_openai(messages: list[Any]) -> None:
    """Check messages for OpenAI. Unknown keys are allowed.

    Raises:
        ValidationError: A message does not fit the types.
    """
    for message in messages:
        consume_iterables(_openai_message().validate_python(message))


def check_sendable(context: Any) -> None:
    """Check that a client can send the context as UTF-8 and JSON.

    Raises:
        ValueError: It holds a lone surrogate, NaN or infinity.
    """
    json.dumps(context, ensure_ascii=False, allow_nan=False).encode()


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def _values(value: Any, depth: int = 1) -> Iterator[tuple[int, Any]]:
    """Yield each value in an object with its depth."""
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield depth, inner
        yield from _values(inner, depth + 1)


def object_faults(value: Any) -> Iterator[str]:
    """Yield faults of the arguments of a call: too deep for protobuf, or a number too large for a double."""
    if not isinstance(value, dict):
        yield f"arguments of the type {type(value).__name__}"
    for depth, inner in _values(value):
        if depth > 32 or (type(inner) is int and abs(inner) >= 2**1023):
            yield "arguments that are too deep, or a number that is too large"


def check_anthropic(context: Any) -> None:
    """Check a context.

    Raises:
        ValidationError: It does not fit the types.
        AssertionError: It breaks a rule.
    """
    check_sendable(context)
    for kind, items in zip(_anthropic_types(), (context["messages"], context.get("system", [])), strict=True):
        for item in items:
            assert consume_iterables(kind.validate_python(item)) == item, "it has unknown keys"
    assert list(_anthropic_faults(context["messages"])) == []
    assert str(context).count("'cache_control': {") <= 4


def _anthropic_faults(messages: list[Payload]) -> Iterator[str]:
    if [message["role"] for message in messages] != (["user", "assistant"] * len(messages))[: len(messages)]:
        yield "the roles do not alternate from the user on"
    used: set[str] = set()
    asked: set[str] = set()
    for at, message in enumerate(messages):
        blocks = message["content"]
        if not blocks:
            yield f"{at}: empty"
        yield from (f"{at}: blank" for block in blocks if block["type"] == "text" and not block["text"].strip())
        answers = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if [block["type"] for block in blocks[: len(answers)]] != ["tool_result"] * len(answers):
            yield f"{at}: results do not stand first"
        if len(set(answers)) < len(answers) or not set(answers) <= asked:
            yield f"{at}: {answers} answer {asked}"
        if asked != set(answers) and (at + 1 < len(messages) or len(blocks) > len(answers)):
            yield f"{at}: of {asked} only {answers} are answered"
        calls = [block for block in blocks if block["type"] == "tool_use"]
        asked = {call["id"] for call in calls}
        if len(asked) < len(calls) or asked & used or (calls and message["role"] == "user"):
            yield f"{at}: calls of {asked}, used are {used}"
        yield from (f"{at}: {call['name']}" for call in calls if not re.fullmatch(r"[\w-]{1,64}", call["name"], re.A))
        yield from (f"{at}: {each}" for each in asked if not re.fullmatch(r"[\w-]+", each, re.A))
        used |= asked
        yield from (f"{at}: {fault}" for call in calls for fault in object_faults(call["input"]))
        yield from (f"{at}: {fault}" for block in blocks for fault in _anthropic_media_faults(block))
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text" and last["text"] != last["text"].rstrip():
            yield "it ends in a blank"


def _anthropic_media_faults(block: Payload) -> Iterator[str]:
    if block["type"] == "tool_result":
        for inner in block.get("content", []):
            yield from _anthropic_media_faults(inner)
    source = block.get("source") if block["type"] in ("image", "document") else None
    match source:
        case {"type": "url", "url": str(url)}:
            if not re.fullmatch("https" + _ADDRESS, url, re.A | re.I):
                yield "an address that cannot be fetched"
        case {"type": "base64", "media_type": str(mime), "data": str(data)}:
            allowed = r"image/(jpeg|png|gif|webp)" if block["type"] == "image" else "application/pdf"
            if not re.fullmatch(allowed, mime) or not _is_base64(data):
                yield "bytes that are none, or of no type that is taken"
            if block["type"] == "image" and len(data) > 5 * 1024 * 1024:
                yield "an image that is too large"


def check_gemini(context: Any) -> None:
    """Check a context.

    Raises:
        ValidationError: It does not fit the types.
        AssertionError: It breaks a rule.
    """
    from google.genai import types

    check_sendable(context)
    for content in [
        *context["contents"],
        *([context["system_instruction"]] if "system_instruction" in context else []),
    ]:
        types.Content.model_validate(content)  # refuses unknown keys
    assert list(_gemini_faults(context["contents"])) == []


def _gemini_faults(contents: list[Payload]) -> Iterator[str]:
    if contents and contents[0]["role"] != "user":
        yield "the model speaks first"
    asked: list[str] = []
    for at, content in enumerate(contents):
        parts = content["parts"]
        if not parts or any(part.get("text") == "" and "thought_signature" not in part for part in parts):
            yield f"{at}: empty"
        if at and content["role"] == "model" == contents[at - 1]["role"]:
            yield f"{at}: the model speaks twice"
        answers = _names(parts, "function_response", "functionResponse")
        if answers and len(answers) < len(parts):
            yield f"{at}: answers and other parts"
        is_last = at + 1 == len(contents)
        if not is_prefix(answers, asked) if is_last and answers else answers != asked:
            yield f"{at}: {answers} to {asked}"
        asked = _names(parts, "function_call", "functionCall")
        if asked and content["role"] == "user":
            yield f"{at}: the user calls"
        yield from (f"{at}: {fault}" for part in parts for fault in _gemini_part_faults(part))
        yield from (f"{at}: {name}" for name in asked if not re.fullmatch(r"[A-Za-z_][\w.:-]{0,63}", name, re.A))
    yield from _unsigned_steps(contents)


def _unsigned_steps(contents: list[Payload]) -> Iterator[str]:
    """Yield the steps that Gemini 3 refuses: those of the current turn whose first call has no signature."""
    for at in range(len(contents) - 1, -1, -1):
        parts = contents[at]["parts"]
        if contents[at]["role"] == "user" and not all("function_response" in part for part in parts):
            return  # here the current turn begins
        calls = [part for part in parts if "function_call" in part]
        if calls and not _is_base64(calls[0].get("thought_signature", "").translate(_FROM_URL)):
            yield f"{at}: a first call of a step without a thought signature"


def _gemini_part_faults(part: Payload) -> Iterator[str]:
    for kind, held in (("function_call", "args"), ("function_response", "response")):
        if kind in part:
            yield from object_faults(part[kind][held])
    match part:
        case {"inline_data": {"mime_type": mime, "data": data}}:
            if not re.fullmatch(_GEMINI_TYPES, mime) or not _is_base64(data):
                yield "bytes that are none, or of no type that is taken"
        case {"file_data": {"file_uri": str(address), **others}}:
            if not re.fullmatch("(https?|gs)" + _ADDRESS, address, re.A | re.I):
                yield "an address that cannot be fetched"
            if not re.fullmatch(_GEMINI_TYPES, str(others.get("mime_type", "image/png"))):
                yield "a type that is not taken"


def _names(parts: list[Payload], *kinds: str) -> list[str]:
    return [part[kind]["name"] for part in parts for kind in kinds if kind in part]


def is_prefix(some: list[str], all_of_them: list[str]) -> bool:
    """True if `some` occur in `all_of_them` in order: open calls at the end have no answer."""
    left = iter(all_of_them)
    return all(each in left for each in some)


_GEMINI_CALLS = ("functionCall", "function_call")


def ids_of(payload: Payload) -> tuple[list[str], list[str]]:
    """Return the ids that a message calls and answers, without the code of redismem."""
    kind = str(payload.get("type", ""))
    if kind.endswith("_call"):
        return [payload["call_id"]], []
    if kind.endswith("_output"):
        return [], [payload["call_id"]]
    called = [each["id"] for each in payload.get("tool_calls") or []]
    called += [payload["function_call"]["name"]] if "function_call" in payload else []
    answered = [payload["tool_call_id"]] if "tool_call_id" in payload else []
    answered += [payload["name"]] if payload.get("role") == "function" else []
    for part in parts_of(payload):
        called += [part["id"]] if part.get("type") == "tool_use" else []
        answered += [part["tool_use_id"]] if part.get("type") == "tool_result" else []
        called += [each.get("id", each["name"]) for name, each in part.items() if name in _GEMINI_CALLS]
        answered += [each.get("id", each["name"]) for name, each in part.items() if name == "functionResponse"]
    return called, answered


def parts_of(payload: Payload) -> list[Payload]:
    found = payload.get("parts", payload.get("content"))
    return found if isinstance(found, list) else []


def complaints(payloads: list[Payload], anywhere: bool) -> list[str]:
    """Return the faults of tool calls. With `anywhere` a result may follow at any distance, as in Responses."""
    found = []
    waiting: set[str] = set()
    for at, payload in enumerate(payloads):
        called, answered = ids_of(payload)
        for id in answered:
            if id not in waiting:
                found.append(f"{at}: {id} is not waited for")
            waiting.discard(id)
        speaks = not answered or any("text" in part for part in parts_of(payload))
        if waiting and not anywhere and speaks:
            found.append(f"{at}: without {sorted(waiting)}")
        found += [f"{at}: {id} twice" for id in called if id in waiting]
        waiting = (waiting if anywhere else waiting if answered and not speaks else set()) | set(called)
    while payloads and (any(ids_of(payloads[-1]))):
        waiting -= set(ids_of(payloads[-1])[0])
        payloads = payloads[:-1]
    return found + ([f"{sorted(waiting)} never"] if anywhere and waiting else [])
