"""Answers, streams, vectors and failures as the three providers send them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from support.embedders import vector

PIECES = ["Your ", "parcel ", "is ", "on ", "its ", "way."]
TEXT = "".join(PIECES)


def openai_answer(text: Any, **changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"} | changes
    usage = {"prompt_tokens": 101, "completion_tokens": 11, "total_tokens": 112}
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}


def anthropic_answer(text: Any, **changes: Any) -> dict[str, Any]:
    usage = {"input_tokens": 101, "output_tokens": 11}
    content = [{"type": "text", "text": text}]
    return {
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": "end_turn",
        "usage": usage,
    } | changes


def gemini_answer(text: Any, **changes: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0} | changes
    usage = {"promptTokenCount": 101, "candidatesTokenCount": 11, "totalTokenCount": 112}
    return {"candidates": [candidate], "usageMetadata": usage}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "openai": openai_answer,
    "anthropic": anthropic_answer,
    "gemini": gemini_answer,
}
CUT_SHORT = {
    "openai": {"finish_reason": "length"},
    "anthropic": {"stop_reason": "max_tokens"},
    "gemini": {"finishReason": "MAX_TOKENS"},
}
REFUSED = {
    "openai": openai_answer("half a", finish_reason="content_filter"),
    "anthropic": anthropic_answer("", stop_reason="refusal", content=[]),
    "gemini": {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 101}},
}
TOOL_CALLS = {
    "openai": openai_answer(
        None,
        message={"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function"}]},
        finish_reason="tool_calls",
    ),
    "anthropic": anthropic_answer("", content=[{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
    "gemini": gemini_answer("", content={"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}),
}


def make_vectors(texts: Sequence[str], mode: str) -> list[Any]:
    """Return a vector per text; some modes spoil them."""
    found: list[Any] = [vector(text, 32) for text in texts]
    spoilt: dict[str, list[Any]] = {
        "few": found[1:],
        "many": [*found, found[0]],
        "ragged": [*found[1:], found[0][:7]],
        "nan": [[float("nan"), *found[0][1:]], *found[1:]],
        "words": ["x", *found[1:]],
        "empty": [[] for _ in found],
    }
    return spoilt.get(mode, found)


def openai_vectors(found: Sequence[Any]) -> dict[str, Any]:
    """Return an answer of OpenAI, which may order the vectors in any way: each has its index."""
    items = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(found)]
    return {"object": "list", "data": items[::-1], "usage": {"prompt_tokens": 7, "total_tokens": 7}}


def gemini_vectors(found: Sequence[Any]) -> dict[str, Any]:
    return {"embeddings": [{"values": each} for each in found]}


VECTORS: dict[str, Callable[[Sequence[Any]], dict[str, Any]]] = {"openai": openai_vectors, "gemini": gemini_vectors}
FAILURES = {
    "400": (400, {"code": "context_length_exceeded", "message": "too long: canary-text"}),
    "echo": (422, {"code": "canary-text in a code", "type": ["canary-text"], "status": "INVALID"}),
    "401": (401, {"code": "invalid_api_key", "type": "authentication_error", "message": "Incorrect key: canary-echo"}),
    "gemini-key": (
        400,
        {
            "code": 400,
            "status": "INVALID_ARGUMENT",
            "details": ["?", {"reason": "API_KEY_INVALID"}],
            "message": "canary",
        },
    ),
    "403": (403, {"message": "canary"}),
    "408": (408, {}),
    "413": (413, {}),
    "502": (502, {}),
    "404": (404, {"code": 404, "status": "NOT_FOUND", "message": "This model is no longer available."}),
    "429": (429, {"type": "rate_limit_error", "status": "RESOURCE_EXHAUSTED"}),
    "quota": (429, {"code": "insufficient_quota", "type": "insufficient_quota"}),
    "500": (500, {"type": "api_error", "message": "canary-echo"}),
    "503": (503, {"status": "UNAVAILABLE"}),
    "529": (529, {"type": "overloaded_error"}),
}


def encode_event(document: dict[str, Any]) -> bytes:
    return b"event: x\ndata: %s\n\n" % json.dumps(document).encode()


def openai_chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def stream_piece(provider: str, text: str) -> dict[str, Any]:
    """Return the event of one piece of a streamed answer."""
    if provider == "openai":
        return openai_chunk({"content": text})
    if provider == "anthropic":
        return {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]}


def call_message(*calls: tuple[str, str, dict[str, Any]], content: str | None = None) -> dict[str, Any]:
    """Return a message of the assistant that calls tools, each given as id, name and arguments."""
    tool_calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def finish_reason(message: dict[str, Any]) -> str:
    return "tool_calls" if message.get("tool_calls") else "stop"


def stream_message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunks in which OpenAI streams this message: words of the text, then the calls in two parts each."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", message.get("content") or "")]
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        deltas += [
            {"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]},
            {"tool_calls": [{"index": index, "function": {"arguments": function["arguments"]}}]},
        ]
    for delta in deltas:
        yield openai_chunk(delta)
    yield openai_chunk({}, finish_reason(message))


def anthropic_message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events in which Anthropic streams a text and calls, whose input comes in two parts."""
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if text := message.get("content"):
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]))
    for call in message.get("tool_calls", ()):
        given, half = call["function"]["arguments"], len(call["function"]["arguments"]) // 2
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in (given[:half], given[half:])]
        blocks.append(({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": {}}, deltas))
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use" if message.get("tool_calls") else "end_turn"}}
    yield {"type": "message_stop"}


def gemini_message(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events in which Gemini streams a text and calls, each whole; the first one with a signature."""
    parts: list[dict[str, Any]] = [{"text": message["content"]}] if message.get("content") else []
    for at, call in enumerate(message.get("tool_calls", ())):
        function = {"name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
        parts.append({"functionCall": function, **({} if at else {"thoughtSignature": SIGNATURE})})
    for part in parts:
        yield {"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
    yield {"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}]}


SIGNATURE = "c2lnbmF0dXJl"
STREAM_MESSAGES: dict[str, Callable[[dict[str, Any]], Iterator[dict[str, Any]]]] = {
    "openai": stream_message,
    "anthropic": anthropic_message,
    "gemini": gemini_message,
}
STREAM_STARTS: dict[str, list[Any]] = {
    "openai": [openai_chunk({"role": "assistant", "content": ""})],
    "anthropic": [],
    "gemini": [],
}
STREAM_ENDS: dict[str, list[Any]] = {
    "openai": [openai_chunk({}, "stop"), b"data: [DONE]\n\n"],
    "anthropic": [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}],
    "gemini": [{"candidates": [{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}]}],
}
STREAM_LIMITS: dict[str, list[Any]] = {
    "openai": [openai_chunk({}, "length"), b"data: [DONE]\n\n"],
    "anthropic": [{"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}, {"type": "message_stop"}],
    "gemini": [{"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}],
}
STREAM_ERRORS: dict[str, dict[str, Any]] = {
    "openai": {"error": {"message": "canary-echo", "type": "server_error"}},
    "anthropic": {"type": "error", "error": {"type": "overloaded_error", "message": "canary-echo"}},
    "gemini": {"error": {"code": 503, "message": "canary-echo"}},
}
STREAM_REFUSED: dict[str, dict[str, Any]] = {
    "openai": {"choices": [{"delta": {}, "finish_reason": "content_filter"}]},
    "anthropic": {"type": "message_delta", "delta": {"stop_reason": "refusal"}},
    "gemini": {"promptFeedback": {"blockReason": "SAFETY"}},
}
