"""A context as Gemini's generateContent takes it. No I/O.

No part is empty, the user speaks first, every call of a function is answered in the next content, by nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.media import base64_of, mime_at
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, placeholder
from redismem.formats.tool_arguments import object_in, object_of, sendable
from redismem.formats.tool_calls import GEMINI_CALLS, GEMINI_RESULTS, Payload, own_of, text_of
from redismem.formats.turns import Turn, opening, turns_of

_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_.:-]")
_SIGNATURES = ("thought_signature", "thoughtSignature")
# What it takes; it refuses a request with any other.
_TAKEN = re.compile(
    "image/(png|jpeg|webp|heic|heif)|audio/(x-)?(wav|mp3|mpeg|mpga|mp4|m4a|aac|aiff|flac|ogg|opus|pcm|webm)"
    "|video/(mp4|mpeg|mpg|mpegps|mov|quicktime|avi|x-flv|webm|wmv|3gpp)"
    "|text/(plain|html|css|csv|xml|rtf|md|markdown|javascript|x-python)|application/(pdf|json|x-javascript|x-python)"
)
_OUTCOMES = ("OUTCOME_OK", "OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")


class GeminiContext(TypedDict):
    """What generateContent takes: `contents` as it is, `system_instruction` in the config."""

    contents: list[Any]
    system_instruction: NotRequired[dict[str, Any]]
    """The texts of the system and the developer at the beginning; missing if there are none."""


def gemini_context(payloads: Sequence[Payload], background_count: int) -> GeminiContext:
    """The contents, of which `background_count` are summaries, and the system's texts before them."""
    system, spoken = opening(payloads, background_count)
    names: dict[str, str] = {}
    found: GeminiContext = {"contents": [content for turn in turns_of(spoken) for content in _contents(turn, names)]}
    texts = [{"text": part.text if isinstance(part, Text) else placeholder(part)} for part in system]
    if texts:
        found["system_instruction"] = {"parts": texts}
    sent: GeminiContext = sendable(found)
    return sent


def _contents(turn: Turn, names: dict[str, str]) -> list[Payload]:
    """The content of a turn: the user's with answers is two, as answers stand alone."""
    if turn.role == ASSISTANT:
        names.clear()
        names.update((part.call.key[1], _name(part.call.name)) for part in turn.parts if isinstance(part, Call))
        return [{"role": "model", "parts": [_part(part) for part in turn.parts]}]
    results = [part for part in turn.parts if isinstance(part, Result)]
    others: list[Part] = [media for part in results for media in part.parts if isinstance(media, Media)]
    others += [part for part in turn.parts if not isinstance(part, Result)]
    answers = [_answer(part, names.get(part.result.key[1], "unnamed")) for part in results]
    return [{"role": "user", "parts": parts} for parts in (answers, [_part(part) for part in others]) if parts]


def _answer(part: Result, name: str) -> Payload:
    own = own_of(part.extra, GEMINI_RESULTS)
    if own is not None:
        return {"function_response": {"name": name, "response": object_of(own.get("response")), **_id(own)}}
    text = "\n".join(_words(each) for each in part.parts if not isinstance(each, Media))
    key = "error" if part.extra.get("is_error") is True else "output"
    return {"function_response": {"name": name, "response": object_in(text) or {key: text}}}


def _words(part: Text | Native) -> str:
    return part.text if isinstance(part, Text) else text_of(part.part)


def _id(own: Payload) -> Payload:
    return {"id": own["id"]} if isinstance(own.get("id"), str) else {}


def _part(part: Part) -> Payload:
    match part:
        case Text(text, stored):
            return {"text": text, **_signed(stored or {})}
        case Call(call, stored):
            own = own_of(stored, GEMINI_CALLS) or {}
            return {
                "function_call": {"name": _name(call.name), "args": object_of(call.arguments), **_id(own)}
            } | _signed(stored)
        case Media():
            return _media(part) or {"text": placeholder(part)}
        case Native("gemini", stored) if _is_own(stored):
            return stored
    return {"text": placeholder(part)}


def _media(media: Media) -> Payload | None:
    """None for what Gemini has no form for, or does not take."""
    mime = media.mime or ("" if media.url is None else mime_at(media.url))
    if media.url is not None and not mime:
        if media.part is not None and "type" not in media.part:  # Gemini's own, such as a video of YouTube's
            return {"file_data": {"file_uri": media.url}}
        mime = "image/jpeg" if media.kind == "image" else ""
    if not _TAKEN.fullmatch(mime):
        return None
    if media.base64:
        return {"inline_data": {"mime_type": mime, "data": media.base64}}
    return None if media.url is None else {"file_data": {"mime_type": mime, "file_uri": media.url}}


def _is_own(stored: Payload) -> bool:
    """Whether it is code that Gemini has run, or what came of it, and nothing else."""
    match list(stored.items()):
        case [("executable_code" | "executableCode", {"code": str(), "language": "PYTHON", **others})]:
            return others.keys() <= {"id"} and all(isinstance(each, str) for each in others.values())
        case [("code_execution_result" | "codeExecutionResult", {"outcome": outcome, **others})]:
            texts = others.keys() <= {"id", "output"} and all(isinstance(each, str) for each in others.values())
            return texts and outcome in _OUTCOMES
    return False


def _signed(stored: Payload) -> Payload:
    """What Gemini wants back with a part: its own, or what its OpenAI-compatible server puts beside a call."""
    extra = stored.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    for place in (stored, google if isinstance(google, dict) else {}):
        for name in _SIGNATURES:
            if base64_of(place.get(name)) is not None:
                return {"thought_signature": place[name]}
    return {}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return "unnamed"
    written = _NOT_IN_A_NAME.sub("_", name[:64])
    return written if written[0].isalpha() or written[0] == "_" else f"_{written[:63]}"
