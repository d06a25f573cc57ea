"""Convert a context to the format of Anthropic's Messages API. No I/O.

Texts are never blank, the user comes first, roles alternate, and the next message answers every tool call. Characters
in ids and names that Anthropic refuses are replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
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
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, placeholder
from redismem.formats.sendable import make_sendable
from redismem.formats.tool_arguments import to_object
from redismem.formats.turns import Turn, build_turns, split_opening

_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]")
# Native parts that are sent unchanged. The first set may only be in assistant messages.
_THOUGHTS = ("thinking", "redacted_thinking")
_ASSISTANTS = frozenset([*_THOUGHTS, "server_tool_use", "mcp_tool_use"])
_OWN = _ASSISTANTS | {"image", "document", "search_result", "container_upload"}
_OF_SERVERS = "_tool_result"
_NOTHING_SAID = "(The assistant thought, and said nothing.)"


class AnthropicContext(TypedDict):
    """The keyword arguments for `client.messages.create(model=…, max_tokens=…, **context.to_anthropic())`."""

    messages: list[Any]
    system: NotRequired[list[Any]]
    """The leading texts of the system and developer roles; missing if there are none."""


def anthropic_context(payloads: Sequence[Payload], background_count: int) -> AnthropicContext:
    """Convert messages to Anthropic's format; the first `background_count` without a system role are summaries."""
    system, spoken = split_opening(payloads, background_count)
    ids = _Ids()
    messages: list[Payload] = []
    for turn in build_turns(spoken, _is_native):
        ids.begin_turn(turn)
        blocks = [_block(part, turn.role, ids) for part in turn.parts]
        if blocks[-1]["type"] in _THOUGHTS:  # Anthropic refuses a message that ends in a thought
            blocks.append({"type": "text", "text": _NOTHING_SAID})
        messages.append({"role": turn.role, "content": blocks})
    if messages and messages[-1]["role"] == ASSISTANT:
        _trim(messages[-1]["content"])
    context: AnthropicContext = {"messages": messages}
    texts = [_text(part) if isinstance(part, Text) else _text(Text(placeholder(part))) for part in system]
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


class _Ids:
    """Assigns unique call ids of characters that Anthropic accepts. A result refers to a call of the turn before it."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._current: dict[str, list[str]] = {}

    def begin_turn(self, turn: Turn) -> None:
        if turn.role == ASSISTANT:
            self._current = {}

    def assign(self, call_id: str) -> str:
        """Return a new id for a call. Stored ids are not unique: calls without ids share one per function."""
        self._current.setdefault(call_id, []).append(self._new(call_id))
        return self._current[call_id][-1]

    def _new(self, call_id: str) -> str:
        self._uses[call_id] += 1
        if self._uses[call_id] == 1 and _ID.fullmatch(call_id):
            return call_id
        name = f"{call_id} {self._uses[call_id]}".encode("utf-8", "surrogatepass")
        return f"call_{hashlib.blake2b(name, digest_size=12).hexdigest()}"

    def find(self, call_id: str) -> str:
        """Return the assigned id of the call that a result answers."""
        return self._current[call_id][0]


def _text(part: Text, role: str = "") -> Payload:
    beside = part.part or {}
    return {
        "type": "text",
        "text": part.text,
        **cache_mark(beside),
        **(citation_field(beside) if role == ASSISTANT else {}),
    }


def _block(part: Part, role: str, ids: _Ids) -> Payload:
    match part:
        case Text():
            return _text(part, role)
        case Call(call, stored):
            arguments = {"type": "tool_use", "id": ids.assign(call.key[1]), "name": _name(call.name)}
            return {**arguments, "input": to_object(call.arguments), **cache_mark(stored)}
        case Result(result, parts, stored):
            answer: Payload = {"type": "tool_result", "tool_use_id": ids.find(result.key[1]), **cache_mark(stored)}
            content = [_block(item, role, ids) for item in parts if not isinstance(item, Text) or item.text.strip()]
            error = {"is_error": True} if result.is_error else {}
            return answer | error | ({"content": content} if content else {})
        case Media() if role != ASSISTANT:
            source = media_source(part)
            if source is not None:
                return {
                    "type": "image" if part.kind == "image" else "document",
                    **media_fields(part),
                    "source": source,
                }
        case Native(stored) if _is_native(stored, role):
            return stored
    return {"type": "text", "text": placeholder(part)}


def _is_native(part: Payload, role: str) -> bool:
    return _is_own(str(part.get("type")), role) and is_sound(part)


def _is_own(kind: str, role: str) -> bool:
    own_side = kind in _ASSISTANTS or kind.endswith(_OF_SERVERS)
    return own_side if role == ASSISTANT else kind in _OWN - _ASSISTANTS


def _name(name: Any) -> str:
    return _NOT_IN_A_NAME.sub("_", name[:64]) if isinstance(name, str) and name else "unnamed"
