"""Write a context in the format of Gemini's generateContent. No I/O.

No part is empty, except a text with a thought signature. The user comes first. The content after a function call
contains only the responses to it. In the current turn, the first call of each content has a thought signature.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.forms import Payload, find
from redismem.formats.identifiers import tool_name
from redismem.formats.media import guess_mime, parse_base64
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, View, placeholder
from redismem.formats.quoting import label
from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import parse_object, to_object
from redismem.formats.tool_calls import text_of
from redismem.formats.turns import Turn, build_turns, split_opening

_SIGNATURES = ("thought_signature", "thoughtSignature")
# Gemini 3 requires a signature; Google documents this value for calls that another model made.
_NOT_GEMINIS = "skip_thought_signature_validator"
_BLOBS = ("inline_data", "inlineData", "file_data", "fileData")
_MARKS = ("video_metadata", "media_resolution")
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


def gemini_context(
    payloads: Sequence[Payload], background_count: int = 0, *, thoughts: bool = True, tools: bool = True
) -> GeminiContext:
    """Write messages in Gemini's format; the first `background_count` without a system role are summaries."""
    system, spoken = split_opening(payloads, background_count)
    view = View(_is_native if thoughts else _is_native_unsigned, thoughts, tools)
    turns = build_turns(spoken, view, _takes)
    writer = _Writer(thoughts)
    contents = [content for turn in turns for content in writer.contents(turn)]
    _sign_current_turn(contents)
    context: GeminiContext = {"contents": contents}
    texts = [{"text": placeholder(part)} for part in system]
    if texts:
        context["system_instruction"] = {"parts": texts}
    sendable: GeminiContext = make_sendable(context)
    return sendable


def _sign_current_turn(contents: list[Payload]) -> None:
    """Sign the first call of each content behind the user's last one that is not only function responses."""
    for content in reversed(contents):
        if content["role"] == "user" and "function_response" not in content["parts"][0]:
            return
        calls = [part for part in content["parts"] if "function_call" in part]
        for first in calls[:1]:
            first.setdefault("thought_signature", _NOT_GEMINIS)


class _Writer:
    """Writes turns. Without `thoughts`, no part has its signature."""

    def __init__(self, thoughts: bool) -> None:
        self._thoughts = thoughts
        self._names: dict[str, str] = {}

    def contents(self, turn: Turn) -> list[Payload]:
        """Return the contents of a turn. Function responses need a content of their own."""
        if turn.role == ASSISTANT:
            calls = [part.call for part in turn.parts if isinstance(part, Call)]
            self._names = {call.key[1]: _name(call.name) for call in calls}
            return [{"role": "model", "parts": [self._part(part, ASSISTANT) for part in turn.parts]}]
        results = [part for part in turn.parts if isinstance(part, Result)]
        others: list[Part] = []
        for number, part in enumerate(results, 1):
            media = [each for each in part.parts if isinstance(each, Media) and not _holds_own_media(part.extra)]
            if media:
                others += [Text(f"From the result of call {number}, {label(self._called(part))}:"), *media]
        others += [part for part in turn.parts if not isinstance(part, Result)]
        answers = [self._response(part) for part in results]
        shown = [self._part(part, turn.role) for part in others]
        return [{"role": "user", "parts": parts} for parts in (answers, shown) if parts]

    def _response(self, part: Result) -> Payload:
        name = self._called(part)
        own = _own_fields(part.extra)
        if own is not None:
            beside = {"parts": own["parts"]} if _holds_own_media(part.extra) else {}
            response = {"name": name, "response": to_object(own.get("response")), **_id_field(own), **beside}
            return {"function_response": response}
        text = "\n".join(_words(each) for each in part.parts if not isinstance(each, Media))
        key = "error" if part.result.is_error else "output"
        return {"function_response": {"name": name, "response": parse_object(text) or {key: text}}}

    def _called(self, part: Result) -> str:
        return self._names.get(part.result.key[1], "unnamed")

    def _part(self, part: Part, role: str) -> Payload:
        match part:
            case Text(text, stored):
                return {"text": text, **self._beside(stored or {})}
            case Call(call, stored):
                made = {"name": _name(call.name), "args": to_object(call.arguments)}
                return {"function_call": made | _id_field(_own_fields(stored) or {})} | self._beside(stored)
            case Media() if _takes(part, role):
                own = part.part if part.part is not None and _is_own_media(part.part) else {}
                return {**(_media(part) or {}), **self._beside(own), **_own_marks(own)}
            case Native(stored) if _is_native(stored, role):
                left_out = () if self._thoughts else _SIGNATURES
                return {name: value for name, value in stored.items() if name not in left_out}
        return {"text": placeholder(part)}

    def _beside(self, stored: Payload) -> Payload:
        return _signature_field(stored) if self._thoughts else {}


def _words(part: Text | Native) -> str:
    return part.text if isinstance(part, Text) else text_of(part.part)


def _id_field(own: Payload) -> Payload:
    return {"id": own["id"]} if isinstance(own.get("id"), str) else {}


def _media(media: Media) -> Payload | None:
    """Return the part of an image or file; None if Gemini does not accept it."""
    mime = media.mime or ("" if media.url is None else guess_mime(media.url))
    if media.url is not None and not mime:
        if media.part is not None and _is_own_media(media.part):  # such as a YouTube video
            return {"file_data": {"file_uri": media.url}}
        mime = "image/jpeg" if media.kind == "image" else ""
    if not _ACCEPTED.fullmatch(mime) or (media.url or "").startswith("s3:"):
        return None
    name = {"display_name": media.name} if media.name and _is_own_media(media.part or {}) else {}
    if media.base64:
        return {"inline_data": {"mime_type": mime, "data": media.base64, **name}}
    return None if media.url is None else {"file_data": {"mime_type": mime, "file_uri": media.url, **name}}


def _own_fields(stored: Payload) -> Payload | None:
    """Return the fields of a call or response in Gemini's format; None if the part has another format."""
    form, kind, fields = find(stored) if stored else (None, "", {})
    return fields if form is not None and form.by_name and kind.startswith("function") else None


def _takes(media: Media, role: str) -> bool:
    if role == ASSISTANT and not _is_own_media(media.part or {}):
        return False  # the model's own pictures alone: they have the signature that Gemini requires back
    return _media(media) is not None


def _is_own_media(part: Payload) -> bool:
    return "type" not in part and any(isinstance(part.get(name), dict) for name in _BLOBS)


def _own_marks(part: Payload) -> Payload:
    """Return the fields of a media part that tell how Gemini reads it."""
    return {_snake(name): part[name] for name in part if _snake(name) in _MARKS and isinstance(part[name], dict)}


def _holds_own_media(stored: Payload) -> bool:
    """True for a function response whose media are in its own field `parts`."""
    parts = (_own_fields(stored) or {}).get("parts")
    return isinstance(parts, list) and bool(parts) and all(map(_is_response_media, parts))


def _is_response_media(part: object) -> bool:
    match part:
        case {"inline_data": {"mime_type": str(), "data": str(data)}} | {
            "inlineData": {"mimeType": str(), "data": str(data)}
        }:
            return parse_base64(data) is not None
    return False


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)


def _is_native(part: Payload, role: str) -> bool:
    """True for executed code, its output, and a blank text or thought with the signature that Gemini requires back."""
    text = part.get("text")
    is_unsaid = isinstance(text, str) and (not text.strip() or part.get("thought") is True)
    is_signed = is_unsaid and "type" not in part and bool(_signature_field(part))
    return role == ASSISTANT and (is_signed or _is_own(part))


def _is_native_unsigned(part: Payload, role: str) -> bool:
    return role == ASSISTANT and _is_own(part)


def _is_own(stored: Payload) -> bool:
    """True if the part contains nothing but code that Gemini executed, or its output, and a signature."""
    match [item for item in stored.items() if item[0] not in _SIGNATURES]:
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
    written = tool_name(name, _NOT_IN_A_NAME)
    return written if written[0].isalpha() or written[0] == "_" else f"_{written[:63]}"
