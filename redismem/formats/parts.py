"""What a message says, whatever wire format it is stored in: texts, media, calls and results. No I/O.

Read are OpenAI chat, OpenAI Responses items, Anthropic and Gemini.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeGuard

from redismem.formats.media import address_of, base64_of, data_of, mime_at, mime_of
from redismem.formats.tool_calls import (
    Payload,
    ToolCall,
    ToolResult,
    calls,
    label,
    own_of,
    quoted_call,
    quoted_result,
    tools_in,
    whole_result,
)

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
_ROLES = {"assistant": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "developer": SYSTEM}
_TEXTS = ("text", "input_text", "output_text", "refusal", "summary_text")
_BLOBS = ("inline_data", "inlineData", "file_data", "fileData")
_ITEM = ("type", "call_id", "name", "arguments", "input")


class Text(NamedTuple):
    """Words. `part`: as they were stored, as a part may say more than its text."""

    text: str
    part: Payload | None = None


class Media(NamedTuple):
    """An image, a file or a sound: at an address that can be fetched, or its bytes in base64; neither if it is odd.

    `part`: as it was stored, if that is Anthropic's form or Gemini's.
    """

    kind: str
    mime: str
    url: str | None
    base64: str | None
    part: Payload | None = None


class Call(NamedTuple):
    """A tool call. `extra`: what stood beside it and belongs to one provider."""

    call: ToolCall
    extra: Payload


class Native(NamedTuple):
    """A part that one provider alone understands."""

    provider: str
    part: Payload


class Result(NamedTuple):
    """What a tool answered. `parts`: texts and media of it."""

    result: ToolResult
    parts: Sequence[Text | Media | Native]
    extra: Payload


Part = Text | Media | Call | Result | Native


def text_of(parts: Iterable[Part]) -> str:
    """The texts of these parts, a line break between."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def role_of(payload: Payload) -> str:
    role = payload.get("role")
    return _ROLES.get(role, USER) if isinstance(role, str) else USER


def said(payload: Payload) -> tuple[str, list[Part]]:
    """Who says what in a message. Blank texts are left out: providers refuse them."""
    whole = whole_result(payload)
    if whole is not None:
        return USER, [_result(whole, {})]
    if payload.get("type") == "reasoning":
        return ASSISTANT, []
    if payload.get("role") == "tool" and isinstance(payload.get("content"), str):  # of no call that has an id
        name = payload.get("tool_name", payload.get("name"))
        return USER, [quoted(quoted_result(ToolResult(("chat", ""), payload["content"]), name))]
    content = payload.get("content")
    parts: list[Part | None] = [Text(content)] if isinstance(content, str) else []
    parts += [_part(part, tool) if isinstance(part, dict) else Text(str(part)) for part, tool in tools_in(payload)]
    for beside in ("refusal", "audio"):
        words = payload.get(beside)
        words = words.get("transcript") if isinstance(words, dict) else words
        parts.append(Text(words) if isinstance(words, str) else None)
    parts += _calls(payload)
    kept = [part for part in parts if part is not None and not (isinstance(part, Text) and not part.text.strip())]
    if not kept and "role" not in payload and isinstance(payload.get("type"), str):
        return _item(payload, payload["type"])
    role = ASSISTANT if any(isinstance(part, Call) for part in kept) else role_of(payload)
    if role == USER:
        return role, kept
    return role, [quoted(quoted_result(part.result, None)) if isinstance(part, Result) else part for part in kept]


def _item(payload: Payload, kind: str) -> tuple[str, list[Part]]:
    """An item of Responses that the others have no form for: its kind, and what came of it if that is a text."""
    output = payload.get("output")
    if isinstance(output, str) and output.strip():
        result = ToolResult(("item", str(payload.get("call_id", payload.get("id", "")))), output)
        return USER, [quoted(quoted_result(result, payload.get("name", kind)))]
    return USER if kind.endswith("_output") else ASSISTANT, [Text(f"[{label(kind)}]")]


def _calls(payload: Payload) -> list[Part]:
    """The calls that stand beside the content."""
    beside: list[Part] = []
    listed = payload.get("tool_calls")
    for raw in listed if isinstance(listed, list) else ():
        found = list(calls({"tool_calls": [raw]}))
        if found:
            beside.append(Call(found[0], raw))
        elif isinstance(raw, dict):  # without an id there is nothing to hold its result to
            function = raw.get("function")
            function = function if isinstance(function, dict) else {}
            beside.append(quoted(quoted_call(ToolCall(("chat", ""), function.get("name"), function.get("arguments")))))
    rest = {key: payload[key] for key in ("function_call", *_ITEM) if key in payload}
    return [*beside, *(Call(call, {}) for call in calls(rest))]


def _part(part: Payload, tool: ToolCall | ToolResult | None = None) -> Part | None:
    """What a part of a content says, which may be a tool's; None for thoughts of Gemini's."""
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
    """A part of Gemini's that is neither a text nor a tool's."""
    blob = own_of(part, _BLOBS)
    if blob is None:
        return Native("gemini", part)
    mime, data = mime_of(blob.get("mime_type", blob.get("mimeType"))), base64_of(blob.get("data"))
    kind, url = "image" if mime.startswith("image/") else "file", blob.get("file_uri", blob.get("fileUri"))
    return _at(url, kind, mime, part) if data is None and isinstance(url, str) else Media(kind, mime, None, data)


def _media(part: Payload, kind: str) -> Media | Text | None:
    if kind in ("image", "document"):
        return _of_anthropic(part, "image" if kind == "image" else "file")
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
        return Media("audio", mime_of(f"audio/{audio.get('format')}"), None, base64_of(audio.get("data")))
    return None


def _of_anthropic(part: Payload, kind: str) -> Media | Text | None:
    source = part.get("source")
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return Media(kind, mime_of(source.get("media_type")), None, base64_of(source.get("data")), part)
    return _at(source["url"], kind, part=part) if isinstance(source.get("url"), str) else None


def _file(file: Payload) -> Media | Text:
    found = file.get("file_data") or file.get("file_url")
    data = base64_of(file.get("file_data"))  # some leave out what a data URL begins with
    if data is not None:
        return Media("file", mime_at(str(file.get("filename"))), None, data)
    return _at(found, "file") if isinstance(found, str) else Media("file", "", None, None)


def _at(url: str, kind: str, mime: str = "", part: Payload | None = None) -> Media | Text:
    """What stands at an address, or in one that begins with `data:`. An address that is none is a text."""
    data = data_of(url)
    if data is not None:
        return Media("image" if data[0].startswith("image/") else kind, data[0], None, data[1])
    address = address_of(url)
    if address is None and url.strip():
        return Text(f"[{kind}: {url}]")
    return Media(kind, mime, address, None, part)


def _result(result: ToolResult, part: Payload) -> Result:
    content = result.content
    if isinstance(content, list):
        found = [_part(item) if isinstance(item, dict) else Text(str(item)) for item in content]
        parts = [each for each in found if isinstance(each, Text | Media) or _is_told(each)]
        if len(parts) == len(found):
            return Result(result, parts, part)
    if content is not None and not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False, default=repr)
    return Result(result, [Text(content)] if content else [], part)


def _is_told(part: Part | None) -> TypeGuard[Native]:
    """Whether it is what Anthropic's tools answer with."""
    return isinstance(part, Native) and part.part.get("type") in ("image", "document", "search_result")


def quoted(payload: Payload) -> Text:
    return Text(payload["content"])


def placeholder(part: Part) -> str:
    """What is said of a part that a provider does not take: its kind, and where it is if that is an address."""
    match part:
        case Text(text):
            return text
        case Media(kind, _, url, _):
            return f"[{kind}: {url}]" if url else f"[{kind}]"
        case Native(_, stored):
            kind = stored.get("type") or next(iter(stored), "part")
            return f"[{label(kind)}]"
        case Call(call):
            return quoted(quoted_call(call)).text
        case Result(result):
            return quoted(quoted_result(result, None)).text
