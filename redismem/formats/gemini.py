"""Convert a context to the format of Gemini's generateContent. No I/O.

No part is empty, except a text with a thought signature. The user comes first. The content after a function call
contains only the responses to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.forms import Payload, find
from redismem.formats.media import guess_mime, parse_base64
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, placeholder
from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import parse_object, to_object
from redismem.formats.tool_calls import text_of
from redismem.formats.turns import Turn, build_turns, split_opening

_SIGNATURES = ("thought_signature", "thoughtSignature")
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_.:-]")
# The accepted MIME types; Gemini refuses a request with any other.
_ACCEPTED = re.compile(
    "image/(png|jpeg|webp|heic|heif)|audio/(x-)?(wav|mp3|mpeg|mpga|mp4|m4a|aac|aiff|flac|ogg|opus|pcm|webm)"
    "|video/(mp4|mpeg|mpg|mpegps|mov|quicktime|avi|x-flv|webm|wmv|3gpp)"
    "|text/(plain|html|css|csv|xml|rtf|md|markdown|javascript|x-python)|application/(pdf|json|x-javascript|x-python)"
)
_OUTCOMES = ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")


class GeminiContext(TypedDict):
    """The input of generateContent: pass `contents` as it is, and `system_instruction` in the config."""

    contents: list[Any]
    # A dict. Declared as Any: with Pillow installed, Google's types refuse a dict that its models accept.
    system_instruction: NotRequired[Any]
    """The leading texts of the system and developer roles; missing if there are none."""


def gemini_context(payloads: Sequence[Payload], background_count: int) -> GeminiContext:
    """Convert messages to Gemini's format; the first `background_count` without a system role are summaries."""
    system, spoken = split_opening(payloads, background_count)
    turns = build_turns(spoken, _is_native, media_follow=True)
    names: dict[str, str] = {}
    context: GeminiContext = {"contents": [content for turn in turns for content in _contents(turn, names)]}
    texts = [{"text": part.text if isinstance(part, Text) else placeholder(part)} for part in system]
    if texts:
        context["system_instruction"] = {"parts": texts}
    sendable: GeminiContext = make_sendable(context)
    return sendable


def _contents(turn: Turn, names: dict[str, str]) -> list[Payload]:
    """Return the contents of a turn. Function responses need a content of their own."""
    if turn.role == ASSISTANT:
        names.clear()
        names.update((part.call.key[1], _name(part.call.name)) for part in turn.parts if isinstance(part, Call))
        return [{"role": "model", "parts": [_part(part) for part in turn.parts]}]
    results = [part for part in turn.parts if isinstance(part, Result)]
    others: list[Part] = [media for part in results for media in part.parts if isinstance(media, Media)]
    others += [part for part in turn.parts if not isinstance(part, Result)]
    answers = [_function_response(part, names.get(part.result.key[1], "unnamed")) for part in results]
    return [{"role": "user", "parts": parts} for parts in (answers, [_part(part) for part in others]) if parts]


def _function_response(part: Result, name: str) -> Payload:
    own = _own_fields(part.extra)
    if own is not None:
        return {"function_response": {"name": name, "response": to_object(own.get("response")), **_id_field(own)}}
    text = "\n".join(_words(each) for each in part.parts if not isinstance(each, Media))
    key = "error" if part.result.is_error else "output"
    return {"function_response": {"name": name, "response": parse_object(text) or {key: text}}}


def _words(part: Text | Native) -> str:
    return part.text if isinstance(part, Text) else text_of(part.part)


def _id_field(own: Payload) -> Payload:
    return {"id": own["id"]} if isinstance(own.get("id"), str) else {}


def _part(part: Part) -> Payload:
    match part:
        case Text(text, stored):
            return {"text": text, **_signature_field(stored or {})}
        case Call(call, stored):
            own = _own_fields(stored) or {}
            return {
                "function_call": {"name": _name(call.name), "args": to_object(call.arguments), **_id_field(own)}
            } | _signature_field(stored)
        case Media():
            return _media(part) or {"text": placeholder(part)}
        case Native(stored) if _is_own(stored):
            return stored
    return {"text": placeholder(part)}


def _media(media: Media) -> Payload | None:
    """Return the part of an image or file; None if Gemini does not accept it."""
    mime = media.mime or ("" if media.url is None else guess_mime(media.url))
    if media.url is not None and not mime:
        if media.part is not None and "type" not in media.part:  # stored in Gemini's format, such as a YouTube video
            return {"file_data": {"file_uri": media.url}}
        mime = "image/jpeg" if media.kind == "image" else ""
    if not _ACCEPTED.fullmatch(mime):
        return None
    if media.base64:
        return {"inline_data": {"mime_type": mime, "data": media.base64}}
    return None if media.url is None else {"file_data": {"mime_type": mime, "file_uri": media.url}}


def _own_fields(stored: Payload) -> Payload | None:
    """Return the fields of a call or response in Gemini's format; None if the part has another format."""
    form, kind, fields = find(stored) if stored else (None, "", {})
    return fields if form is not None and form.by_name and kind.startswith("function") else None


def _is_native(part: Payload, role: str) -> bool:
    """True for executed code, its output, and a blank text with the thought signature that Gemini requires back."""
    text = part.get("text")
    is_blank = isinstance(text, str) and not text.strip() and part.get("thought") is not True
    is_signed = is_blank and bool(_signature_field(part))
    return role == ASSISTANT and (is_signed or _is_own(part))


def _is_own(stored: Payload) -> bool:
    """True if the part contains nothing but code that Gemini executed, or its output."""
    match list(stored.items()):
        case [("executable_code" | "executableCode", {"code": str(), "language": "PYTHON", **others})]:
            return others.keys() <= {"id"} and all(isinstance(value, str) for value in others.values())
        case [("code_execution_result" | "codeExecutionResult", {"outcome": outcome, **others})]:
            is_sound = others.keys() <= {"id", "output"} and all(isinstance(value, str) for value in others.values())
            return is_sound and outcome in _OUTCOMES
    return False


def _signature_field(stored: Payload) -> Payload:
    """Return the field with the thought signature that Gemini requires back.

    A part in Gemini's format contains the signature itself. Gemini's OpenAI-compatible server puts it into the field
    `extra_content` of a call.
    """
    extra = stored.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    for place in (stored, google if isinstance(google, dict) else {}):
        for name in _SIGNATURES:
            if parse_base64(place.get(name)) is not None:
                return {"thought_signature": place[name]}
    return {}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return "unnamed"
    written = _NOT_IN_A_NAME.sub("_", name[:64])
    return written if written[0].isalpha() or written[0] == "_" else f"_{written[:63]}"
