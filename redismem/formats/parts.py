"""The middle form: typed parts of a message of any format. Each view is one writer of these parts. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from redismem.formats.elements import NO_KEY, Element, Key, ToolCall, ToolResult, kind_of, words_beside
from redismem.formats.forms import TEXT, Payload
from redismem.formats.media import guess_mime, kind_of_mime, parse_address, parse_base64, parse_data_url, parse_mime
from redismem.formats.quoting import attribute
from redismem.formats.reading import read_message, read_part
from redismem.formats.sections import name_of, speaker_of
from redismem.formats.tool_calls import element_text, is_parts, quote_call, quote_result

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
_ROLES = {
    **dict.fromkeys(("assistant", "model", "chatbot", "ai"), ASSISTANT),
    **dict.fromkeys(("system", "developer"), SYSTEM),
}
_BLOBS = ("inline_data", "inlineData", "file_data", "fileData")
_URLS = ("url", "uri", "image_url", "file_url")
_DATA = ("data", "base64", "image", "audio", "video", "bytes")
_MIMES = ("media_type", "mediaType", "mime_type", "mimeType", "image_mimetype", "video_mimetype", "document_mimetype")
_S3 = re.compile(r"s3://[a-z0-9.-]{3,63}(?:/[!-~]{0,900})?", re.ASCII)
_NAMES = ("filename", "name", "title", "display_name", "displayName")


class Text(NamedTuple):
    """A text. `part` is the stored part, which may have other fields."""

    text: str
    part: Payload | None = None


class Media(NamedTuple):
    """An image, audio, video or file with a URL or base64 bytes. It has neither if the stored ones are invalid.

    `part` is the stored part, `name` that of the file.
    """

    kind: str
    mime: str
    url: str | None
    base64: str | None
    part: Payload | None = None
    name: str = ""


class Call(NamedTuple):
    """A tool call. `extra` is the stored call or part with its provider-specific fields."""

    call: ToolCall
    extra: Payload


class Native(NamedTuple):
    """A part that at most one provider accepts: a thought, a note, or a part without a form."""

    part: Payload


class Result(NamedTuple):
    """A tool result and its content as parts; `extra` is the stored part with its provider-specific fields."""

    result: ToolResult
    parts: Sequence[Text | Media | Native]
    extra: Payload
    is_own: bool = False
    """True if the call and its result are one stored part."""


Part = Text | Media | Call | Result | Native


def _nothing(*_: Any) -> bool:
    return False


@dataclass(slots=True)
class View:
    """The choices of a view: parts that its provider accepts unchanged, even if blank, and parts to leave out.

    `is_native(part, role)` is true for a part that the provider wrote itself, such as its own thoughts. Without
    `tools`, calls and results become words.
    """

    is_native: Callable[[Payload, str], bool] = _nothing
    thoughts: bool = True
    tools: bool = True
    names: dict[Key, Any] = field(default_factory=dict)
    """The names of the tools whose calls were read so far."""

    def quote_result(self, result: ToolResult) -> Text:
        """Return a result in words."""
        name = self.names.get(result.key, result.name) if result.key[0] == "id" else result.key[1]
        return to_text(quote_result(result, name))


def text_of(parts: Iterable[Part]) -> str:
    """Join the texts of parts with line breaks."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def role_of(payload: Payload) -> str:
    return _ROLES.get(speaker_of(payload).lower(), USER)


def is_instruction(payload: Payload) -> bool:
    """True if a message, or a part of it, is sent to models as one of the system or developer."""
    return role_of(payload) == SYSTEM or any(each.form.speaker == SYSTEM for each in read_message(payload))


def parse_message(payload: Payload, view: View) -> list[tuple[str, list[Part]]]:
    """Return the parts of a message by role, without blank texts, and without thoughts of another provider.

    A message that contains results of its own calls has several roles. The name of its speaker is in its first text.
    """
    elements = read_message(payload)
    role = role_of(payload)
    inside = [element.part for element in elements if element.form.inside]
    are_native = bool(inside) and view.tools and all(view.is_native(part, role) for part in inside)
    turns: list[tuple[str, list[Part]]] = []
    for element in elements:
        own_role = element.form.speaker or role
        if element.form.inside and are_native:
            parsed: Iterable[tuple[str, Part]] = [(role, Native(element.part))]
        elif element.kind in ("thought", "note"):
            is_shown = view.is_native(element.part, role) and (view.thoughts or element.kind == "note")
            parsed = [(role, Native(element.part))] if is_shown else []
        else:
            parsed = _parse_element(element, own_role, view)
        for part_role, part in parsed:
            if isinstance(part, Text) and not part.text.strip() and not view.is_native(part.part or {}, part_role):
                continue
            if not turns or turns[-1][0] != part_role:
                turns.append((part_role, []))
            turns[-1][1].append(part)
    name = name_of(payload)
    return _attributed(turns, role, name) if name else turns


def _attributed(turns: list[tuple[str, list[Part]]], role: str, name: str) -> list[tuple[str, list[Part]]]:
    """Put the name of the speaker before the first text or media."""
    for own_role, parts in turns:
        for at, part in enumerate(parts):
            if own_role == role and isinstance(part, Text | Media):
                words = part.text if isinstance(part, Text) else ""
                named = Text(attribute(name, words), part.part if words else None)
                parts[at : at + bool(words)] = [named]
                return turns
    return turns


def _parse_element(element: Element, role: str, view: View) -> Iterator[tuple[str, Part]]:
    """Yield the parts of an element with their roles."""
    call, result = element.call, element.result
    if element.kind == "nested":
        for part in element.inner:
            yield from _parse_element(read_part(part), role, view)
        return
    if call is not None and not element.is_repeat:
        view.names[call.key] = call.name
        yield (ASSISTANT, Call(call, element.part)) if view.tools else (USER, quote(call, result is not None))
    if result is not None:
        yield from ((USER, part) for part in _parse_result(element, result, view))
    if call is None and result is None and element.kind != "note":
        yield role, _part(element)


def _parse_result(element: Element, result: ToolResult, view: View) -> Iterator[Part]:
    is_own = element.kind == "both"
    is_whole = element.form is TEXT  # a message that is a result as a whole
    part = _result(result, {} if is_whole else element.part, view, is_own=is_own)
    if view.tools and (result.key != NO_KEY or is_own):
        yield part
    elif view.tools and not isinstance(result.content, str):  # the result of a call without an id
        yield from part.parts
    else:
        yield view.quote_result(result)
        yield from (inner for inner in part.parts if isinstance(inner, Media))


def quote(call: ToolCall, is_answered: bool = True) -> Text:
    """Return a call in words."""
    return to_text(quote_call(call, is_answered=is_answered))


def _part(element: Element) -> Text | Media | Native:
    """Parse a text, a media part or a part that is not in the table of forms."""
    part = element.part
    if element.kind == "text":
        return Text(element.text, part if isinstance(part, dict) else None)
    media = _media(part) if element.kind == "media" else None
    return media._replace(part=part) if isinstance(media, Media) else media or Native(part)


def _media(part: Payload) -> Media | Text | None:
    kind = part.get("type")
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
    if blob is not None:
        mime, data = parse_mime(blob.get("mime_type", blob.get("mimeType"))), parse_base64(blob.get("data"))
        url = blob.get("file_uri", blob.get("fileUri"))
        name = _name(blob)
        kind = kind_of_mime(mime, "file")
        return (
            _at(url, kind, mime, name)
            if data is None and isinstance(url, str)
            else Media(kind, mime, None, data, None, name)
        )
    if kind in ("image", "document") and "source" in part:
        source = part["source"]
        if not isinstance(source, dict) or (source.get("type") != "base64" and not isinstance(source.get("url"), str)):
            return None
    return _other_media(part)


def _other_media(part: Payload) -> Media | Text | None:
    """Parse a media part of any other form: a URL or base64 in one of a few fields, and a MIME type."""
    name = kind_of(part)
    body = part.get(name) if isinstance(part.get(name), dict) else part.get("content")
    body = body if isinstance(body, dict) else part
    source = body.get("source")
    body = body | source if isinstance(source, dict) else body
    if isinstance(body.get("s3Location"), dict):
        body = body | body["s3Location"]
    kind = next((kind for kind in ("image", "audio", "video") if kind in name), "file")
    mime = next((parse_mime(body[field]) for field in _MIMES if isinstance(body.get(field), str)), "")
    if not mime and isinstance(body.get("format"), str):
        mime = guess_mime(f"/.{body['format']}") or parse_mime(f"{kind}/{body['format']}")
    kind, file_name = kind_of_mime(mime, kind), _name(body)
    url = next((body[field] for field in _URLS if isinstance(body.get(field), str)), None)
    data = next((body[field] for field in _DATA if isinstance(body.get(field), str)), None)
    if url is None and data is not None and ("://" in data[:16] or data[:5].lower() == "data:"):
        url = data
    if url is not None:
        return _at(url, kind, mime, file_name)
    decoded = parse_base64(data)
    if decoded is None and not ("source" in part and "type" in part):
        return None
    return Media(kind, mime, None, decoded, None, file_name)


def _name(body: Payload) -> str:
    return next((body[field] for field in _NAMES if isinstance(body.get(field), str)), "")


def _file(file: Payload) -> Media | Text:
    url = file.get("file_data") or file.get("file_url")
    data = parse_base64(file.get("file_data"))  # some applications omit `data:` and the MIME type
    name = _name(file)
    if data is not None:
        mime = guess_mime(name)
        return Media(kind_of_mime(mime, "file"), mime, None, data, None, name)
    return _at(url, "file", "", name) if isinstance(url, str) else Media("file", "", None, None, None, name)


def _at(url: str, kind: str, mime: str = "", name: str = "") -> Media | Text:
    """Return the media of a URL or data URL; an invalid URL becomes a text."""
    data = parse_data_url(url)
    if data is not None:
        mime = data[0] or mime
        return Media(kind_of_mime(mime, kind), mime, None, data[1], None, name)
    address = url if _S3.fullmatch(url) else parse_address(url)
    if address is None and url.strip():
        return Text(f"[{kind}: {url}]")
    return Media(kind, mime, address, None, None, name)


def _result(result: ToolResult, part: Payload, view: View, *, is_own: bool = False) -> Result:
    content = result.content
    if isinstance(content, dict) and is_parts([content]):
        content = [content]
    if is_parts(content) or (isinstance(content, list) and content and all(isinstance(item, str) for item in content)):
        return Result(result, [_in_result(read_part(item), view) for item in content], part, is_own)
    if content is not None and not isinstance(content, str):
        content = json.dumps(content, ensure_ascii=False, default=repr)
    return Result(result, [Text(content)] if content else [], part, is_own)


def _in_result(element: Element, view: View) -> Text | Media | Native:
    """Parse a part of a result. A part that the provider does not accept in a result becomes text."""
    if element.kind in ("text", "media"):
        return _part(element)
    part = element.part
    return Native(part) if isinstance(part, dict) and view.is_native(part, USER) else Text(element_text(element))


def to_text(payload: Payload) -> Text:
    return Text(payload["content"])


def placeholder(part: Part) -> str:
    """Return the text that replaces a part the provider does not accept: its kind, and its URL or name."""
    match part:
        case Text(text):
            return text
        case Media(kind, _, url, _, stored, name):
            words = url or name or " ".join(words_beside(read_part(stored)) if stored else ())
            return f"[{kind}: {words}]" if words else f"[{kind}]"
        case Native(stored):
            return element_text(read_part(stored))
        case Call(call):
            return quote(call, False).text
        case Result(result):
            return to_text(quote_result(result, None)).text
