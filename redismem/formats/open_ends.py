"""Read only the keys of a message's tool calls and results: faster than reading its elements. No I/O."""

from __future__ import annotations

from redismem.formats.elements import NO_KEY, Key, ends_of, make_key
from redismem.formats.forms import CALL_ENTRY, FUNCTION, UNKNOWN, Form, Payload, find
from redismem.formats.reading import call_keys, read_message, result_key
from redismem.formats.sections import CALL_LISTS, Section, item_form, sections, whole_key

OpenEnds = tuple[list[Key], dict[Key, Key | None]]
"""The keys of the results that answer earlier messages, and the keys of the calls that wait for results.

Each call maps to a second key that a result may refer to, or None.
"""


def open_ends(payload: Payload) -> OpenEnds:
    """Return the keys of what `ends_of` returns for the elements of the message."""
    form = item_form(payload)
    if form is not None:
        return _ends_of_item(payload, form)
    whole = whole_key(payload)
    answered: list[Key] = [] if whole is None or whole == NO_KEY else [whole]
    made: dict[Key, Key | None] = {}
    numbers: dict[Key, int] = {}
    for section in sections(payload, whole is not None):
        name = section.path[-1] if section.path else ""
        if name in CALL_LISTS:
            if made and section.values:  # the calls in the content may be the same
                return _ends_of_elements(payload)
            for entry in section.values:
                if isinstance(entry, dict):
                    key, by_name = call_keys(CALL_ENTRY, entry, numbers)
                    made[key] = by_name
        elif name == "function_call":
            made[make_key(FUNCTION.name(section.values[0]), "function")] = None
        elif name != "audio" and not _add_parts(section, numbers, answered, made):
            return _ends_of_elements(payload)
    return answered, made


def _ends_of_item(item: Payload, form: Form) -> OpenEnds:
    if form.role == "call":
        return [], dict([call_keys(form, item, {})])
    return [result_key(form, item)] if form.role == "result" else [], {}


def _add_parts(section: Section, numbers: dict[Key, int], answered: list[Key], made: dict[Key, Key | None]) -> bool:
    """Add the keys of the parts.

    Return False if the table lacks a part, or if the message may contain the result of one of its own calls.
    """
    for part in section.values:
        if not isinstance(part, dict):
            continue
        form, _, body = find(part)
        if form.role == "staged" or form.inside or form is UNKNOWN:
            return False
        if form.role == "call":
            key, made_by_name = call_keys(form, body, numbers)
            made[key] = made_by_name
        elif form.role == "result":
            answered.append(result_key(form, body))
    return True


def _ends_of_elements(payload: Payload) -> OpenEnds:
    made, answered = ends_of(read_message(payload))
    return [result.key for result in answered], {call.key: call.by_name for call in made}
