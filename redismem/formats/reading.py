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
from redismem.formats.forms import CALL_ENTRY, FUNCTION, STAGED_RESULTS, TEXT, UNKNOWN, Form, Payload, find
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
    return {make_key("chat", entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry}


def is_repeat(element: Element, listed: set[Key]) -> bool:
    """True for a call in the content that `tool_calls` contains too, in full."""
    return element.call is not None and element.call.key in listed and element.path[-1] not in CALL_LISTS


def read_value(value: Any, section: Section, index: int = -1, numbers: dict[Key, int] | None = None) -> Element:
    """Read one value of a section. `numbers` counts the calls without ids per function."""
    path = section.path
    if isinstance(value, str):
        return Element("text", value, TEXT, path, index, value)
    if not isinstance(value, dict):
        text = "" if value is None else json.dumps(value, ensure_ascii=False, default=repr)
        return Element("text", value, TEXT, path, index, text)
    if section.space == "function":
        name = FUNCTION.name(value)
        call = ToolCall(make_key("function", name), name, FUNCTION.arguments(value))
        return Element("call", value, FUNCTION, path, index, call=call)
    if path and path[-1] in CALL_LISTS:
        call = ToolCall(entry_key(value), CALL_ENTRY.name(value), CALL_ENTRY.arguments(value))
        return Element("call", value, CALL_ENTRY, path, index, call=call)
    if path and path[-1] == "audio":
        transcript = value.get("transcript")
        return Element("text", value, TEXT, path, index, transcript if isinstance(transcript, str) else "")
    return _read_part(value, section.space, path, index, {} if numbers is None else numbers)


def read_part(value: Any) -> Element:
    """Read a part that is not in a section, such as one of a result's content."""
    return read_value(value, Section((), ()))


def _read_part(part: Payload, space: str, path: tuple[str, ...], index: int, numbers: dict[Key, int]) -> Element:
    form, kind, body = find(part)
    if form is UNKNOWN and part:
        _warn_once(kind)
    match form.role:
        case "hosted" | "staged" as role:
            call = _read_call(form, body, space, numbers)
            if role == "staged" and body.get("state") not in STAGED_RESULTS:
                return Element("call", part, form, path, index, call=call)
            return Element("both", part, form, path, index, "", call, _read_result(form, body, space, part))
        case "call":
            return Element("call", part, form, path, index, call=_read_call(form, body, space, numbers))
        case "result":
            return Element("result", part, form, path, index, result=_read_result(form, body, space, part))
        case "text" | "nested" as role:
            value = form.result(body)
            if role == "nested" and not isinstance(value, str | None):
                inner = value if isinstance(value, list) else [value]
                return Element("nested", part, form, path, index, inner=inner)
            text = value or "" if isinstance(value, str | None) else json.dumps(value, ensure_ascii=False, default=repr)
            return Element("text", part, form, path, index, text)
        case kept:
            return Element(kept, part, form, path, index)


def entry_key(entry: Payload) -> Key:
    """Return the key of an entry of `tool_calls`."""
    call_id = CALL_ENTRY.id(entry)
    return NO_KEY if call_id is None else make_key("chat", call_id)


def call_keys(form: Form, body: Payload, space: str, numbers: dict[Key, int]) -> tuple[Key, Key | None]:
    """Return the key of a call, and the second key under which a result may name it."""
    call_id = form.id(body)
    if not form.by_name:
        other_id = form.other_id(body)
        return make_key(space, call_id), None if other_id is None else make_key(space, other_id)
    by_name = make_key("function", form.name(body))
    if call_id is not None:
        return make_key(space, call_id), by_name
    number = numbers[by_name] = numbers.get(by_name, -1) + 1  # calls of one function are numbered in their order
    return ("gemini", f"{by_name[1]}-{number}"), by_name


def result_key(form: Form, body: Payload, space: str) -> Key:
    """Return the key of the call that a result answers."""
    call_id = form.id(body)
    return make_key("function", form.name(body)) if form.by_name and call_id is None else make_key(space, call_id)


def _read_call(form: Form, body: Payload, space: str, numbers: dict[Key, int]) -> ToolCall:
    key, by_name = call_keys(form, body, space, numbers)
    return ToolCall(key, form.name(body), form.arguments(body), by_name)


def _read_result(form: Form, body: Payload, space: str, part: Payload) -> ToolResult:
    content = form.result(body)
    is_error = part.get("part_kind") == "retry-prompt" or (
        not _ERROR_FIELDS.isdisjoint(body) and any(body.get(field) == value for field, value in _ERRORS)
    )
    if body.get("exception") is not None:  # Agent Framework has an empty result beside it
        content, is_error = content or body["exception"], True
    if isinstance(content, dict) and "value" in content and isinstance(content.get("type"), str):  # AI SDK
        content, is_error = content["value"], is_error or content["type"].startswith("error")
    return ToolResult(result_key(form, body, space), content, form.name(body), is_error)


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


def without(payload: Payload, dropped: Sequence[Element]) -> Payload | None:
    """Return the message without these elements, and without thoughts that are then at the end.

    Returns None if nothing else is left.
    """
    gone = {(element.path, element.place) for element in dropped}
    left = [element for element in read_message(payload) if (element.path, element.place) not in gone]
    while left and (left[-1].kind == "thought" or is_blank(left[-1])):
        gone.add((left[-1].path, left[-1].place))
        left.pop()
    if not left:
        return None
    copy = dict(payload)
    if ((), -1) in gone:  # a result in a message that makes calls too
        copy = {name: value for name, value in payload.items() if name not in ("tool_call_id", "content")}
    for path in {path for path, _ in gone if path}:
        _remove(copy, path, {index for at, index in gone if at == path})
    return copy


def _remove(copy: Payload, path: tuple[str, ...], indices: set[int]) -> None:
    """Remove the values at these indices from a section of `copy`. The dicts on the path to the section are copied."""
    for name in path[:-1]:
        copy[name] = dict(copy[name])
        copy = copy[name]
    name = path[-1]
    values = [] if -1 in indices else [value for at, value in enumerate(copy[name]) if at not in indices]
    if values or name in ("parts", "contents", "blocks"):
        copy[name] = values
    elif name == "content":
        copy[name] = "" if len(path) > 1 else None
    else:
        del copy[name]


def drop_calls(payload: Payload, dropped: set[Key]) -> Payload | None:
    """Return the message without the dropped calls, or None if nothing else is left."""
    return without(
        payload,
        [
            element
            for element in read_message(payload)
            if element.kind == "call" and element.call is not None and element.call.key in dropped
        ],
    )


def without_id(payload: Payload) -> Payload | None:
    """Return an item of OpenAI Responses without its `id`; None if OpenAI refuses the item without it."""
    if "id" not in payload:
        return payload
    form = item_form(payload)
    if form is not None:
        if form.needs_id:
            return None
    elif payload.get("type") != "message" or not isinstance(payload.get("content"), list | str):
        return payload
    return {name: value for name, value in payload.items() if name != "id"}
