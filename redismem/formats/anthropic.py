"""Write a context in the format of Anthropic's Messages API. No I/O.

Texts are never blank, the user comes first, roles alternate, and the next message answers every tool call. Characters
in ids and names that Anthropic refuses are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.anthropic_blocks import (
    cache_mark,
    citation_field,
    is_sound,
    limit_cache_marks,
    media_fields,
    media_source,
)
from redismem.formats.forms import Payload
from redismem.formats.identifiers import CallIds, tool_name
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, View, placeholder
from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import to_object
from redismem.formats.turns import build_turns, split_opening

# Native parts that are sent unchanged. The first set may only be in assistant messages.
_THOUGHTS = ("thinking", "redacted_thinking")
_ASSISTANTS = frozenset([*_THOUGHTS, "server_tool_use", "mcp_tool_use"])
_USERS = frozenset(["image", "document", "search_result", "container_upload", "tool_reference"])
_OF_SERVERS = "_tool_result"


class AnthropicContext(TypedDict):
    """The keyword arguments for `client.messages.create(model=…, max_tokens=…, **context.to_anthropic())`."""

    messages: list[Any]
    system: NotRequired[list[Any]]
    """The leading texts of the system and developer roles; missing if there are none."""


def anthropic_context(
    payloads: Sequence[Payload], background_count: int = 0, *, thoughts: bool = True, tools: bool = True
) -> AnthropicContext:
    """Write messages in Anthropic's format; the first `background_count` without a system role are summaries."""
    system, spoken = split_opening(payloads, background_count)
    ids = CallIds()
    messages: list[Payload] = []
    for turn in build_turns(spoken, View(_is_native, thoughts, tools), _takes):
        if turn.role == ASSISTANT:
            ids.begin_turn()
        blocks = [_block(part, turn.role, ids) for part in turn.parts]
        messages.append({"role": turn.role, "content": blocks})
    if messages and messages[-1]["role"] == ASSISTANT:
        _trim(messages[-1]["content"])
    context: AnthropicContext = {"messages": messages}
    texts = [_text(part) for part in system if isinstance(part, Text)]
    if texts:
        context["system"] = texts
    limit_cache_marks([texts, *_contents(messages)])
    sendable: AnthropicContext = make_sendable(context)
    return sendable


def _contents(messages: Iterable[Payload]) -> Iterator[list[Payload]]:
    """Yield the block lists of messages and of the tool results in them, in sending order."""
    for message in messages:
        yield from (
            block["content"] for block in message["content"] if block["type"] == "tool_result" and "content" in block
        )
        yield message["content"]


def _trim(blocks: list[Payload]) -> None:
    """Strip trailing whitespace from a prefilled assistant message: Anthropic refuses it."""
    if blocks[-1]["type"] == "text":
        blocks[-1] = blocks[-1] | {"text": blocks[-1]["text"].rstrip()}


def _text(part: Text, role: str = "") -> Payload:
    beside = part.part or {}
    return {
        "type": "text",
        "text": part.text,
        **cache_mark(beside),
        **(citation_field(beside) if role == ASSISTANT else {}),
    }


def _block(part: Part, role: str, ids: CallIds) -> Payload:
    match part:
        case Text():
            return _text(part, role)
        case Call(call, stored):
            made = {"type": "tool_use", "id": ids.assign(call.key[1]), "name": tool_name(call.name)}
            caller = {"caller": stored["caller"]} if isinstance(stored.get("caller"), dict) else {}
            return {**made, "input": to_object(call.arguments), **caller, **cache_mark(stored)}
        case Result(result, parts, stored):
            answer: Payload = {"type": "tool_result", "tool_use_id": ids.find(result.key[1]), **cache_mark(stored)}
            content = [_block(item, role, ids) for item in parts if not isinstance(item, Text) or item.text.strip()]
            error = {"is_error": True} if result.is_error else {}
            return answer | error | ({"content": content} if content else {})
        case Media() if _takes(part, role):
            kind = "image" if part.kind == "image" else "document"
            return {"type": kind, **media_fields(part), "source": media_source(part)}
        case Native(stored) if _is_native(stored, role):
            if stored["type"] in _THOUGHTS:  # Anthropic refuses a cache mark there
                return {name: value for name, value in stored.items() if name != "cache_control"}
            return stored
    return {"type": "text", "text": placeholder(part)}


def _takes(media: Media, role: str) -> bool:
    return role != ASSISTANT and media_source(media) is not None


def _is_native(part: Payload, role: str) -> bool:
    kind = str(part.get("type"))
    is_assistants = kind in _ASSISTANTS or kind.endswith(_OF_SERVERS)
    return (is_assistants if role == ASSISTANT else kind in _USERS) and is_sound(part)
