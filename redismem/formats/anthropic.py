"""A context as Anthropic's Messages API takes it. No I/O.

Texts are never blank, the user speaks first, nobody speaks twice in a row, every call of a tool is answered in the next
message. Ids and names that Anthropic would refuse are written with other characters.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NotRequired, TypedDict

from redismem.formats.anthropic_blocks import beside_source, cached, cited, is_sound, limit_marks, source_of
from redismem.formats.parts import ASSISTANT, Call, Media, Native, Part, Result, Text, placeholder
from redismem.formats.tool_arguments import object_of, sendable
from redismem.formats.tool_calls import THOUGHTS, Payload
from redismem.formats.turns import Turn, opening, turns_of

_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]")
# Parts that are sent as they are. Those of the first line are the assistant's own.
_ASSISTANTS = frozenset([*THOUGHTS, "server_tool_use", "mcp_tool_use"])
_OWN = _ASSISTANTS | {"image", "document", "search_result", "container_upload"}
_OF_SERVERS = "_tool_result"
_NOTHING_SAID = "(The assistant thought, and said nothing.)"


class AnthropicContext(TypedDict):
    """What `client.messages.create` takes: `create(model=…, max_tokens=…, **context.to_anthropic())`."""

    messages: list[Any]
    system: NotRequired[list[Any]]
    """The texts of the system and the developer at the beginning; missing if there are none."""


def anthropic_context(payloads: Sequence[Payload], background_count: int) -> AnthropicContext:
    """The messages, of which `background_count` are summaries, and the system's texts before them."""
    system, spoken = opening(payloads, background_count)
    ids = _Ids()
    messages: list[Payload] = []
    for turn in turns_of(spoken):
        ids.begin(turn)
        blocks = [_block(part, turn.role, ids) for part in turn.parts]
        if blocks[-1]["type"] in THOUGHTS:  # refused at the end
            blocks.append({"type": "text", "text": _NOTHING_SAID})
        messages.append({"role": turn.role, "content": blocks})
    if messages and messages[-1]["role"] == ASSISTANT:
        _trim(messages[-1]["content"])
    found: AnthropicContext = {"messages": messages}
    texts = [_text(part) if isinstance(part, Text) else _text(Text(placeholder(part))) for part in system]
    if texts:
        found["system"] = texts
    limit_marks([texts, *_contents(messages)])
    sent: AnthropicContext = sendable(found)
    return sent


def _contents(messages: Iterable[Payload]) -> Iterator[list[Payload]]:
    """The blocks of each message, and those of each result in it."""
    for message in messages:
        yield from (
            block["content"] for block in message["content"] if block["type"] == "tool_result" and "content" in block
        )
        yield message["content"]


def _trim(blocks: list[Payload]) -> None:
    """What an assistant is to go on from must not end in a blank."""
    if blocks[-1]["type"] == "text":
        blocks[-1] = blocks[-1] | {"text": blocks[-1]["text"].rstrip()}


class _Ids:
    """The ids of calls: Anthropic wants each once, and of certain characters. A result is to the calls right before."""

    def __init__(self) -> None:
        self._uses: Counter[str] = Counter()
        self._current: dict[str, list[str]] = {}

    def begin(self, turn: Turn) -> None:
        if turn.role == ASSISTANT:
            self._current = {}

    def of_call(self, call_id: str) -> str:
        """A new one: while they wait for results, a turn may hold several calls of one name that have no ids."""
        self._current.setdefault(call_id, []).append(self._new(call_id))
        return self._current[call_id][-1]

    def _new(self, call_id: str) -> str:
        self._uses[call_id] += 1
        if self._uses[call_id] == 1 and _ID.fullmatch(call_id):
            return call_id
        name = f"{call_id} {self._uses[call_id]}".encode("utf-8", "surrogatepass")
        return f"call_{hashlib.blake2b(name, digest_size=12).hexdigest()}"

    def of_result(self, call_id: str) -> str:
        return self._current[call_id][0]


def _text(part: Text, role: str = "") -> Payload:
    beside = part.part or {}
    return {"type": "text", "text": part.text, **cached(beside), **(cited(beside) if role == ASSISTANT else {})}


def _block(part: Part, role: str, ids: _Ids) -> Payload:
    match part:
        case Text():
            return _text(part, role)
        case Call(call, stored):
            arguments = {"type": "tool_use", "id": ids.of_call(call.key[1]), "name": _name(call.name)}
            return {**arguments, "input": object_of(call.arguments), **cached(stored)}
        case Result(result, parts, stored):
            answer: Payload = {"type": "tool_result", "tool_use_id": ids.of_result(result.key[1]), **cached(stored)}
            content = [_block(each, role, ids) for each in parts if not isinstance(each, Text) or each.text.strip()]
            marked = {"is_error": True} if stored.get("is_error") is True else {}
            return answer | marked | ({"content": content} if content else {})
        case Media() if role != ASSISTANT:
            source = source_of(part)
            if source is not None:
                return {
                    "type": "image" if part.kind == "image" else "document",
                    **beside_source(part),
                    "source": source,
                }
        case Native("anthropic", stored) if _is_own(str(stored.get("type")), role) and is_sound(stored):
            return stored
    return {"type": "text", "text": placeholder(part)}


def _is_own(kind: str, role: str) -> bool:
    own_side = kind in _ASSISTANTS or kind.endswith(_OF_SERVERS)
    return own_side if role == ASSISTANT else kind in _OWN - _ASSISTANTS


def _name(name: Any) -> str:
    return _NOT_IN_A_NAME.sub("_", name[:64]) if isinstance(name, str) and name else "unnamed"
