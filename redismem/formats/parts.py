"""Parse messages of every wire format into texts, media, tool calls and results. No I/O.

Supports OpenAI chat, OpenAI Responses items, Anthropic and Gemini.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

from redismem.formats.media import guess_mime, parse_address, parse_base64, parse_data_url, parse_mime
from redismem.formats.tool_calls import (
    Payload,
    ToolCall,
    ToolResult,
    calls,
    gemini_field,
    label,
    quote_call,
    quote_result,
    tools_in,
    whole_result,
)

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
_ROLES = {"assistant": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "developer": SYSTEM}
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_BLOBS = ("inline_data", "inlineData", "file_data", "fileData")
SIGNATURES = ("thought_signature", "thoughtSignature")
_ITEM = ("type", "call_id", "name", "arguments", "input")


class Text(NamedTuple):
    """A text. `part` is the stored part, which may have other fields."""

    text: str
    part: Payload | None = None


class Media(NamedTuple):
    """An image, file or audio with a URL or base64 bytes; with neither if they are invalid.

    `part` is the stored part if it is in the format of Anthropic or Gemini.
    """

    kind: str
    mime: str
    url: str | None
    base64: str | None
    part: Payload | None = None


class Call(NamedTuple):
    """A tool call. `extra` is the stored call or part with its provider-specific fields."""

    call: ToolCall
    extra: Payload


class Native(NamedTuple):
    """A part that only one provider accepts."""

    provider: str
    part: Payload


class Result(NamedTuple):
    """A tool result and its content as parts; `extra` is the stored part with its provider-specific fields."""

    result: ToolResult
    parts: Sequence[Text | Media | Native]
    extra: Payload


Part = Text | Media | Call | Result | Native


def text_of(parts: Iterable[Part]) -> str:
    """Join the texts of parts with line breaks."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def role_of(payload: Payload) -> str:
    role = payload.get("role")
    return _ROLES.get(role, USER) if isinstance(role, str) else USER


def parse_message(payload: Payload, *, keep_signatures: bool = False) -> tuple[str, list[Part]]:
    """Return the role and parts of a message, without blank texts: providers refuse those.

    `keep_signatures` keeps an assistant's blank texts that carry a thought signature.
    """
    keep_signatures = keep_signatures and role_of(payload) == ASSISTANT
    whole = whole_result(payload)
    if whole is not None:
        return USER, [_result(whole, {})]
    if payload.get("type") == "reasoning":
        return ASSISTANT, []
    if payload.get("role") == "tool" and isinstance(payload.get("content"), str):  # the result of a call without an id
        name = payload.get("tool_name", payload.get("name"))
        return USER, [to_text(quote_result(ToolResult(("chat", ""), payload["content"]), name))]
    content = payload.get("content")
    parts: list[Part | None] = [Text(content)] if isinstance(content, str) else []
    parts += [_part(part, tool) if isinstance(part, dict) else Text(str(part)) for part, tool in tools_in(payload)]
    for beside in ("refusal", "audio"):
        words = payload.get(beside)
        words = words.get("transcript") if isinstance(words, dict) else words
        parts.append(Text(words) if isinstance(words, str) else None)
    parts += _calls(payload)
    filled = [part for part in parts if part is not None and _is_filled(part, keep_signatures)]
    if not filled and "role" not in payload and isinstance(payload.get("type"), str):
        return _item(payload, payload["type"])
    role = ASSISTANT if any(isinstance(part, Call) for part in filled) else role_of(payload)
    if role == USER:
        return role, filled
    return role, [to_text(quote_result(part.result, None)) if isinstance(part, Result) else part for part in filled]


def _is_filled(part: Part, keep_signatures: bool) -> bool:
    if not isinstance(part, Text):
        return True
    if part.text.strip():
        return True
    # Gemini requires its thought signatures back, and sends some beside an empty text.
    return keep_signatures and any(parse_base64((part.part or {}).get(name)) is not None for name in SIGNATURES)


def _item(payload: Payload, kind: str) -> tuple[str, list[Part]]:
    """Return a Responses item without an equivalent elsewhere as text: its output, or only its type."""
    output = payload.get("output")
    if isinstance(output, str) and output.strip():
        result = ToolResult(("item", str(payload.get("call_id", payload.get("id", "")))), output)
        return USER, [to_text(quote_result(result, payload.get("name", kind)))]
    return USER if kind.endswith("_output") else ASSISTANT, [Text(f"[{label(kind)}]")]


def _calls(payload: Payload) -> list[Part]:
    """Return the calls stored outside the content, such as `tool_calls`."""
    beside: list[Part] = []
    listed = payload.get("tool_calls")
    for raw in listed if isinstance(listed, list) else ():
        parsed = list(calls({"tool_calls": [raw]}))
        if parsed:
            beside.append(Call(parsed[0], raw))
        elif isinstance(raw, dict):  # a result cannot refer to a call without an id
            function = raw.get("function")
            function = function if isinstance(function, dict) else {}
            beside.append(to_text(quote_call(ToolCall(("chat", ""), function.get("name"), function.get("arguments")))))
    rest = {key: payload[key] for key in ("function_call", *_ITEM) if key in payload}
    return [*beside, *(Call(call, {}) for call in calls(rest))]


def _part(part: Payload, tool: ToolCall | ToolResult | None = None) -> Part | None:
    """Parse a part of a content; `tool` is its call or result. Returns None for Gemini's thoughts."""
    if isinstance(tool, ToolCall):
        return Call(tool, part)
    if tool is not None:
        return _result(tool, part)
    kind = part.get("type")
    text = part.get("text", part.get("refusal"))
    if isinstance(text, str) and (kind in _TEXTS or kind is None):
        return None if part.get("thought") else Text(text, part)
    if kind is None:
        return _gemini(part)
    return _media(part, str(kind)) or Native("anthropic", part)


def _gemini(part: Payload) -> Part:
    """Parse a Gemini part that is neither a text nor a call or result."""
    blob = gemini_field(part, _BLOBS)
    if blob is None:
        return Native("gemini", part)
    mime, data = parse_mime(blob.get("mime_type", blob.get("mimeType"))), parse_base64(blob.get("data"))
    kind, url = "image" if mime.startswith("image/") else "file", blob.get("file_uri", blob.get("fileUri"))
    return _at(url, kind, mime, part) if data is None and isinstance(url, str) else Media(kind, mime, None, data)


def _media(part: Payload, kind: str) -> Media | Text | None:
    if kind in ("image", "document"):
        return _anthropic_media(part, "image" if kind == "image" else "file")
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return _at(url, "image") if isinstance(url, str) else Media("image", "", None, None)
    if kind in ("file", "input_file"):
        file = part.get("file") if kind == "file" else part
        return _file(file) if isinstance(file, dict) else Media("file", "", None, None)
    if kind == "input_audio":
        audio = part.get("input_audio")
        audio = audio if isinstance(audio, dict) else {}
        return Media("audio", parse_mime(f"audio/{audio.get('format')}"), None, parse_base64(audio.get("data")))
    return None


def _anthropic_media(part: Payload, kind: str) -> Media | Text | None:
    source = part.get("source")
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return Media(kind, parse_mime(source.get("media_type")), None, parse_base64(source.get("data")), part)
    return _at(source["url"], kind, part=part) if isinstance(source.get("url"), str) else None


def _file(file: Payload) -> Media | Text:
    url = file.get("file_data") or file.get("file_url")
    data = parse_base64(file.get("file_data"))  # some applications omit the head of the data URL
    if data is not None:
        return Media("file", guess_mime(str(file.get("filename"))), None, data)
    return _at(url, "file") if isinstance(url, str) else Media("file", "", None, None)


def _at(url: str, kind: str, mime: str = "", part: Payload | None = None) -> Media | Text:
    """Return the media of a URL or data URL; an invalid URL becomes a text."""
    data = parse_data_url(url)
    if data is not None:
        return Media("image" if data[0].startswith("image/") else kind, data[0], None, data[1])
    address = parse_address(url)
    if address is None and url.strip():
        return Text(f"[{kind}: {url}]")
    return Media(kind, mime, address, None, part)


def _result(result: ToolResult, part: Payload) -> Result:
    content = result.content
    if isinstance(content, list):
        parsed = [_part(item) if isinstance(item, dict) else Text(str(item)) for item in content]
        parts = [item for item in parsed if isinstance(item, Text | Media) or _is_result_part(item)]
        if len(parts) == len(parsed):
            return Result(result, parts, part)
    if content is not None and not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False, default=repr)
    return Result(result, [Text(content)] if content else [], part)


def _is_result_part(part: Part | None) -> TypeGuard[Native]:
    """True for a native part that Anthropic accepts in tool results."""
    return isinstance(part, Native) and part.part.get("type") in ("image", "document", "search_result")


def to_text(payload: Payload) -> Text:
    return Text(payload["content"])


def placeholder(part: Part) -> str:
    """Return the text that replaces a part the provider does not accept: its kind, and its URL if it has one."""
    match part:
        case Text(text):
            return text
        case Media(kind, _, url, _):
            return f"[{kind}: {url}]" if url else f"[{kind}]"
        case Native(_, stored):
            kind = stored.get("type") or next(iter(stored), "part")
            return f"[{label(kind)}]"
        case Call(call):
            return to_text(quote_call(call)).text
        case Result(result):
            return to_text(quote_result(result, None)).text
