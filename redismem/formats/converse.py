"""Write a context in the format of Bedrock's Converse API. No I/O.

The user comes first, roles alternate, and the next message answers every tool call. Images and files are bytes, as
boto3 expects them, or addresses in S3; Converse fetches no other address.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.forms import Payload
from redismem.formats.identifiers import CallIds, tool_name
from redismem.formats.media import parse_base64
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, View, placeholder
from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import to_object
from redismem.formats.turns import Turn, build_turns, split_opening

_KINDS = ("image", "document", "video", "audio")
_OFFICE = "application/vnd.openxmlformats-officedocument."
_FORMATS = {
    "document": {
        "application/pdf": "pdf",
        "application/msword": "doc",
        f"{_OFFICE}wordprocessingml.document": "docx",
        "application/vnd.ms-excel": "xls",
        f"{_OFFICE}spreadsheetml.sheet": "xlsx",
        "text/csv": "csv",
        "text/html": "html",
        "text/plain": "txt",
        "text/markdown": "md",
    },
    "image": {f"image/{kind}": kind for kind in ("png", "jpeg", "gif", "webp")},
    "video": {
        **{f"video/{kind}": kind for kind in ("mp4", "webm", "mpeg", "mpg", "mov")},
        "video/quicktime": "mov",
        "video/x-matroska": "mkv",
        "video/x-flv": "flv",
        "video/3gpp": "three_gp",
    },
    "audio": {
        "audio/mpeg": "mp3",
        **{f"audio/{kind}": kind for kind in ("mp3", "wav", "ogg", "flac", "aac", "opus", "webm", "mp4", "m4a")},
    },
}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9()\[\]-]+")
_BYTES = ("bytes", "redactedContent")
_EMPTY = "(The result is empty.)"


class ConverseContext(TypedDict):
    """The keyword arguments for `client.converse(modelId=…, **context.to_converse())`."""

    messages: list[Any]
    system: NotRequired[list[Any]]
    """The leading texts of the system and developer roles; missing if there are none."""


def converse_context(
    payloads: Sequence[Payload], background_count: int = 0, *, thoughts: bool = True, tools: bool = True
) -> ConverseContext:
    """Write messages in Converse's format; the first `background_count` without a system role are summaries."""
    view = View(_is_native, thoughts, tools)
    system, spoken = split_opening(payloads, background_count, view)
    writer = _Writer()
    messages = [writer.message(turn) for turn in build_turns(spoken, view, _takes)]
    context: ConverseContext = {"messages": messages}
    if system:
        context["system"] = [writer.block(part, "") for part in system]
    sendable: ConverseContext = decode_bytes(make_sendable(context))
    return sendable


def decode_bytes(value: Any) -> Any:
    """Return the context with bytes in the place of base64."""
    if isinstance(value, list):
        return [decode_bytes(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(item)
        if name in _BYTES and isinstance(item, str)
        else item
        if name in ("input", "json")
        else decode_bytes(item)
        for name, item in value.items()
    }


class _Writer:
    """Writes turns, with call ids and names of documents that are unique."""

    def __init__(self) -> None:
        self._ids = CallIds()
        self._documents: Counter[str] = Counter()

    def message(self, turn: Turn) -> Payload:
        if turn.role == ASSISTANT:
            self._ids.begin_turn()
        blocks = [self.block(part, turn.role) for part in turn.parts]
        if any("document" in block for block in blocks) and not any("text" in block for block in blocks):
            blocks.append({"text": "[file]"})  # Converse refuses a document without a text
        return {"role": turn.role, "content": blocks}

    def block(self, part: Part, role: str) -> Payload:
        """Return the block of a part."""
        match part:
            case Text(text, stored):
                own = (stored or {}).get("json")
                return {"json": own} if role == "result" and isinstance(own, dict) else {"text": text}
            case Call(call):
                made = {"toolUseId": self._ids.assign(call.key[1]), "name": tool_name(call.name)}
                return {"toolUse": {**made, "input": to_object(call.arguments)}}
            case Result(result, parts, stored):
                shown = [item for item in parts if not isinstance(item, Text) or item.text.strip()]
                content = [self.block(item, "result") for item in shown] or [{"text": _EMPTY}]
                own = stored.get("toolResult")
                status = "error" if result.is_error else own.get("status") if isinstance(own, dict) else None
                answer = {"toolUseId": self._ids.find(result.key[1]), "content": content}
                return {"toolResult": answer | ({"status": status} if status in ("success", "error") else {})}
            case Media() if _takes(part, role):
                return self._media(part)
            case Native(stored) if _is_native(stored, role):
                return stored
        return {"text": placeholder(part)}

    def _media(self, media: Media) -> Payload:
        kind, own = _own_media(media)
        if kind != "document":
            return {kind: own or {"format": _format(media), "source": {"bytes": media.base64}}}
        name = _NOT_IN_A_NAME.sub(" ", media.name.rpartition(".")[0] or media.name)[:150].strip() or "document"
        self._documents[name] += 1
        name = name if self._documents[name] == 1 else f"{name} {self._documents[name]}"
        return {kind: {"format": _format(media), "source": {"bytes": media.base64}, **own, "name": name}}


def _own_media(media: Media) -> tuple[str, Payload]:
    """Return the kind of a block, and the block if it was stored in Converse's format."""
    stored = media.part or {}
    for kind, own in stored.items():
        if kind in _KINDS and isinstance(own, dict) and len(stored) == 1:
            match own.get("source"):
                case {"bytes": str()} | {"s3Location": {"uri": str()}}:
                    return kind, own
    return (media.kind if media.kind in _KINDS else "document"), {}


def _format(media: Media) -> str | None:
    kind = media.kind if media.kind in _KINDS else "document"
    return _FORMATS[kind].get(media.mime)


def _takes(media: Media, role: str) -> bool:
    kind, own = _own_media(media)
    if role == ASSISTANT or (role == "result" and kind == "audio"):
        return False
    if own:
        return "s3Location" in own["source"] or parse_base64(own["source"]["bytes"]) is not None
    return bool(media.base64) and _format(media) is not None


def _is_native(part: Payload, role: str) -> bool:
    match list(part.items()):
        case [("reasoningContent", {"reasoningText": {"text": str(), **others}})]:
            return role == ASSISTANT and others.keys() <= {"signature"} and bool(others.get("signature", "-"))
        case [("reasoningContent", {"redactedContent": str(data)})]:
            return role == ASSISTANT and parse_base64(data) is not None
        case [("cachePoint", {"type": "default"})]:
            return True
        case [("searchResult", {"source": str(), "title": str(), "content": [*texts]})]:
            return role != ASSISTANT and all(isinstance(item, dict) and item.keys() == {"text"} for item in texts)
        case [("guardContent", {"text": {"text": str()}})]:
            return role != ASSISTANT
    return False
