"""Parse messages of any wire format into texts, media, tool calls and results. No I/O.

Supports OpenAI chat, OpenAI Responses items, Anthropic and Gemini.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from redismem.formats.elements import NO_KEY, Element, ToolCall, ToolResult, kind_of
from redismem.formats.forms import Payload
from redismem.formats.media import guess_mime, parse_address, parse_base64, parse_data_url, parse_mime
from redismem.formats.reading import read_message, read_part
from redismem.formats.sections import speaker_of
from redismem.formats.tool_calls import element_text, is_parts, quote_call, quote_result

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
_ROLES = {"assistant": ASSISTANT, "model": ASSISTANT, "system": SYSTEM, "developer": SYSTEM}
_BLOBS = ("inline_data", "inlineData", "file_data", "fileData")
_URLS = ("url", "uri", "image_url", "file_url")
_DATA = ("data", "base64", "image", "audio", "video", "bytes")
_MIMES = ("media_type", "mediaType", "mime_type", "image_mimetype", "video_mimetype", "document_mimetype")


class Text(NamedTuple):
    """A text. `part` is the stored part, which may have other fields."""

    text: str
    part: Payload | None = None


class Media(NamedTuple):
    """An image, file or audio with a URL or base64 bytes. It has neither if the stored ones are invalid.

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
    """A part that at most one provider accepts."""

    part: Payload


class Result(NamedTuple):
    """A tool result and its content as parts; `extra` is the stored part with its provider-specific fields."""

    result: ToolResult
    parts: Sequence[Text | Media | Native]
    extra: Payload
    is_own: bool = False
    """True if the call and its result are one stored part."""


Part = Text | Media | Call | Result | Native


def text_of(parts: Iterable[Part]) -> str:
    """Join the texts of parts with line breaks."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def role_of(payload: Payload) -> str:
    return _ROLES.get(speaker_of(payload), USER)


def parse_message(payload: Payload, is_native: Callable[[Payload, str], bool]) -> list[tuple[str, list[Part]]]:
    """Return the parts of a message by role, without thoughts and blank texts, which providers refuse.

    A message that contains results of its own calls has several roles. `is_native(part, role)` is true for a part that
    the provider accepts unchanged, such as its own thoughts, even if they are blank.
    """
    elements = read_message(payload)
    role = role_of(payload)
    inside = [element.part for element in elements if element.form.inside]
    are_native = bool(inside) and all(is_native(part, role) for part in inside)
    turns: list[tuple[str, list[Part]]] = []
    for element in elements:
        if element.form.inside and are_native:
            parsed: list[tuple[str, Part]] = [(role, Native(element.part))]
        elif element.kind == "thought":
            parsed = [(role, Native(element.part))] if is_native(element.part, role) else []
        elif element.kind == "text":
            parsed = [(element.form.speaker or role, _part(element))]
        else:
            parsed = list(_parse_element(element, element.form.speaker or role))
        for own_role, part in parsed:
            if isinstance(part, Text) and not part.text.strip() and not is_native(part.part or {}, own_role):
                continue
            if not turns or turns[-1][0] != own_role:
                turns.append((own_role, []))
            turns[-1][1].append(part)
    return turns


def _parse_element(element: Element, role: str) -> Iterator[tuple[str, Part]]:
    """Yield the parts of an element with their roles."""
    call, result = element.call, element.result
    if element.kind == "nested":
        for part in element.inner:
            yield from _parse_element(read_part(part), role)
        return
    if call is not None and not element.is_repeat:
        # A result cannot refer to a call without an id.
        yield ASSISTANT, to_text(quote_call(call)) if call.key == NO_KEY else Call(call, element.part)
    if result is not None:
        yield from ((USER, part) for part in _parse_result(element, result))
    if call is None and result is None and element.kind != "note":
        yield role, _part(element)


def _parse_result(element: Element, result: ToolResult) -> list[Part]:
    if element.kind == "both":
        return [_result(result, element.part, is_own=True)]
    if result.key != NO_KEY:
        return [_result(result, {} if element.path == () and "role" in element.part else element.part)]
    if isinstance(result.content, str):  # the result of a call without an id
        return [to_text(quote_result(result, result.name))]
    return list(_result(result, {}).parts)


def _part(element: Element) -> Text | Media | Native:
    """Parse a text, a media part or a part that is not in the table of forms."""
    part = element.part
    if element.kind == "text":
        return Text(element.text, part if isinstance(part, dict) else None)
    return (_media(part) if element.kind == "media" else None) or Native(part)


def _media(part: Payload) -> Media | Text | None:
    kind = part.get("type")
    if kind in ("image", "document") and "source" in part:
        return _anthropic_media(part, "image" if kind == "image" else "file")
    if kind in ("image_url", "input_image", "computer_screenshot"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        return _at(url, "image") if isinstance(url, str) else Media("image", "", None, None)
    if kind == "input_file" or (kind == "file" and "file" in part):
        file = part.get("file") if kind == "file" else part
        return _file(file) if isinstance(file, dict) else Media("file", "", None, None)
    if kind == "input_audio":
        audio = part.get("input_audio")
        audio = audio if isinstance(audio, dict) else {}
        return Media("audio", parse_mime(f"audio/{audio.get('format')}"), None, parse_base64(audio.get("data")))
    blob = next((part[name] for name in _BLOBS if isinstance(part.get(name), dict)), None) if kind is None else None
    return _other_media(part) if blob is None else _gemini_media(blob, part)


def _gemini_media(blob: Payload, part: Payload) -> Media | Text:
    mime, data = parse_mime(blob.get("mime_type", blob.get("mimeType"))), parse_base64(blob.get("data"))
    kind, url = "image" if mime.startswith("image/") else "file", blob.get("file_uri", blob.get("fileUri"))
    return _at(url, kind, mime, part) if data is None and isinstance(url, str) else Media(kind, mime, None, data)


def _other_media(part: Payload) -> Media | Text | None:
    """Parse a media part of a framework or of Bedrock: a URL or base64 in one of a few fields, and a MIME type."""
    name = kind_of(part)
    body = part.get(name) if isinstance(part.get(name), dict) else part.get("content")
    body = body if isinstance(body, dict) else part
    source = body.get("source")
    body = body | source if isinstance(source, dict) else body
    kind = next((kind for kind in ("image", "audio") if kind in name), "file")
    mime = next((parse_mime(body[field]) for field in _MIMES if isinstance(body.get(field), str)), "")
    if not mime and kind == "image":
        mime = parse_mime(f"image/{body.get('format')}")
    kind = "image" if mime.startswith("image/") else kind
    url = next((body[field] for field in _URLS if isinstance(body.get(field), str)), None)
    data = next((body[field] for field in _DATA if isinstance(body.get(field), str)), None)
    if url is None and data is not None and ("://" in data[:16] or data[:5].lower() == "data:"):
        url = data
    if url is not None:
        return _at(url, kind, mime)
    decoded = parse_base64(data)
    return None if decoded is None else Media(kind, mime, None, decoded)


def _anthropic_media(part: Payload, kind: str) -> Media | Text | None:
    source = part.get("source")
    if not isinstance(source, dict):
        return None
    if source.get("type") == "base64":
        return Media(kind, parse_mime(source.get("media_type")), None, parse_base64(source.get("data")), part)
    return _at(source["url"], kind, part=part) if isinstance(source.get("url"), str) else None


def _file(file: Payload) -> Media | Text:
    url = file.get("file_data") or file.get("file_url")
    data = parse_base64(file.get("file_data"))  # some applications omit `data:` and the MIME type
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


def _result(result: ToolResult, part: Payload, *, is_own: bool = False) -> Result:
    content = result.content
    if isinstance(content, dict) and is_parts([content]):
        content = [content]
    if is_parts(content) or (isinstance(content, list) and content and all(isinstance(item, str) for item in content)):
        return Result(result, [_in_result(read_part(item)) for item in content], part, is_own)
    if content is not None and not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False, default=repr)
    return Result(result, [Text(content)] if content else [], part, is_own)


def _in_result(element: Element) -> Text | Media | Native:
    """Parse a part of a result. A part that no provider accepts in a result becomes text."""
    if element.kind in ("text", "media") or element.part.get("type") == "search_result":
        return _part(element)
    return Text(element_text(element))


def to_text(payload: Payload) -> Text:
    return Text(payload["content"])


def placeholder(part: Part) -> str:
    """Return the text that replaces a part the provider does not accept: its kind, and its URL if it has one."""
    match part:
        case Text(text):
            return text
        case Media(kind, _, url, _):
            return f"[{kind}: {url}]" if url else f"[{kind}]"
        case Native(stored):
            return element_text(read_part(stored))
        case Call(call):
            return to_text(quote_call(call)).text
        case Result(result):
            return to_text(quote_result(result, None)).text
