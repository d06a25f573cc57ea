"""A context as Gemini's generateContent takes it. No I/O.

No part is empty, the user speaks first, every call of a function is answered in the next content, by nothing else.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from redismem.speech.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, object_of, placeholder
from redismem.speech.turns import Turn, opening, turns_of
from redismem.tool_calls import GEMINI_CALLS, GEMINI_RESULTS, Payload, own_of, text_of

_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_.:-]")
_SIGNATURES = ("thought_signature", "thoughtSignature")
# Parts that are sent as they are.
_OWN = frozenset(["executable_code", "executableCode", "code_execution_result", "codeExecutionResult"])


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
    return found


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
    return {"function_response": {"name": name, "response": _object(text) or {key: text}}}


def _words(part: Text | Native) -> str:
    return part.text if isinstance(part, Text) else text_of(part.part)


def _id(own: Payload) -> Payload:
    return {"id": own["id"]} if isinstance(own.get("id"), str) else {}


def _object(text: str) -> Payload | None:
    """The object that a text of JSON is."""
    if not text.lstrip().startswith("{"):
        return None
    found = object_of(text)
    return None if found == {"arguments": text} else found


def _part(part: Part) -> Payload:
    match part:
        case Text(text, stored):
            return {"text": text, **_signed(stored or {})}
        case Call(call, stored):
            own = own_of(stored, GEMINI_CALLS) or {}
            return {
                "function_call": {"name": _name(call.name), "args": object_of(call.arguments), **_id(own)}
            } | _signed(stored)
        case Media(_, mime, url, data):
            kind = mime or mimetypes.guess_type((url or "").partition("?")[0])[0] or "image/jpeg"
            if data:
                return {"inline_data": {"mime_type": kind, "data": data}}
            if url is not None:
                return {"file_data": {"mime_type": kind, "file_uri": url}}
        case Native("gemini", stored) if len(stored) == 1 and not _OWN.isdisjoint(stored):
            return stored
    return {"text": placeholder(part)}


def _signed(stored: Payload) -> Payload:
    """What Gemini wants back with a part: its own, or what its OpenAI-compatible server puts beside a call."""
    extra = stored.get("extra_content")
    google = extra.get("google") if isinstance(extra, dict) else None
    for place in (stored, google if isinstance(google, dict) else {}):
        for name in _SIGNATURES:
            if isinstance(place.get(name), str):
                return {"thought_signature": place[name]}
    return {}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return "unnamed"
    written = _NOT_IN_A_NAME.sub("_", name[:64])
    return written if written[0].isalpha() or written[0] == "_" else f"_{written[:63]}"
