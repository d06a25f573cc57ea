"""What providers say of a context: their SDKs' published types, and the rules that their servers add."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic import TypeAdapter

Payload = dict[str, Any]


# Imported within functions: the SDKs take seconds, and every process collects all tests.
@cache
def _openai_message() -> TypeAdapter[Any]:
    from openai.types.chat import ChatCompletionMessageParam

    return TypeAdapter(ChatCompletionMessageParam)


@cache
def _anthropic_types() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    """The published types of a message, and of a block of the system's text."""
    from anthropic.types import MessageParam, TextBlockParam

    return TypeAdapter(MessageParam), TypeAdapter(TextBlockParam)


def _read(value: Any) -> Any:
    """The value with each iterable of a published type read to its end, which is when it is checked."""
    if isinstance(value, dict):
        return {key: _read(item) for key, item in value.items()}
    if isinstance(value, str | int | float | None):
        return value
    return [_read(item) for item in value]


def check_openai(messages: list[Any]) -> None:
    """Raises ValidationError for what no OpenAI message is. Keys that the types do not know are left alone."""
    for message in messages:
        _read(_openai_message().validate_python(message))


def check_anthropic(context: Any) -> None:
    """Raises ValidationError for what does not fit the types, AssertionError for what breaks a rule."""
    json.dumps(context)
    for kind, items in zip(_anthropic_types(), (context["messages"], context.get("system", [])), strict=True):
        for item in items:
            assert _read(kind.validate_python(item)) == item, "it has keys that the types do not know"
    assert list(_anthropic_faults(context["messages"])) == []


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
    if messages and messages[-1]["role"] == "assistant":
        last = messages[-1]["content"][-1]
        if last["type"] == "text" and last["text"] != last["text"].rstrip():
            yield "it ends in a blank"


def check_gemini(context: Any) -> None:
    """Raises ValidationError for what does not fit the types, AssertionError for what breaks a rule."""
    from google.genai import types

    json.dumps(context)
    for content in [
        *context["contents"],
        *([context["system_instruction"]] if "system_instruction" in context else []),
    ]:
        types.Content.model_validate(content)  # keys that it does not know are refused
    assert list(_gemini_faults(context["contents"])) == []


def _gemini_faults(contents: list[Payload]) -> Iterator[str]:
    if contents and contents[0]["role"] != "user":
        yield "the model speaks first"
    asked: list[str] = []
    for at, content in enumerate(contents):
        parts = content["parts"]
        if not parts or any(part.get("text") == "" for part in parts):
            yield f"{at}: empty"
        if at and content["role"] == "model" == contents[at - 1]["role"]:
            yield f"{at}: the model speaks twice"
        answers = _named(parts, "function_response", "functionResponse")
        if answers and len(answers) < len(parts):
            yield f"{at}: answers and other parts"
        is_last = at + 1 == len(contents)
        if not is_prefix(answers, asked) if is_last and answers else answers != asked:
            yield f"{at}: {answers} to {asked}"
        asked = _named(parts, "function_call", "functionCall")
        if asked and content["role"] == "user":
            yield f"{at}: the user calls"
        yield from (f"{at}: {name}" for name in asked if not re.fullmatch(r"[A-Za-z_][\w.:-]{0,63}", name, re.A))


def _named(parts: list[Payload], *kinds: str) -> list[str]:
    return [part[kind]["name"] for part in parts for kind in kinds if kind in part]


def is_prefix(some: list[str], all_of_them: list[str]) -> bool:
    """Whether the first are among the others, in their order: an open call may lack its answer at the very end."""
    left = iter(all_of_them)
    return all(each in left for each in some)
