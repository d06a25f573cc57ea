"""A user's picture and a tool's, in every stored format."""

from __future__ import annotations

import base64
from typing import Any

Payload = dict[str, Any]
ASKED = base64.b64encode(b"\x89PNG of the user").decode()
FOUND = base64.b64encode(b"\x89PNG of the tool").decode()


def _url(url: str) -> Payload:
    return {"type": "image_url", "image_url": {"url": url}}


def _source(data: str) -> Payload:
    return {"type": "base64", "media_type": "image/png", "data": data}


_ASKED_URL, _FOUND_URL = f"data:image/png;base64,{ASKED}", f"data:image/png;base64,{FOUND}"
_FUNCTION = {"name": "look", "arguments": "{}"}
_TEXT = {"type": "text", "text": "it is red"}
_MCP: Payload = {"type": "image", "data": FOUND, "mimeType": "image/png"}


def _chat() -> list[Payload]:
    return [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": _ASKED_URL}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": _FUNCTION}],
        },
        {"role": "tool", "tool_call_id": "c", "content": [_TEXT, _MCP]},
    ]


def _items() -> list[Payload]:
    output = [{"type": "input_text", "text": "it is red"}, {"type": "input_image", "image_url": _FOUND_URL}]
    return [
        {"role": "user", "content": [{"type": "input_image", "image_url": _ASKED_URL, "detail": "auto"}]},
        {"type": "function_call", "call_id": "c", **_FUNCTION},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]


def _anthropic() -> list[Payload]:
    content = [_TEXT, {"type": "image", "source": _source(FOUND)}]
    return [
        {"role": "user", "content": [{"type": "image", "source": _source(ASKED)}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
    ]


def _gemini() -> list[Payload]:
    part = {"inline_data": {"mime_type": "image/png", "data": FOUND}}
    response = {"name": "look", "response": {"words": "it is red"}, "parts": [part]}
    return [
        {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": ASKED}}]},
        {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]},
        {"role": "user", "parts": [{"function_response": response}]},
    ]


def _bedrock() -> list[Payload]:
    content = [{"text": "it is red"}, {"image": {"format": "png", "source": {"bytes": FOUND}}}]
    return [
        {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": ASKED}}}]},
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "look", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": content}}]},
    ]


def _ai_sdk() -> list[Payload]:
    value = [_TEXT, {"type": "media", "data": FOUND, "mediaType": "image/png"}]
    result = {"type": "tool-result", "toolCallId": "c", "toolName": "look"}
    return [
        {"role": "user", "content": [{"type": "image", "image": ASKED, "mediaType": "image/png"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "look", "input": {}}],
        },
        {"role": "tool", "content": [result | {"output": {"type": "content", "value": value}}]},
    ]


def _ui() -> list[Payload]:
    part = {"type": "tool-look", "toolCallId": "c", "state": "output-available", "input": {}}
    return [
        {"id": "1", "role": "user", "parts": [{"type": "file", "mediaType": "image/png", "url": _ASKED_URL}]},
        {"id": "2", "role": "assistant", "parts": [part | {"output": {"content": [_TEXT, _MCP]}}]},
    ]


def _agent_framework() -> list[Payload]:
    items = [_TEXT, {"type": "data", "uri": _FOUND_URL, "media_type": "image/png"}]
    call = {"type": "function_call", "call_id": "c", **_FUNCTION}
    return [
        {
            "type": "message",
            "role": "user",
            "contents": [{"type": "data", "uri": _ASKED_URL, "media_type": "image/png"}],
        },
        {"type": "message", "role": "assistant", "contents": [call]},
        {
            "type": "message",
            "role": "tool",
            "contents": [{"type": "function_result", "call_id": "c", "result": items}],
        },
    ]


def _langchain() -> list[Payload]:
    calls = [{"name": "look", "args": {}, "id": "c", "type": "tool_call"}]
    picture = {"type": "image", "base64": ASKED, "mime_type": "image/png"}
    return [
        {"type": "human", "data": {"type": "human", "content": [picture]}},
        {"type": "ai", "data": {"type": "ai", "content": "", "tool_calls": calls}},
        {"type": "tool", "data": {"type": "tool", "content": [_TEXT, _MCP], "tool_call_id": "c"}},
    ]


def _llamaindex() -> list[Payload]:
    call = {"block_type": "tool_call", "tool_call_id": "c", "tool_name": "look", "tool_kwargs": {}}
    image = {"block_type": "image", "image": FOUND, "image_mimetype": "image/png"}
    extra: Payload = {"additional_kwargs": {}}
    return [
        {"role": "user", **extra, "blocks": [image | {"image": ASKED}]},
        {"role": "assistant", **extra, "blocks": [call]},
        {
            "role": "tool",
            "additional_kwargs": {"tool_call_id": "c"},
            "blocks": [{"block_type": "text", "text": "it is red"}, image],
        },
    ]


def _pydantic_ai() -> list[Payload]:
    common = {"tool_name": "look", "tool_call_id": "c"}
    binary = {"kind": "binary", "data": FOUND, "media_type": "image/png"}
    return [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": [binary | {"data": ASKED}]}]},
        {"kind": "response", "parts": [{"part_kind": "tool-call", **common, "args": "{}"}]},
        {
            "kind": "request",
            "parts": [{"part_kind": "tool-return", **common, "content": ["it is red", binary]}],
        },
    ]


PICTURES = {
    "chat": _chat(),
    "function": _chat(),
    "items": _items(),
    "anthropic": _anthropic(),
    "gemini": _gemini(),
    "bedrock": _bedrock(),
    "ai sdk": _ai_sdk(),
    "ui": _ui(),
    "agent framework": _agent_framework(),
    "langchain": _langchain(),
    "llamaindex": _llamaindex(),
    "pydantic ai": _pydantic_ai(),
}
"""By format: a message with the picture ASKED, a call, and its result: the words `it is red` and the picture FOUND."""
