"""Write a context in the format of OpenAI's chat completions, which LiteLLM and many servers read. No I/O.

A message that OpenAI accepts is the same dict as the stored one. The others are written anew from their parts.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any

from redismem.formats.forms import Payload
from redismem.formats.identifiers import OPENAI_CHAT, tool_name
from redismem.formats.openai_parts import (
    Writer,
    file_data,
    image_url,
    is_arguments,
    is_tool_name,
    join_texts,
    json_arguments,
    text,
)
from redismem.formats.parts import ASSISTANT, SYSTEM, USER, Call, Media, Part, Text, View, placeholder
from redismem.formats.quoting import label
from redismem.formats.sendable import replace_unsendable
from redismem.formats.tool_calls import text_of
from redismem.formats.tool_pairing import pair_chat
from redismem.messages.message import Opaque

_ROLES = frozenset(["system", "developer", "user", "assistant", "tool", "function"])
_FOREIGN = frozenset(["type", "parts", "contents", "blocks", "kind", "additional_kwargs"])
_WRITTEN = frozenset(
    ["role", "content", "name", "tool_calls", "tool_call_id", "tool_name", "function_call", "refusal", "is_error"]
)
_THOUGHTS = frozenset(["reasoning_content", "reasoning", "reasoning_details", "thinking", "thinking_blocks"])
_CALLS = frozenset(["tool_calls", "function_call"])
_RARE = _CALLS | {"audio", "refusal"}
_ODD = frozenset(["function_call", "audio"])
_SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")
_AUDIO = "[audio]"
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def chat_messages(
    payloads: Sequence[Payload],
    *,
    thoughts: bool = True,
    tools: bool = True,
    now_ms: float | None = None,
    may_hold_surrogates: bool = True,
) -> list[Payload]:
    """Write messages in the format of chat completions, with the dicts of opaque messages in their places."""
    prepared = [
        payload
        if thoughts and _ODD.isdisjoint(payload) and payload.get("role") != "function"
        else _prepare(payload, thoughts, now_ms)
        for payload in payloads
    ]
    if False in [_is_chat(payload, tools) for payload in prepared]:
        writer = _Writer(View(thoughts=thoughts, tools=tools), OPENAI_CHAT)
        writer.write(prepared)
        prepared = writer.written
    paired = pair_chat(prepared)
    if not may_hold_surrogates:
        return paired
    return [each.payload if type(each) is Opaque else replace_unsendable(each) for each in paired]


def _is_chat(payload: Payload, tools: bool = True) -> bool:
    """True for a message that OpenAI accepts unchanged, and for an opaque one."""
    role, content = payload.get("role"), payload.get("content")
    if type(role) is not str or role not in _ROLES or not _FOREIGN.isdisjoint(payload):
        return type(payload) is Opaque
    is_result = role in ("tool", "function")
    if is_result or not _RARE.isdisjoint(payload):
        is_of_tools = is_result or not _CALLS.isdisjoint(payload)
        if (is_of_tools and not tools) or not _is_sound(payload, role):
            return False
    if "name" in payload and not is_result and not _is_speaker(payload["name"]):
        return False
    if type(content) is str:
        return True
    if content is None:
        others = ("tool_calls", "function_call", "audio")
        is_said = isinstance(payload.get("refusal"), str) or any(payload.get(name) for name in others)
        return role == ASSISTANT and is_said
    return isinstance(content, list) and bool(content) and all(_is_part(part, role) for part in content)


def _is_sound(payload: Payload, role: str) -> bool:
    """True for a sound result, or a message with sound calls, audio and refusal."""
    if role == "function":
        return is_tool_name(payload.get("name")) and isinstance(payload.get("content"), str)
    if role == "tool":
        return _is_id(payload.get("tool_call_id")) and "tool_calls" not in payload
    calls, function = payload.get("tool_calls"), payload.get("function_call")
    if not isinstance(payload.get("refusal"), str | None) or ("audio" in payload and not _is_audio(payload["audio"])):
        return False
    if _CALLS.isdisjoint(payload):
        return True
    if role != ASSISTANT or ("function_call" in payload and not _is_function(function, "arguments")):
        return False
    return "tool_calls" not in payload or (isinstance(calls, list) and bool(calls) and all(map(_is_call, calls)))


def _is_speaker(name: Any) -> bool:
    return isinstance(name, str) and _SPEAKER.fullmatch(name) is not None


def _is_audio(audio: Any) -> bool:
    return isinstance(audio, dict) and audio.keys() == {"id"} and isinstance(audio["id"], str)


def _is_call(call: Any) -> bool:
    match call:
        case {"type": "function", "id": call_id, "function": function}:
            return _is_id(call_id) and _is_function(function, "arguments")
        case {"type": "custom", "id": call_id, "custom": {"name": name, "input": str()}}:
            return _is_id(call_id) and is_tool_name(name)
    return False


def _is_id(call_id: object) -> bool:
    return isinstance(call_id, str) and OPENAI_CHAT.fullmatch(call_id) is not None


def _is_function(function: Any, field: str) -> bool:
    return isinstance(function, dict) and is_tool_name(function.get("name")) and is_arguments(function.get(field))


def _is_part(part: Any, role: str) -> bool:
    """True for a part of a content that OpenAI accepts from this role."""
    match part:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "refusal", "refusal": str()}:
            return role == ASSISTANT
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return role == USER and bool(url)
        case {"type": "input_audio", "input_audio": {"data": str(), "format": "wav" | "mp3"}}:
            return role == USER
        case {"type": "file", "file": {"file_id": str()} | {"file_data": str(), "filename": str()}}:
            return role == USER
    return False


def _prepare(payload: Payload, thoughts: bool, now_ms: float | None) -> Payload:
    """Return the message with sound audio and a sound function call, and without thoughts if they are left out."""
    if not thoughts and not _THOUGHTS.isdisjoint(payload):
        payload = {name: value for name, value in payload.items() if name not in _THOUGHTS}
    function = payload.get("function_call")
    if isinstance(function, dict) and payload.get("role") == ASSISTANT and not _is_function(function, "arguments"):
        sound = {"name": tool_name(function.get("name")), "arguments": json_arguments(function.get("arguments"))}
        payload = payload | {"function_call": sound}
    if payload.get("role") == "function" and not _is_sound(payload, "function") and _FOREIGN.isdisjoint(payload):
        payload = payload | {"name": tool_name(payload.get("name")), "content": text_of(payload.get("content"))}
    if isinstance(payload.get("audio"), dict) and payload.get("role") == ASSISTANT:
        payload = _refer_to_audio(payload, now_ms)
    return payload


def _refer_to_audio(payload: Payload, now_ms: float | None) -> Payload:
    """Return the message with its audio as a reference to its id; after its expiry, with its transcript as the text."""
    audio = payload["audio"]
    if isinstance(audio.get("id"), str) and not _is_expired(audio, now_ms):
        return payload if len(audio) == 1 else payload | {"audio": {"id": audio["id"]}}
    others = {name: value for name, value in payload.items() if name != "audio"}
    transcript, content = audio.get("transcript"), payload.get("content")
    words = transcript if isinstance(transcript, str) and transcript.strip() else ""
    if isinstance(content, list):
        return others | {"content": [*content, text(words)] if words else content}
    whole = "\n\n".join(filter(None, (content if isinstance(content, str) else "", words)))
    return others | {"content": whole or (None if payload.get("tool_calls") else _AUDIO)}


def _is_expired(audio: Payload, now_ms: float | None) -> bool:
    expires_at = audio.get("expires_at")  # in seconds since 1970
    expires_ms = expires_at * 1000 if isinstance(expires_at, int | float) else math.inf
    return expires_ms <= (time.time() * 1000 if now_ms is None else now_ms)


class _Writer(Writer):
    """Writes messages of chat completions."""

    _last: Payload | None = None
    """The last message, if it is one of the assistant that was written anew: further calls of its response join it."""

    def keep(self, payload: Payload) -> Payload | None:
        is_awaited = payload.get("role") == "function" and ("function", str(payload.get("name"))) in self._waiting.open
        return payload if _is_chat(payload, self._view.tools) and not is_awaited else None

    def part(self, part: Part) -> Payload:
        stored = part.part if isinstance(part, Text) else None
        if stored is not None and _is_part(stored, "") and stored["text"] == placeholder(part):
            return stored
        return super().part(part)

    def media(self, media: Media) -> Payload | None:
        is_there = media.kind != "image" or media.url or media.base64
        if is_there and media.part is not None and _is_part(media.part, USER):
            return media.part
        url, file = image_url(media), file_data(media)
        if url is not None:
            return {"type": "image_url", "image_url": {"url": url}}
        if media.base64 and media.mime in _AUDIO_FORMATS:
            return {"type": "input_audio", "input_audio": {"data": media.base64, "format": _AUDIO_FORMATS[media.mime]}}
        return None if file is None else {"type": "file", "file": file}

    def say(self, role: str, said: Sequence[Payload], payload: Payload) -> None:
        last = self._open_message()
        if role == ASSISTANT and last is not None and "tool_calls" in last:
            content = last["content"]
            before = [text(content)] if isinstance(content, str) else content or ()
            last["content"] = _content([*before, *said])
            return
        own = payload.get("role")
        role = own if role == SYSTEM and own in ("system", "developer") else role
        message = {"role": role, "content": _content(said), **_beside(payload, role)}
        self.written.append(message)
        self._last = message if role == ASSISTANT else None

    def _open_message(self) -> Payload | None:
        """Return the last message if the assistant's next call belongs to it."""
        last = self.written[-1] if self.written else None
        return last if last is not None and last is self._last else None

    def call(self, part: Call, call_id: str) -> None:
        last = self._open_message()
        if last is None:
            last = self._last = {"role": ASSISTANT, "content": None}
            self.written.append(last)
        last.setdefault("tool_calls", []).append(_call(part, call_id))

    def answer(self, parts: Sequence[Part], call_id: str) -> None:
        texts: list[Payload] = []
        behind: list[Payload] = []
        for part in parts:
            if isinstance(part, Media) and (media := self.media(part)) is not None:
                texts.append(text(f"[{part.kind}]"))
                behind.append(media)
            else:
                texts.append(self.part(part))
        self.written.append({"role": "tool", "tool_call_id": call_id, "content": _content(texts, "\n") or ""})
        if behind:
            self._behind += [text(f"From the result of the call {label(call_id)}:"), *behind]


def _call(part: Call, call_id: str) -> Payload:
    call, stored = part
    if _is_call(stored) and stored["id"] == call_id:
        return stored
    name = tool_name(call.name)
    beside = {"extra_content": stored["extra_content"]} if "extra_content" in stored else {}
    if stored.get("type") in ("custom", "custom_tool_call") and isinstance(call.arguments, str):
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": call.arguments}, **beside}
    function = {"name": name, "arguments": json_arguments(call.arguments)}
    return {"id": call_id, "type": "function", "function": function, **beside}


def _beside(payload: Payload, role: str) -> Payload:
    """Return the other fields of a message that was stored in this format."""
    if payload.get("role") != role or not _FOREIGN.isdisjoint(payload):
        return {}
    own = {name: value for name, value in payload.items() if name not in _WRITTEN}
    return (
        own if "audio" not in own or _is_audio(own["audio"]) else {name: own[name] for name in own if name != "audio"}
    )


def _content(parts: Sequence[Payload], between: str = "\n\n") -> str | list[Payload] | None:
    """Return the parts as a content: one text if there is nothing else."""
    joined = join_texts(parts, between)
    return list(parts) if joined is None else joined or None
