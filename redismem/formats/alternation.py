"""Build messages for chat templates that require alternating turns, such as Mistral's, Gemma's and Llama's. No I/O.

These templates require at most one system message, which comes first, then user and assistant in turn, the user first.
Calls and their results come between a user's message and the assistant's answer. No text is lost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from redismem.formats.forms import Payload
from redismem.formats.openai_chat import chat_messages
from redismem.formats.parts import ASSISTANT, SYSTEM, USER, View, parse_message, placeholder, role_of
from redismem.formats.quoting import attribute
from redismem.formats.sections import name_of
from redismem.formats.turns import BEGINNING

_TOOL = "tool"
_NO_ANSWER = "(The assistant did not answer.)"


def alternate_roles(payloads: Sequence[Payload], *, thoughts: bool = True, tools: bool = True) -> list[Payload]:
    """Return messages of any format as one system message, then alternating turns. No message may be opaque.

    A message that fits is returned as the same dict. Adjacent messages of the same role are joined: strings with a
    blank line between them, parts in one list.
    """
    # Templates know no audio, so all of it has expired.
    messages = chat_messages(payloads, thoughts=thoughts, tools=tools, now_ms=math.inf)
    view = _join_system([message for message in messages if role_of(message) == SYSTEM])
    before = SYSTEM
    spoken = (known for message in messages if role_of(message) != SYSTEM for known in _keep_known(message))
    for role, group in groupby(spoken, lambda message: message["role"]):
        if role == ASSISTANT and before == SYSTEM:
            view.append({"role": USER, "content": BEGINNING})
        if role == USER and before == _TOOL:
            view.append({"role": ASSISTANT, "content": _NO_ANSWER})
        said = list(group)
        view += said if role == _TOOL else [_join(said)]
        before = role
    return view


def _join_system(messages: Sequence[Payload]) -> list[Payload]:
    texts = [text for text in map(_text, messages) if text.strip()]
    if not texts:
        return []
    if len(messages) == 1 and messages[0] == {"role": SYSTEM, "content": texts[0]}:
        return [messages[0]]
    return [{"role": SYSTEM, "content": "\n\n".join(texts)}]


def _keep_known(message: Payload) -> Iterator[Payload]:
    """Yield a message of fields that templates know: not the older function calls, and no refusal. Skip blank ones."""
    if "function_call" in message or message["role"] == "function" or isinstance(message.get("refusal"), str):
        for role, parts in parse_message(message, View(tools=False)):
            yield {"role": role, "content": "\n\n".join(map(placeholder, parts))}
    elif message["role"] == _TOOL or message.get("tool_calls") or not _is_blank(message.get("content")):
        yield message


def _text(message: Payload) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n\n".join(part["text"] for part in content)


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return all(part.get("type") == "text" and not str(part.get("text")).strip() for part in content)
    return not (content or "").strip()


def _join(messages: Sequence[Payload]) -> Payload:
    """Join adjacent messages of the same role into one.

    If they have different names, each name is written into its message's text.
    """
    if len(messages) == 1:
        return messages[0]
    joined: Payload = {}
    for message in messages:
        joined |= message
    contents: list[Any] = [message.get("content") for message in messages]
    if any(message.get("name") != messages[0].get("name") for message in messages):
        contents = [_named(message) for message in messages]
        del joined["name"]
    filled = [content for content in contents if not _is_blank(content)]
    if all(isinstance(content, str) for content in filled):
        return joined | {"content": "\n\n".join(filled) or None}
    return joined | {"content": [part for content in filled for part in _parts(content)]}


def _named(message: Payload) -> Any:
    name, content = name_of(message), message.get("content")
    if not name or _is_blank(content):
        return content
    first, *others = _parts(content)
    if first["type"] == "text":
        return (
            [{**first, "text": attribute(name, first["text"])}, *others] if others else attribute(name, first["text"])
        )
    return [*_parts(attribute(name, "")), first, *others]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
