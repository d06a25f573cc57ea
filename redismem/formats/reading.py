"""Read a message of any format into a list of elements: texts, tool calls, results, thoughts and media. No I/O.

Only this module applies the table of `forms`; all others work on elements.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from redismem.formats.elements import NO_KEY, Element, Key, ToolCall, ToolResult, ends_of, is_blank, make_key
from redismem.formats.forms import (
    CALL_ENTRY,
    FUNCTION,
    STAGED_RESULTS,
    TEXT,
    UNKNOWN,
    Form,
    Payload,
    find,
    unwrap_content,
)
from redismem.formats.sections import CALL_LISTS, Section, item_form, sections, whole_result

log = logging.getLogger("redismem")

_ERRORS = (("is_error", True), ("status", "error"), ("outcome", "failed"), ("state", "output-error"))
_ERROR_FIELDS = frozenset(field for field, _ in _ERRORS)
_WARNED_LIMIT = 256
_KIND = re.compile("[A-Za-z0-9_.:-]{1,64}")
_warned: set[str] = set()


def read_message(payload: Payload) -> list[Element]:
    """Return all elements of a message in order."""
    elements: list[Element] = []
    whole = whole_result(payload)
    if whole is not None:
        elements.append(Element("result", payload, result=whole))
    found = sections(payload, whole is not None)
    listed = listed_keys(found) if len(found) > 1 else None
    numbers: dict[Key, int] = {}
    for section in found:
        for place, value in enumerate(section.values):
            element = read_value(value, section, place if section.is_list else -1, numbers)
            elements.append(element._replace(is_repeat=True) if listed and is_repeat(element, listed) else element)
    return elements


def listed_keys(found: Sequence[Section]) -> set[Key]:
    """Return the keys of the calls in `tool_calls`, which some frameworks write in the content too."""
    entries = [
        value for section in found if section.path and section.path[-1] in CALL_LISTS for value in section.values
    ]
    return {make_key(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry}


def is_repeat(element: Element, listed: set[Key]) -> bool:
    """True for a call in the content that `tool_calls` contains too, in full."""
    return element.call is not None and element.call.key in listed and element.path[-1] not in CALL_LISTS


def read_value(value: Any, section: Section, index: int = -1, numbers: dict[Key, int] | None = None) -> Element:
    """Read one value of a section. `numbers` counts the calls without ids per function."""
    path = section.path
    if isinstance(value, str):
        return Element("text", value, TEXT, path, index, value)
    if not isinstance(value, dict):
        text = "" if value is None else _text_of(value)
        return Element("text", value, TEXT, path, index, text)
    if numbers is None:
        numbers = {}
    name = path[-1] if path else ""
    if name == "function_call":
        call = ToolCall(make_key(FUNCTION.name(value), "function"), FUNCTION.name(value), FUNCTION.arguments(value))
        return Element("call", value, FUNCTION, path, index, call=call)
    if name in CALL_LISTS:
        return Element("call", value, CALL_ENTRY, path, index, call=_read_call(CALL_ENTRY, value, numbers))
    if name == "audio":
        transcript = value.get("transcript")
        return Element("text", value, TEXT, path, index, transcript if isinstance(transcript, str) else "")
    return _read_part(value, path, index, numbers)


def read_part(value: Any) -> Element:
    """Read a part that is not in a section, such as one of a result's content."""
    return read_value(value, Section((), ()))


def _read_part(part: Payload, path: tuple[str, ...], index: int, numbers: dict[Key, int]) -> Element:
    form, kind, body = find(part)
    if form is UNKNOWN and part:
        _warn_once(kind)
    match form.role:
        case "hosted" | "staged" as role:
            call = _read_call(form, body, numbers)
            if role == "staged" and body.get("state") not in STAGED_RESULTS:
                return Element("call", part, form, path, index, call=call)
            return Element("both", part, form, path, index, "", call, _read_result(form, body, part))
        case "call":
            return Element("call", part, form, path, index, call=_read_call(form, body, numbers))
        case "result":
            return Element("result", part, form, path, index, result=_read_result(form, body, part))
        case "text" | "nested" as role:
            value = form.result(body)
            if role == "nested" and not isinstance(value, str | None):
                inner = value if isinstance(value, list) else [value]
                return Element("nested", part, form, path, index, inner=inner)
            text = "" if value is None else _text_of(value)
            return Element("text", part, form, path, index, text)
        case kept:
            return Element(kept, part, form, path, index)


def call_keys(form: Form, body: Payload, numbers: dict[Key, int]) -> tuple[Key, Key | None]:
    """Return the key of a call, and the second key under which a result may name it."""
    call_id = form.id(body)
    if form is CALL_ENTRY and call_id is not None:
        return make_key(call_id), None
    if not form.by_name:
        other_id = form.other_id(body)
        return make_key(call_id), None if other_id is None else make_key(other_id)
    by_name = make_key(form.name(body), "function")
    if call_id is not None:
        return make_key(call_id), by_name
    number = numbers[by_name] = numbers.get(by_name, -1) + 1  # calls of one function are numbered in their order
    return make_key(f"{by_name[1]}-{number}"), by_name


def result_key(form: Form, body: Payload) -> Key:
    """Return the key of the call that a result answers."""
    call_id = form.id(body)
    return make_key(form.name(body), "function") if form.by_name and call_id is None else make_key(call_id)


def _read_call(form: Form, body: Payload, numbers: dict[Key, int]) -> ToolCall:
    key, by_name = call_keys(form, body, numbers)
    return ToolCall(key, form.name(body), form.arguments(body), by_name)


def _read_result(form: Form, body: Payload, part: Payload) -> ToolResult:
    content = form.result(body)
    is_error = part.get("part_kind") == "retry-prompt" or (
        not _ERROR_FIELDS.isdisjoint(body) and any(body.get(field) == value for field, value in _ERRORS)
    )
    if body.get("exception") is not None:  # Agent Framework has an empty result beside it
        content, is_error = content or body["exception"], True
    if isinstance(content, dict) and "value" in content and isinstance(content.get("type"), str):  # AI SDK
        content, is_error = content["value"], is_error or content["type"].startswith("error")
    content, media = unwrap_content(content), form.media(body)
    if form.role == "hosted" and body.get("error") is not None:  # of an MCP server, perhaps beside an output
        content, is_error = "\n".join(map(_text_of, filter(None, (body.get("output"), body["error"])))), True
    if isinstance(media, list) and media:
        texts = content if isinstance(content, list) else [{"type": "text", "text": _text_of(content)}]
        content = [*texts, *media] if content else media
    return ToolResult(result_key(form, body), content, form.name(body), is_error)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _warn_once(kind: str) -> None:
    """Log a kind of part that is not in the table, once per process: the kind only, never content."""
    kind = kind if _KIND.fullmatch(kind) else "(no name)"
    if kind not in _warned and len(_warned) < _WARNED_LIMIT:
        _warned.add(kind)
        log.warning("a message holds a part of an unknown kind, its texts are used as they are: %s", kind)


def calls(payload: Payload) -> list[ToolCall]:
    """Return the calls of a message that wait for results."""
    return ends_of(read_message(payload)).made


def calls_in(payload: Payload) -> list[ToolCall]:
    """Return all calls of a message, including the ones that it answers itself."""
    return [
        element.call for element in read_message(payload) if element.call is not None and element.call.key != NO_KEY
    ]


def results(payload: Payload) -> list[ToolResult]:
    """Return the results of a message that answer earlier messages."""
    return ends_of(read_message(payload)).answered


def is_thought(payload: Payload) -> bool:
    """True if a message contains thoughts and nothing else."""
    form = item_form(payload)
    if form is not None:
        return form.role == "thought"
    first = sections(payload, is_result=False)[:1]
    values = first[0].values if first else ()
    if not values or not isinstance(values[0], dict) or find(values[0])[0].role not in ("thought", "note"):
        return False  # nearly always
    return {element.kind for element in read_message(payload) if not is_blank(element)} == {"thought"}
