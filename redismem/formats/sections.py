"""Find the texts, parts and calls in a message of any format, and its author's role. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redismem.formats.elements import NO_KEY, Key, ToolResult, make_key
from redismem.formats.forms import ITEMS, OUTPUTS, Form, Payload, find, unwrap_content

_KEYS = frozenset(
    ["tool_calls", "tool_call_id", "function_call", "type", "parts", "contents", "blocks", "additional_kwargs", "audio"]
)
_LANGCHAIN_ROLES = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "function",
    "chat": "",
    "ChatMessageChunk": "",
}
_PYDANTIC_ROLES = {"request": "user", "response": "assistant"}
CALL_LISTS = ("tool_calls", "invalid_tool_calls")
"""The keys of lists of calls beside the content."""
RARE_KEYS = frozenset(["type", "contents", "blocks", "refusal", "audio", "function_call", "invalid_tool_calls"])
"""Keys of few messages: without them, a message has elements in `content` or `parts`, and in `tool_calls`."""


class Section(NamedTuple):
    """A list or a single value of a message that contains elements."""

    path: tuple[str, ...]
    values: Sequence[Any]
    is_list: bool = True


def may_hold_calls(payload: Payload) -> bool:
    """False for almost every message without calls, results and thoughts; a cheap test before parsing."""
    return not _KEYS.isdisjoint(payload) or type(payload.get("content")) is list or payload.get("role") == "function"


def speaker_of(payload: Payload) -> str:
    """Return the role of a message, or "". Roles of LangChain and Pydantic AI get OpenAI's names."""
    role = payload.get("role")
    if isinstance(role, str):
        return role
    body = _langchain_body(payload)
    if body is not None:
        role = body.get("role")
        return _LANGCHAIN_ROLES[payload["type"]] or (role if isinstance(role, str) else "")
    kind = payload.get("kind")
    return _PYDANTIC_ROLES.get(kind, "") if isinstance(kind, str) else ""


def name_of(payload: Payload) -> str:
    """Return the name of the person or agent who speaks in a message, or "". The name of a tool is none."""
    if speaker_of(payload) in ("tool", "function"):
        return ""
    body = _langchain_body(payload) or payload
    names = (body.get("name"), body.get("author_name"))
    return next((name for name in names if isinstance(name, str) and name.strip()), "")


def _langchain_body(payload: Payload) -> Payload | None:
    kind, body = payload.get("type"), payload.get("data")
    return body if isinstance(kind, str) and kind in _LANGCHAIN_ROLES and isinstance(body, dict) else None


def item_form(payload: Payload) -> Form | None:
    """Return the row of an item of OpenAI Responses; None for a message."""
    kind = payload.get("type")
    return ITEMS.get(kind) if type(kind) is str else None


def is_item(payload: Payload) -> bool:
    """True for an item of OpenAI Responses that is not a message."""
    return item_form(payload) is not None


def is_output(payload: Payload) -> bool:
    """True if a model produced the message, such as an answer, a call or reasoning."""
    if item_form(payload) is not None:
        return payload["type"] in OUTPUTS
    return speaker_of(payload) in ("assistant", "model")


def sections(payload: Payload, is_result: bool) -> list[Section]:
    """Return the sections of a message in order.

    `is_result`: True if the message is a result as a whole, so that `whole_key` returns its key.
    """
    content, parts, calls = payload.get("content"), payload.get("parts"), payload.get("tool_calls")
    if (content and parts is not None) or not RARE_KEYS.isdisjoint(payload):
        return _all_sections(payload, is_result)
    found = []
    if is_result:
        pass
    elif content:
        is_list = isinstance(content, list)
        found.append(Section(("content",), content if is_list else (content,), is_list))
    elif isinstance(parts, list):
        found.append(Section(("parts",), parts))
    if isinstance(calls, list):
        found.append(Section(("tool_calls",), calls))
    return found


def _all_sections(payload: Payload, is_result: bool) -> list[Section]:
    if is_item(payload):
        return [Section((), [payload], is_list=False)]
    body = _langchain_body(payload)
    prefix: tuple[str, ...] = () if body is None else ("data",)
    body = payload if body is None else body
    extra = body.get("additional_kwargs") if "blocks" in body else None  # of LlamaIndex
    found = [] if is_result else _content_sections(body, prefix)
    found += [
        Section((*prefix, name), [body[name]], is_list=False)
        for name in ("refusal", "audio")
        if body.get(name) is not None
    ]
    sources = [(prefix, body)]
    if isinstance(extra, dict):
        sources.append((("additional_kwargs",), extra))
    for path, source in sources:
        found += [Section((*path, name), source[name]) for name in CALL_LISTS if isinstance(source.get(name), list)]
        if isinstance(source.get("function_call"), dict):
            found.append(Section((*path, "function_call"), [source["function_call"]], is_list=False))
    return found


def _content_sections(body: Payload, prefix: tuple[str, ...]) -> list[Section]:
    """Return the sections of texts and parts.

    If a message has `content` and `parts`, the parts repeat the content, except in the AI SDK.
    """
    content, parts = body.get("content"), body.get("parts")
    if content and not (isinstance(content, str) and _has_invocations(parts)):
        values, is_list = (content, True) if isinstance(content, list) else ([content], False)
        return [Section((*prefix, "content"), values, is_list)]
    names = [name for name in ("parts", "contents", "blocks") if isinstance(body.get(name), list)]
    return [Section((*prefix, name), body[name]) for name in names]


def _has_invocations(parts: object) -> bool:
    return isinstance(parts, list) and any(
        isinstance(part, dict) and part.get("type") == "tool-invocation" for part in parts
    )


def whole_key(payload: Payload) -> Key | None:
    """Return the key of a message that is a result as a whole, else None. Items of OpenAI Responses give None."""
    body = payload
    if "type" in payload:
        if is_item(payload):
            return None
        body = _langchain_body(payload) or payload
    call_id = body.get("tool_call_id")
    if call_id is not None:
        return make_key(call_id)
    role = speaker_of(payload)
    if role not in ("tool", "function"):
        return None
    extra = body.get("additional_kwargs")
    call_id = extra.get("tool_call_id") if isinstance(extra, dict) else None
    if call_id is not None:
        return make_key(call_id)
    if "parts" in body or "contents" in body or _holds_results(_content_of(body)):
        return None
    name = body.get("name", body.get("tool_name"))  # Ollama's results have no id
    return make_key(name, "function") if role == "function" or isinstance(name, str) else NO_KEY


def whole_result(payload: Payload) -> ToolResult | None:
    """Return the result if a message is a result as a whole, else None. Items of OpenAI Responses give None."""
    key = whole_key(payload)
    if key is None:
        return None
    body = _langchain_body(payload) or payload
    name = body.get("name", body.get("tool_name"))
    name = body.get("tool_name", name) if key == NO_KEY else name
    return ToolResult(
        key,
        unwrap_content(_content_of(body)),
        name,
        body.get("status") == "error" and speaker_of(payload) != "function",
    )


def _content_of(body: Payload) -> Any:
    return body.get("content") if body.get("content") is not None else body.get("blocks")


def _holds_results(content: object) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict) and find(part)[0].role == "result" for part in content
    )
