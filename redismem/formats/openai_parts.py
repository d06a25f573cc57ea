"""The writing that OpenAI's two APIs share: one message after another, images of the assistant behind it. No I/O."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from redismem.formats.forms import Payload
from redismem.formats.identifiers import CallIds
from redismem.formats.parts import ASSISTANT, SYSTEM, USER, Call, Media, Part, Result, View, parse_message, placeholder
from redismem.formats.sendable import replace_unsendable
from redismem.formats.tool_arguments import to_object
from redismem.formats.tool_calls import Waiting
from redismem.messages.message import Opaque
from redismem.messages.values import is_json

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TOOL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


class Writer(ABC):
    """Writes messages. A message that OpenAI accepts stays as it is, any other is written anew from its parts."""

    def __init__(self, view: View, accepted_ids: re.Pattern[str]) -> None:
        self.written: list[Payload] = []
        self._view = view
        self._behind: list[Payload] = []
        """Media of results and of the assistant, which only the user may send."""
        self._waiting = Waiting()
        self._ids = CallIds(accepted_ids)

    @abstractmethod
    def keep(self, payload: Payload) -> Payload | None:
        """Return the message if OpenAI accepts it, perhaps with sound fields, else None."""

    def part(self, part: Part) -> Payload:
        """Return a part of a content: a text if OpenAI accepts no other."""
        return (self.media(part) if isinstance(part, Media) else None) or text(placeholder(part))

    @abstractmethod
    def media(self, media: Media) -> Payload | None:
        """Return the part of an image or file; None if OpenAI does not accept it."""

    @abstractmethod
    def say(self, role: str, said: Sequence[Payload], payload: Payload) -> None:
        """Write a message of these parts, which were in `payload`."""

    @abstractmethod
    def call(self, part: Call, call_id: str) -> None:
        """Write a call."""

    @abstractmethod
    def answer(self, parts: Sequence[Part], call_id: str) -> None:
        """Write the result of a call."""

    def write(self, payloads: Iterable[Payload]) -> list[int]:
        """Write messages. Return the index of the first item of each, and that of the end."""
        places = []
        for payload in payloads:
            places.append(len(self.written))
            kept = payload if type(payload) is Opaque else self.keep(payload)
            if kept is None:
                for role, parts in parse_message(payload, self._view):
                    self._add(role, parts, payload)
                continue
            own_role = kept.get("role")
            if own_role in (USER, SYSTEM, "developer") or (own_role == ASSISTANT and not self._waiting.open):
                self._flush()
            self.written.append(kept)
        self._flush()
        return [*places, len(self.written)]

    def _flush(self) -> None:
        if self._behind:
            behind, self._behind = self._behind, []
            self.say(USER, behind, {})

    def _add(self, role: str, parts: Iterable[Part], payload: Payload) -> None:
        said: list[Payload] = []
        for part in parts:
            match part:
                case Call(call):
                    self._say(role, said, payload)
                    if not self._waiting.open:
                        self._ids.begin_turn()
                    self._waiting.add({call.key: call.by_name})
                    self.call(part, self._ids.assign(call.key[1]))
                case Result(result):
                    key = self._waiting.answer(result.key) or result.key
                    self.answer(part.parts, self._ids.find(key[1]))
                case Media() if role != USER and (shown := self.media(part)) is not None:
                    said += [text(f"[{part.kind}]")] if role == ASSISTANT else []
                    self._behind.append(shown)
                case _:
                    said.append(self.part(part))
        self._say(role, said, payload)

    def _say(self, role: str, said: list[Payload], payload: Payload) -> None:
        if said:
            if role != ASSISTANT or not self._waiting.open:
                self._flush()
            self.say(role, [*said], payload)
            said.clear()


def text(words: str) -> Payload:
    """Return a part with words alone."""
    return {"type": "text", "text": words}


def join_texts(parts: Sequence[Payload], between: str = "\n\n") -> str | None:
    """Return the texts as one; None if a part is more than a text."""
    is_text = all(part.keys() == {"type", "text"} for part in parts)
    return between.join(part["text"] for part in parts) if is_text else None


def json_arguments(arguments: Any) -> str:
    """Return the arguments of a call as JSON text: the text itself if it is valid."""
    if is_arguments(arguments):
        return str(arguments)
    return str(replace_unsendable(json.dumps(to_object(arguments), ensure_ascii=False)))


def is_arguments(arguments: object) -> bool:
    """True for arguments of a call that OpenAI accepts."""
    return isinstance(arguments, str) and is_json(arguments)


def is_tool_name(name: object) -> bool:
    """True for the name of a tool that OpenAI accepts."""
    return isinstance(name, str) and _TOOL_NAME.fullmatch(name) is not None


def image_url(media: Media) -> str | None:
    """Return the URL or data URL of an image; None if OpenAI does not accept it."""
    if media.kind != "image":
        return None
    if media.url is not None:
        return media.url if media.url.startswith("http") else None
    return f"data:{media.mime};base64,{media.base64}" if media.base64 and media.mime in _IMAGES else None


def file_data(media: Media) -> dict[str, str] | None:
    """Return the fields of a file with its bytes; None if OpenAI does not accept it."""
    if media.mime != "application/pdf" or not media.base64:
        return None
    return {"filename": media.name or "file.pdf", "file_data": f"data:{media.mime};base64,{media.base64}"}
