"""A note takes the place of long texts, pictures and files, in the format of the message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redismem.formats.reading import calls_in, results
from redismem.formats.shortening import LONG_CHARS, shorten

LONG = "word " * 2_000
DATA = "iVBORw0KGgo" * 2_000
NOTE = "have left the context"

MESSAGES: dict[str, dict[str, Any]] = {
    "text": {"role": "user", "content": LONG},
    "chat result": {"role": "tool", "tool_call_id": "c", "content": LONG},
    "chat call": {
        "role": "assistant",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"a": LONG})}}
        ],
    },
    "chat picture": {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}],
    },
    "responses picture": {
        "role": "user",
        "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}],
    },
    "responses result": {"type": "function_call_output", "call_id": "c", "output": LONG},
    "responses call": {"type": "function_call", "call_id": "c", "name": "f", "arguments": json.dumps({"a": LONG})},
    "anthropic call": {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": LONG}}],
    },
    "anthropic result": {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
                    {"type": "text", "text": LONG},
                ],
            }
        ],
    },
    "gemini result": {
        "role": "user",
        "parts": [{"functionResponse": {"name": "f", "response": {"rows": [{"a": number} for number in range(900)]}}}],
    },
    "gemini picture": {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": DATA}}]},
    "bedrock result": {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c", "content": [{"text": LONG}, {"json": {"a": LONG}}]}}],
    },
    "pydantic": {
        "kind": "request",
        "parts": [
            {
                "part_kind": "user-prompt",
                "content": ["see", {"kind": "binary", "data": DATA, "media_type": "image/png"}],
            }
        ],
    },
    "llama": {"role": "user", "blocks": [{"block_type": "image", "image": DATA}]},
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_note_takes_the_place_and_the_rest_stays(name: str) -> None:
    message = MESSAGES[name]
    shorter = shorten(message)
    assert shorter is not None
    assert len(json.dumps(shorter)) < LONG_CHARS * 2 < len(json.dumps(message))
    assert NOTE in json.dumps(shorter)
    assert DATA[:100] not in json.dumps(shorter)
    assert [call.key for call in calls_in(shorter)] == [call.key for call in calls_in(message)]
    assert [result.key for result in results(shorter)] == [result.key for result in results(message)]
    assert shorten(shorter) is None


@pytest.mark.parametrize("name", ["chat call", "responses call"])
def test_arguments_stay_json(name: str) -> None:
    shorter = shorten(MESSAGES[name])
    assert shorter is not None
    (call,) = calls_in(shorter)
    assert NOTE in json.loads(call.arguments)["note"]


def test_a_picture_that_nothing_else_may_replace_becomes_a_pixel() -> None:
    output = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{DATA}"}
    shorter = shorten({"type": "computer_call_output", "call_id": "c", "output": output})
    assert shorter is not None
    assert shorter["output"]["image_url"].startswith("data:image/png;base64,")
    assert len(shorter["output"]["image_url"]) < 200


@pytest.mark.parametrize(
    ("message", "is_opaque"),
    [
        ({"role": "user", "content": "short"}, False),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": LONG, "signature": DATA}]}, False),
        ({"type": "reasoning", "id": "r", "summary": [], "encrypted_content": DATA}, False),
        ({"ciphertext": DATA, "role": "user"}, True),
    ],
)
def test_thoughts_and_what_nobody_can_read_stay(message: dict[str, Any], is_opaque: bool) -> None:
    assert shorten(message, is_opaque=is_opaque) is None


def test_known_parts_of_an_opaque_message_are_shortened() -> None:
    assert shorten(MESSAGES["llama"], is_opaque=True) is not None
