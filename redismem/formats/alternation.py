"""Build messages for chat templates that require alternating turns, such as Mistral's, Gemma's and Llama's. No I/O.

These templates require at most one system message, which comes first, then user and assistant in turn, the user first.
Calls and their results come between a user's message and the assistant's answer. No text is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from redismem.formats.forms import CHAT_PARTS, Payload
from redismem.formats.parts import ASSISTANT, SYSTEM, USER, Call, Part, parse_message, placeholder, role_of
from redismem.formats.sections import RARE_KEYS
from redismem.formats.tool_calls import label, text_of
from redismem.formats.turns import BEGINNING

_TOOL = "tool"
# Fields that templates do not know. Their content becomes part of the text.
_FOREIGN = RARE_KEYS | {"parts"}
_NO_ANSWER = "(The assistant did not answer.)"


def alternate_roles(payloads: Sequence[Payload]) -> list[Payload]:
    """Return the messages as one system message, then alternating turns.

    A message that fits is returned as the same dict.

    Adjacent messages of the same role are joined: strings with a blank line between them, parts in one list. Content in
    formats other than OpenAI's chat becomes text. `payloads` must come from `provider_view`, with every result after
    its call.
    """
    spoken = [payload for payload in payloads if role_of(payload) != SYSTEM]
    view = _join_system([payload for payload in payloads if role_of(payload) == SYSTEM])
    before = SYSTEM
    for role, group in groupby(_chat_messages(spoken), lambda payload: payload["role"]):
        if role == ASSISTANT and before == SYSTEM:
            view.append({"role": USER, "content": BEGINNING})
        if role == USER and before == _TOOL:
            view.append({"role": ASSISTANT, "content": _NO_ANSWER})
        messages = list(group)
        view += messages if role == _TOOL else [_join(messages)]
        before = role
    return view


def _join_system(messages: Sequence[Payload]) -> list[Payload]:
    texts = [text for text in map(_text, messages) if text.strip()]
    if not texts:
        return []
    if len(messages) == 1 and messages[0] == {"role": SYSTEM, "content": texts[0]}:
        return [messages[0]]
    return [{"role": SYSTEM, "content": "\n\n".join(texts)}]


def _chat_messages(payloads: Sequence[Payload]) -> Iterator[Payload]:
    """Yield the non-blank messages, as user, assistant or tool.

    A call becomes text if the next message does not answer it.
    """
    expects_result = False
    for at, payload in enumerate(payloads):
        is_last = at + 1 == len(payloads)
        if _is_chat(payload) and payload["role"] == ASSISTANT and payload.get("tool_calls"):
            expects_result = is_last or (_is_chat(payloads[at + 1]) and payloads[at + 1]["role"] == _TOOL)
            yield from [payload] if expects_result else _as_texts(payload)
        elif _is_chat(payload) and payload["role"] == _TOOL and expects_result:
            yield payload
        else:
            expects_result = False
            is_plain = _is_chat(payload) and payload["role"] != _TOOL
            for message in [_without_calls(payload)] if is_plain else _as_texts(payload):
                if not _is_blank(message["content"]):
                    yield message


def _is_chat(payload: Payload) -> bool:
    """True for a message that chat templates know."""
    role, content, calls = payload.get("role"), payload.get("content"), payload.get("tool_calls")
    if role not in (USER, ASSISTANT, _TOOL) or any(payload.get(name) is not None for name in _FOREIGN):
        return False
    if calls and not (role == ASSISTANT and isinstance(calls, list)):
        return False
    if isinstance(content, list):
        return all(isinstance(part, dict) and part.get("type") in CHAT_PARTS for part in content)
    return isinstance(content, str) or (content is None and role != USER)


def _without_calls(payload: Payload) -> Payload:
    """Remove an empty list of calls, because templates would take the message for a call."""
    others = {name: value for name, value in payload.items() if name != "tool_calls"}
    return {"content": None, **others} if len(others) < len(payload) or "content" not in payload else payload


def _as_texts(payload: Payload) -> Iterator[Payload]:
    """Yield the texts of a message by role: in some formats one message contains a call and its result."""
    for role, parts in parse_message(payload, lambda *_: False):
        yield {"role": ASSISTANT if role == ASSISTANT else USER, "content": _join_parts(parts)}


def _text(payload: Payload) -> str:
    content = payload.get("content")
    if isinstance(content, str):
        return content
    return _join_parts(part for _, parts in parse_message(payload, lambda *_: False) for part in parts)


def _join_parts(parts: Iterable[Part]) -> str:
    return "\n\n".join(
        f"(called {label(part.call.name)} with {text_of(part.call.arguments)})"
        if isinstance(part, Call)
        else placeholder(part)
        for part in parts
    )


def _is_blank(content: Any) -> bool:
    if isinstance(content, list):
        return all(part.get("type") == "text" and not str(part.get("text")).strip() for part in content)
    return not (content or "").strip()


def _join(messages: Sequence[Payload]) -> Payload:
    """Join adjacent messages of the same role into one.

    If they have different `name`s, each name is written into its message's text.
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
    name, content = message.get("name"), message.get("content")
    if not isinstance(name, str) or _is_blank(content):
        return content
    return f"{name}: {content}" if isinstance(content, str) else _parts(f"{name}:") + _parts(content)


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
