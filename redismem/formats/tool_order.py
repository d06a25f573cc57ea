"""Check whether a conversation can be sent unchanged, as nearly all can. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.formats.elements import Key, is_blank
from redismem.formats.forms import Payload
from redismem.formats.open_ends import OpenEnds, open_ends
from redismem.formats.reading import is_thought, read_message
from redismem.formats.sections import is_item, is_output, may_hold_calls, sections, whole_key
from redismem.formats.tool_calls import Waiting


def is_in_order(payloads: Sequence[Payload]) -> bool:
    """True if every result is right behind its call, only calls at the end are open, and output follows all reasoning.

    The results of items may be at any distance. Returns False too for a few rare conversations that are in order, such
    as one with a call in two formats.
    """
    ends = [open_ends(payload) if may_hold_calls(payload) else None for payload in payloads]
    return _are_paired(payloads, ends) and _leads_to_output(payloads, ends)


def _leads_to_output(payloads: Sequence[Payload], ends: Sequence[OpenEnds | None]) -> bool:
    """True if output follows all reasoning."""
    is_bare = False
    for payload, own_ends in zip(payloads, ends, strict=True):
        if own_ends is not None and not any(own_ends) and is_thought(payload):
            is_bare = True
        elif is_bare:
            if not is_output(payload):
                return False
            is_bare = False
    return not is_bare


def _are_paired(payloads: Sequence[Payload], ends: Sequence[OpenEnds | None]) -> bool:
    waiting = Waiting()
    open_items: dict[Key, int] = {}
    last_other = -1
    for at, own_ends in enumerate(ends):
        if own_ends is not None and is_item(payloads[at]):
            if waiting.open or not _pair_item(at, own_ends, open_items):
                return False
            continue
        last_other = at
        if own_ends is None:
            if waiting.open:
                return False
        elif not _pair(payloads[at], own_ends, waiting):
            return False
    return all(at > last_other for at in open_items.values())


def _pair(payload: Payload, ends: OpenEnds, waiting: Waiting) -> bool:
    """Open the calls of a message, or close the calls that it answers. Return False if the message is out of order."""
    answered, made = ends
    if answered:
        for key in answered:
            if made or waiting.answer(key) is None:
                return False
        return not waiting.open or _holds_only_results(payload)
    if waiting.open or (len(made) > 1 and len({space for space, _ in made}) > 1):
        return False
    waiting.add(made)
    return True


def _pair_item(at: int, ends: OpenEnds, open_items: dict[Key, int]) -> bool:
    """Open the call of an item, or close the call that it answers. Return False if the item is out of order."""
    answered, made = ends
    for key, other_key in made.items():
        if key in open_items or other_key is not None:
            return False
        open_items[key] = at
    return all(open_items.pop(key, None) is not None for key in answered)


def _holds_only_results(payload: Payload) -> bool:
    if whole_key(payload) is not None and not sections(payload, is_result=True):
        return True
    return all(element.kind == "result" or is_blank(element) for element in read_message(payload))
