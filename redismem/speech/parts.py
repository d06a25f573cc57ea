"""What a message says, whatever wire format it is stored in: texts, media, calls and results. No I/O.

Read are OpenAI chat, OpenAI Responses items, Anthropic and Gemini.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import unquote_to_bytes

from redismem.tool_calls import (
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
    """An image, a file or a sound: at an address, or its bytes in base64. `part`: as Anthropic takes it, if it does."""

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
    mime = str(blob.get("mime_type", blob.get("mimeType", "")))
    data = blob.get("data")
    data = _checked(data.replace("-", "+").replace("_", "/")) if isinstance(data, str) else None
    return Media("image" if mime.startswith("image/") else "file", mime, _url(blob), data)


def _url(blob: Payload) -> str | None:
    url = blob.get("file_uri", blob.get("fileUri"))
    return url if isinstance(url, str) else None


def _media(part: Payload, kind: str) -> Media | None:
    source = part.get("source")
    if kind in ("image", "document") and isinstance(source, dict):
        url, data, mime = source.get("url"), source.get("data"), source.get("media_type")
        if isinstance(url, str) or (isinstance(data, str) and source.get("type") == "base64"):
            return Media("image" if kind == "image" else "file", str(mime or ""), url, data, part)
        return None
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return _at(url, "image") if isinstance(url, str) else Media("image", "", None, None)
    if kind in ("file", "input_file"):
        file = part.get("file") if kind == "file" else part
        found = file.get("file_data", file.get("file_url")) if isinstance(file, dict) else None
        return _at(found, "file") if isinstance(found, str) else Media("file", "", None, None)
    if kind == "input_audio":
        audio = part.get("input_audio")
        audio = audio if isinstance(audio, dict) else {}
        data = audio.get("data")
        return Media("audio", f"audio/{audio.get('format')}", None, _checked(data) if isinstance(data, str) else None)
    return None


def _at(url: str, kind: str) -> Media:
    """What stands at an address, or in one that begins with `data:`."""
    if not url.startswith("data:"):
        return Media(kind, "", url, None)
    head, _, body = url[len("data:") :].partition(",")
    mime, _, encoding = head.partition(";")
    if encoding.endswith("base64"):
        return Media(kind, mime, None, _checked(body))
    return Media(kind, mime, None, base64.b64encode(unquote_to_bytes(body)).decode())


def _checked(text: str) -> str | None:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return text


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


def object_of(arguments: Any) -> Payload:
    """The arguments of a call as an object: an empty one for none, one that holds them for what is no object."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_constant=_refuse) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return {"arguments": arguments}
    if isinstance(arguments, dict):
        return arguments
    return {} if arguments is None else {"arguments": arguments}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


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
