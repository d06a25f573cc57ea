"""Views give back to a provider all that it could use: signatures, references, ranges and errors."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from support.views import (
    PNG,
    URL,
    VIEWS,
    Payload,
    assistant,
    chat_call,
    chat_result,
    holds_picture,
    text,
    user,
    view_of,
)

INLINE = {"mime_type": "image/png", "data": PNG}
SIGNED = "c2lnbmVk"


@pytest.mark.parametrize("name", ["thought_signature", "thoughtSignature"])
@pytest.mark.parametrize(
    "part",
    [
        {"inline_data": INLINE},
        {"file_data": {"file_uri": URL, "mime_type": "image/png"}},
        {"executable_code": {"code": "1", "language": "PYTHON"}},
        {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"function_call": {"name": "look", "args": {}}},
        {"text": "hm", "thought": True},
    ],
)
def test_geminis_signature_is_on_each_part_that_had_it(part: Payload, name: str) -> None:
    told = [user("a"), {"role": "model", "parts": [part | {name: SIGNED}, {"text": "b"}]}]
    shown = view_of("gemini", *told)["contents"][1]["parts"]
    assert any(SIGNED in (each.get("thought_signature"), each.get("thoughtSignature")) for each in shown)
    assert SIGNED not in str(view_of("gemini", *told, thoughts=False))
    for other in set(VIEWS) - {"gemini"}:
        assert SIGNED not in str(view_of(other, *told))


def test_gemini_reads_the_range_and_the_resolution_of_a_video() -> None:
    part = {"file_data": {"file_uri": "https://youtu.be/x"}, "video_metadata": {"start_offset": "2s"}}
    camel = {"inlineData": {"mimeType": "video/mp4", "data": PNG, "displayName": "a.mp4"}}
    camel["mediaResolution"] = {"level": "MEDIA_RESOLUTION_LOW"}
    shown = view_of("gemini", {"role": "user", "parts": [part, camel]})["contents"][0]["parts"]
    assert shown[0] == part
    assert shown[1]["inline_data"] == {"mime_type": "video/mp4", "data": PNG, "display_name": "a.mp4"}
    assert shown[1]["media_resolution"] == camel["mediaResolution"]


def test_gemini_gets_the_picture_of_a_response_where_it_was() -> None:
    response = {"name": "look", "response": {"n": 1}, "parts": [{"inline_data": INLINE}]}
    told: list[Payload] = [user("a"), {"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]}]
    told.append({"role": "user", "parts": [{"function_response": response}]})
    assert view_of("gemini", *told)["contents"][2]["parts"] == [{"function_response": response}]


def test_anthropic_gets_the_caller_of_a_call_and_a_reference_to_a_tool() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}, "caller": {"type": "direct"}}
    reference = {"type": "tool_reference", "tool_name": "look_up"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [reference]}
    shown = view_of("anthropic", user("a"), assistant([call]), user([result]))["messages"]
    assert (shown[1]["content"], shown[2]["content"]) == ([call], [result])
    for other in set(VIEWS) - {"anthropic"}:
        assert "look_up" in str(view_of(other, user("a"), assistant([call]), user([result])))


@pytest.mark.parametrize("name", VIEWS)
def test_the_error_of_a_hosted_call_is_said(name: str) -> None:
    item = {"type": "mcp_call", "id": "m1", "name": "orders", "arguments": "{}", "server_label": "shop"}
    item |= {"output": "half of it", "error": "the shop is closed"}
    shown = str(view_of(name, user("a"), item, user("b")))
    assert ("half of it" in shown, "the shop is closed" in shown) == (True, True)
    assert name != "anthropic" or "'is_error': True" in shown


MCP = [text("it is red"), {"type": "image", "data": PNG, "mimeType": "image/png"}]


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("content", [MCP, {"content": MCP, "isError": False}, {"result": {"content": MCP}}])
def test_a_picture_of_mcp_in_any_wrapping(name: str, content: Any) -> None:
    gemini = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": content}}]}
    asked: Payload = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]}
    chats: list[list[Payload]] = [[chat_call("c1"), chat_result("c1", content)]]
    for told in [*chats, *([[asked, gemini]] if isinstance(content, dict) else [])]:
        view = view_of(name, user("a"), *told)
        assert holds_picture(view)
        assert "it is red" in str(view)


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PNG}"}, "input_image"),
        ({"type": "data", "uri": f"data:image/png;base64,{PNG}"}, "input_image"),
        ({"inline_data": INLINE}, "input_image"),
        ({"type": "media", "mediaType": "application/pdf", "data": PNG}, "input_file"),
    ],
)
def test_a_mime_type_tells_the_kind(part: Payload, kind: str) -> None:
    (shown,) = view_of("responses", user([part]))
    assert [each["type"] for each in shown["content"]] == [kind]


def test_converse_gets_its_own_blocks_back() -> None:
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    call = {"toolUse": {"toolUseId": "t1", "name": "look", "input": {"bytes": "QUJD"}}}
    picture = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}}
    document = {"document": {"format": "csv", "name": "prices", "source": {"bytes": PNG}, "context": "of May"}}
    result = {"toolResult": {"toolUseId": "t1", "content": [{"json": {"n": 1}}], "status": "success"}}
    point = {"cachePoint": {"type": "default"}}
    told = [user([{"text": "a"}, picture, document, point]), assistant([thought, call]), user([result, point])]
    told.insert(0, {"role": "system", "content": [{"text": "Be kind."}, point]})
    view = view_of("converse", *told)
    document["document"]["source"] = {"bytes": base64.b64decode(PNG)}
    assert view == {"system": told[0]["content"], "messages": told[1:]}
    assert "hm" not in str(view_of("converse", *told, thoughts=False))
    for name in set(VIEWS) - {"converse"}:
        assert "s3://bucket/a.png" in str(view_of(name, *told))


def test_files_of_one_name_are_told_apart_by_converse() -> None:
    file = {"type": "file", "file": {"filename": "my_report.v2.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}}
    (message,) = view_of("converse", user([file, file]))["messages"]
    assert [each["document"]["name"] for each in message["content"][:2]] == ["my report v2", "my report v2 2"]
    assert message["content"][2:] == [{"text": "[file]"}]
