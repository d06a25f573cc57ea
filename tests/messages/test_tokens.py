"""The default estimate of tokens: texts by their length, media by a constant, in the formats of all providers."""

from __future__ import annotations

import base64
import os
from typing import Any

import pytest

from redismem.messages.encoding import encode_message
from redismem.messages.message import Message

DATA = base64.b64encode(os.urandom(300_000)).decode()
URL = f"data:image/png;base64,{DATA}"
PARTS: dict[str, dict[str, Any]] = {
    "OpenAI": {"type": "image_url", "image_url": {"url": URL}},
    "OpenAI, audio": {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    "OpenAI, file": {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA}},
    "Responses": {"type": "input_image", "image_url": URL},
    "Anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    "Gemini": {"inlineData": {"mimeType": "image/png", "data": DATA.replace("+", "-").replace("/", "_")}},
    "Bedrock": {"image": {"format": "png", "source": {"bytes": DATA}}},
    "AI SDK": {"type": "image", "image": DATA, "mediaType": "image/png"},
    "AI SDK, file": {"type": "file", "url": URL, "mediaType": "image/png"},
    "LangChain": {"type": "image", "base64": DATA, "mime_type": "image/png"},
    "LlamaIndex": {"block_type": "image", "image": DATA},
    "Pydantic AI": {"kind": "binary", "data": DATA, "media_type": "image/png"},
    "Agent Framework": {"type": "data", "uri": URL},
    "a result": {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": DATA}}]},
}


def tokens_of(message: Any) -> int:
    return encode_message(message)[1]


@pytest.mark.parametrize("name", PARTS)
def test_a_medium_counts_as_a_picture_whatever_its_size(name: str) -> None:
    said = {"type": "text", "text": "What is this?"}
    once = tokens_of({"role": "user", "content": [said, PARTS[name]]})
    assert 1_000 < once < 1_100
    assert tokens_of({"role": "user", "content": [said, PARTS[name], PARTS[name]]}) < 2 * once
    assert 1_000 < tokens_of({"role": "user", "parts": [PARTS[name]]}) < 1_100
    assert tokens_of(Message.opaque({"content": {"parts": [PARTS[name]]}})) < 1_100


def test_a_picture_made_by_a_model_counts_as_one() -> None:
    assert tokens_of({"type": "image_generation_call", "id": "i", "result": DATA}) < 1_100


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": DATA},
        {"role": "user", "content": URL},
        {"role": "user", "content": [{"type": "text", "text": DATA}]},
        {"role": "tool", "tool_call_id": "c", "content": DATA},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "put", "input": {"data": DATA}}]},
        {"type": "function_call", "call_id": "c", "name": "put", "arguments": DATA},
        {"role": "user", "content": [{"type": "other", "data": "some words " * 40_000}]},
    ],
)
def test_what_a_model_reads_as_text_counts_by_its_length(message: Any) -> None:
    assert tokens_of(message) > 100_000


def test_a_small_picture_counts_by_its_length() -> None:
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA[:2_000]}"}}
    assert 500 < tokens_of({"role": "user", "content": [part]}) < 560
