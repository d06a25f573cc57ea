"""Blocks of Anthropic's, and whether it takes them: it refuses the whole request for one that it does not. No I/O."""

from __future__ import annotations

from collections.abc import Iterable

from redismem.formats.media import mime_at
from redismem.formats.parts import Media
from redismem.formats.tool_calls import Payload

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_MOST_CHARS = {"image": 5 * 1024 * 1024, "file": 30 * 1024 * 1024}
"""How long base64 may be: an image may have 5 MB so written, a whole request 32 MB."""
_MOST_MARKS = 4
_BESIDE_MEDIA = {"title": str, "context": str, "citations": dict}
# What each block has at least.
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
}
_OF_SERVERS: dict[str, type | tuple[type, ...]] = {"tool_use_id": str, "content": (str, list, dict)}


def is_sound(block: Payload) -> bool:
    """Whether a block that is sent as it is has what its type asks for."""
    kind = str(block.get("type"))
    if not all(isinstance(block.get(name), types) for name, types in _HELD.get(kind, _OF_SERVERS).items()):
        return False
    if block.get("cache_control") is not None and not cached(block):
        return False
    if kind == "search_result":
        return all(map(_is_text, block["content"]))
    return kind not in ("image", "document") or _is_source(block["source"], kind)


def _is_source(source: Payload, kind: str) -> bool:
    """Whether it is a source that is neither an address nor base64."""
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


def cached(block: Payload) -> Payload:
    """The mark of the prompt cache that a block has; none if Anthropic does not know it."""
    match block.get("cache_control"):
        case {"type": "ephemeral", **others} as mark if others in ({}, {"ttl": "5m"}, {"ttl": "1h"}):
            return {"cache_control": mark}
    return {}


def limit_marks(contents: Iterable[list[Payload]]) -> None:
    """Takes all marks of the prompt cache but the last four out of these blocks: Anthropic refuses more.

    Whoever marks the newest message of each turn, as its caching wants it, has stored one more with each.
    """
    marked = [(blocks, at) for blocks in contents for at, block in enumerate(blocks) if block.get("cache_control")]
    for blocks, at in marked[:-_MOST_MARKS]:
        blocks[at] = {name: value for name, value in blocks[at].items() if name != "cache_control"}


def cited(block: Payload) -> Payload:
    """What a text of the assistant's cites."""
    match block.get("citations"):
        case [_, *_] as citations if all(
            isinstance(each, dict) and isinstance(each.get("type"), str) for each in citations
        ):
            return {"citations": citations}
    return {}


def source_of(media: Media) -> Payload | None:
    """Where Anthropic finds an image or a document; None for what it does not take."""
    if media.url is not None:
        mime = mime_at(media.url)
        known = mime in ("", *_IMAGES) if media.kind == "image" else _own(media) or mime == "application/pdf"
        return {"type": "url", "url": media.url} if known and media.url.startswith("https://") else None
    allowed = _IMAGES if media.kind == "image" else ("application/pdf",)
    if media.base64 and media.mime in allowed and len(media.base64) <= _MOST_CHARS[media.kind]:
        return {"type": "base64", "media_type": media.mime, "data": media.base64}
    return None


def beside_source(media: Media) -> Payload:
    """What else stands in an image or document of Anthropic's own, such as its title."""
    own = _own(media)
    kept = {
        name: value
        for name, value in own.items()
        if name not in ("source", "cache_control")
        and (value is None or isinstance(value, _BESIDE_MEDIA.get(name, object)))
    }
    return kept | cached(own)


def _own(media: Media) -> Payload:
    """The block that it was stored as, if it is Anthropic's."""
    return media.part if media.part is not None and "type" in media.part else {}
