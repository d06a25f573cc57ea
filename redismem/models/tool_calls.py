"""Tools that the caller of a model runs: their form for each provider, and the calls of a streamed answer. No I/O."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Tools = Sequence[Mapping[str, Any]]
"""Functions in the format of OpenAI's chat API: `{"type": "function", "function": {"name": …, "parameters": …}}`."""


class CallPart(NamedTuple):
    """A part of a tool call, from one event of a stream."""

    number: int | None
    """The place of the call in the answer; `None` means that the part is a whole call."""
    id: str = ""
    name: str = ""
    arguments: str = ""
    beside: Mapping[str, Any] = {}
    """Further members of the call, which its provider wants back."""


class ToolDelta(NamedTuple):
    """The next part of a tool call. The first one has the name, the last one the whole call in OpenAI's format."""

    id: str
    name: str = ""
    delta: str = ""
    whole: dict[str, Any] | None = None


@dataclass(slots=True)
class _Call:
    given_id: str
    id: str
    name: str
    beside: Mapping[str, Any]
    arguments: list[str] = field(default_factory=list)


class CallsOfAnswer:
    """The tool calls of an answer, put together from the parts of its stream."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, part: CallPart) -> ToolDelta:
        """Add a part, and return what it adds."""
        call = None if part.number is None else self._at.get(part.number)
        is_new = call is None or part.id not in ("", call.given_id)  # some servers number every call 0
        if call is None or is_new:
            call = self._begin(part)
        if part.arguments:
            call.arguments.append(part.arguments)
        return ToolDelta(call.id, call.name if is_new else "", part.arguments)

    def end(self) -> Iterator[ToolDelta]:
        """Yield the end of each call, in order."""
        for call in self._calls:
            function = {"name": call.name, "arguments": "".join(call.arguments) or "{}"}
            yield ToolDelta(call.id, whole={"id": call.id, "type": "function", "function": function, **call.beside})

    def _begin(self, part: CallPart) -> _Call:
        is_used = any(each.id == part.id for each in self._calls)
        call = _Call(part.id, f"call_{uuid.uuid4().hex}" if is_used or not part.id else part.id, part.name, part.beside)
        self._calls.append(call)
        if part.number is not None:
            self._at[part.number] = call
        return call


def openai_parts(delta: Any) -> tuple[CallPart, ...]:
    """Return the parts of calls in a delta of OpenAI's stream."""
    entries = delta.get("tool_calls") if isinstance(delta, dict) else None
    parts = []
    for entry in entries if isinstance(entries, list) else ():
        function = entry.get("function") if isinstance(entry, dict) else None
        if isinstance(function, dict):
            given, index = function.get("arguments"), entry.get("index")
            arguments = given if isinstance(given, str) else "" if given is None else json.dumps(given)
            beside = {"extra_content": entry["extra_content"]} if "extra_content" in entry else {}
            at = index if type(index) is int else 0
            parts.append(CallPart(at, _text(entry.get("id")), _text(function.get("name")), arguments, beside))
    return tuple(parts)


def anthropic_part(event: Any) -> tuple[CallPart, ...]:
    """Return the part of a call in an event of Anthropic's stream."""
    match event:
        case {"type": "content_block_start", "index": int(at), "content_block": {"type": "tool_use", **block}}:
            return (CallPart(at, _text(block.get("id")), _text(block.get("name"))),)
        case {"type": "content_block_delta", "index": int(at), "delta": {"partial_json": str(arguments)}}:
            return (CallPart(at, arguments=arguments),)
    return ()


def gemini_parts(candidate: Any) -> tuple[CallPart, ...]:
    """Return the calls in an event of Gemini's stream, each a whole one, with the signature that Gemini wants back."""
    match candidate:
        case {"content": {"parts": [*parts]}}:
            return tuple(_gemini_call(part) for part in parts if isinstance(part, dict) and "functionCall" in part)
    return ()


def _gemini_call(part: Mapping[str, Any]) -> CallPart:
    call = part["functionCall"] if isinstance(part["functionCall"], dict) else {}
    signature = part.get("thoughtSignature")
    beside = {"extra_content": {"google": {"thought_signature": signature}}} if isinstance(signature, str) else {}
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return CallPart(None, _text(call.get("id")), _text(call.get("name")), arguments, beside)


def anthropic_tools(tools: Tools) -> list[dict[str, Any]]:
    """Return the tools for Anthropic's Messages API."""
    return [
        {**_described(function), "input_schema": function.get("parameters") or {"type": "object"}}
        for function in _functions(tools)
    ]


def gemini_tools(tools: Tools) -> list[dict[str, Any]]:
    """Return the tools for Gemini's generateContent, which knows no `$schema`, such as generators of schemas write."""
    declarations = []
    for function in _functions(tools):
        schema = {name: value for name, value in (function.get("parameters") or {}).items() if name != "$schema"}
        declarations.append(_described(function) | ({"parametersJsonSchema": schema} if schema else {}))
    return [{"functionDeclarations": declarations}]


def _functions(tools: Tools) -> list[Mapping[str, Any]]:
    return [tool["function"] for tool in tools]


def _described(function: Mapping[str, Any]) -> dict[str, Any]:
    return {name: function[name] for name in ("name", "description") if function.get(name)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
