"""Validate Anthropic's native blocks, because one invalid block makes Anthropic refuse the whole request. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable

from redismem.formats.forms import Payload
from redismem.formats.media import guess_mime
from redismem.formats.parts import Media

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MOST_CHARS = {"image": 5 * 1024 * 1024, "file": 30 * 1024 * 1024}
"""The longest accepted base64 texts. Anthropic accepts 5 MB per image and 32 MB per request."""
_MOST_MARKS = 4
_SERVER_ID = re.compile("srvtoolu_[A-Za-z0-9_]{1,64}")
_BESIDE_MEDIA = {"title": str, "context": str, "citations": dict}
# The required fields of each block type.
_CALL = {"id": str, "name": str, "input": dict}
_HELD: dict[str, dict[str, type | tuple[type, ...]]] = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "server_tool_use": {**_CALL},
    "mcp_tool_use": {**_CALL, "server_name": str},
    "image": {"source": dict},
    "document": {"source": dict},
    "search_result": {"source": str, "title": str, "content": list},
    "container_upload": {"file_id": str},
    "tool_reference": {"tool_name": str},
}
_OF_SERVERS: dict[str, type | tuple[type, ...]] = {"tool_use_id": str, "content": (str, list, dict)}


def is_sound(block: Payload) -> bool:
    """True if a native block has the fields that its type requires."""
    kind = str(block.get("type"))
    if not all(isinstance(block.get(name), types) for name, types in _HELD.get(kind, _OF_SERVERS).items()):
        return False
    if kind in ("thinking", "redacted_thinking"):
        return kind != "thinking" or bool(block["signature"])
    if block.get("cache_control") is not None and not cache_mark(block):
        return False
    if kind == "server_tool_use" or (kind not in _HELD and kind != "mcp_tool_result"):
        return _SERVER_ID.fullmatch(str(block.get("id", block.get("tool_use_id")))) is not None
    if kind == "search_result":
        return all(map(_is_text, block["content"]))
    return kind not in ("image", "document") or _is_source(block["source"], kind)


def _is_source(source: Payload, kind: str) -> bool:
    """True for a valid source that is neither a URL nor base64."""
    match source:
        case {"type": "file", "file_id": str()}:
            return True
        case {"type": "text", "media_type": "text/plain", "data": str()} | {"type": "content", "content": str()}:
            return kind == "document"
        case {"type": "content", "content": [*blocks]}:
            return kind == "document" and all(map(_is_text, blocks))
    return False


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def cache_mark(block: Payload) -> Payload:
    """Return the `cache_control` field of a block; {} if it has none or an invalid one."""
    match block.get("cache_control"):
        case {"type": "ephemeral", **others} as mark if others in ({}, {"ttl": "5m"}, {"ttl": "1h"}):
            return {"cache_control": mark}
    return {}


def limit_cache_marks(contents: Iterable[list[Payload]]) -> None:
    """Remove all prompt-cache marks except the last four, and the TTL of an hour behind a shorter one.

    Anthropic refuses more marks, and a longer TTL behind a shorter one. Applications often mark the newest message of
    each turn, so the number of stored marks grows with each turn.
    """
    marked = [(blocks, at) for blocks in contents for at, block in enumerate(blocks) if block.get("cache_control")]
    for blocks, at in marked[:-_MOST_MARKS]:
        blocks[at] = {name: value for name, value in blocks[at].items() if name != "cache_control"}
    is_short = False
    for blocks, at in marked[-_MOST_MARKS:]:
        if is_short and blocks[at]["cache_control"].get("ttl") == "1h":
            blocks[at] = blocks[at] | {"cache_control": {"type": "ephemeral"}}
        is_short = is_short or blocks[at]["cache_control"].get("ttl") != "1h"


def citation_field(block: Payload) -> Payload:
    """Return the `citations` field of an assistant's text block; {} if it has none or an invalid one."""
    match block.get("citations"):
        case [_, *_] as citations if all(
            isinstance(citation, dict) and isinstance(citation.get("type"), str) for citation in citations
        ):
            return {"citations": citations}
    return {}


def media_source(media: Media) -> Payload | None:
    """Return the source of an image or document; None if Anthropic does not accept it."""
    if media.url is not None:
        mime = guess_mime(media.url)
        is_accepted = (
            mime in ("", *_IMAGES) if media.kind == "image" else _stored_block(media) or mime == "application/pdf"
        )
        return {"type": "url", "url": media.url} if is_accepted and media.url.startswith("https://") else None
    allowed = _IMAGES if media.kind == "image" else ("application/pdf",)
    if media.base64 and media.mime in allowed and len(media.base64) <= _MOST_CHARS[media.kind]:
        return {"type": "base64", "media_type": media.mime, "data": media.base64}
    return None


def media_fields(media: Media) -> Payload:
    """Return the fields of a stored Anthropic image or document other than its source, such as its title."""
    block = _stored_block(media)
    fields = {
        name: value
        for name, value in block.items()
        if name not in ("type", "source", "cache_control")
        and (value is None or isinstance(value, _BESIDE_MEDIA.get(name, object)))
    }
    return fields | cache_mark(block)


def _stored_block(media: Media) -> Payload:
    """Return the stored block if it is in Anthropic's format, else {}."""
    part = media.part or {}
    return part if part.get("type") in ("image", "document") and isinstance(part.get("source"), dict) else {}
