"""Pair tool calls and results as OpenAI requires: every result behind its call, open calls only at the end. No I/O.

A result whose call is not there and a call without a result are quoted in a user message. All other messages stay
unchanged, and opaque ones stay in their places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from redismem.formats.elements import Key, make_key
from redismem.formats.forms import Payload
from redismem.formats.open_ends import open_ends
from redismem.formats.reading import calls, is_thought, read_message, results
from redismem.formats.sections import is_item, is_output, item_form, may_hold_calls, whole_key
from redismem.formats.tool_calls import Waiting, quote_call, quote_result
from redismem.messages.message import Opaque


def pair_chat(messages: Sequence[Payload]) -> list[Payload]:
    """Return messages of chat completions with every result right behind the message with its call."""
    shown: list[Payload] = []
    names: dict[Key, Any] | None = None
    waiting = Waiting()
    head_at = 0  # the place of the message whose calls wait
    for message in messages:
        role, made = message.get("role"), _chat_calls(message)
        answered = whole_key(message) if role in ("tool", "function") else None
        if answered is not None and waiting.answer(answered) is None:
            names = _names(messages) if names is None else names
            late = quote_result(results(message)[0], names.get(answered))
            at = head_at if waiting.open else len(shown)  # nothing may separate a call from its results
            shown.insert(at, late)
            head_at += 1
            continue
        if waiting.open and answered is None and type(message) is not Opaque:
            shown[head_at : head_at + 1], quotes = _split_calls(shown[head_at], waiting.open)
            shown += quotes
            waiting = Waiting()
        if made:
            head_at = len(shown)
            waiting.add(made)
        shown.append(message)
    if waiting.open and len(shown) > head_at + 1:  # a provider refuses some of the results of a message
        shown[head_at : head_at + 1], quotes = _split_calls(shown[head_at], waiting.open)
        shown += quotes
    return shown


def _chat_calls(message: Payload) -> dict[Key, Key | None]:
    """Return the keys of the calls of a message of chat completions."""
    if "tool_calls" in message:
        return {make_key(call["id"]): None for call in message["tool_calls"]}
    return {make_key(message["function_call"]["name"], "function"): None} if "function_call" in message else {}


def _names(messages: Sequence[Payload]) -> dict[Key, Any]:
    """Return the name of the tool of each call."""
    return {call.key: call.name for message in messages if may_hold_calls(message) for call in calls(message)}


def _split_calls(message: Payload, keys: Collection[Key]) -> tuple[list[Payload], list[Payload]]:
    """Return the message without these calls, unless nothing else is left, and the calls as quotes."""
    elements = [element for element in read_message(message) if element.call and element.call.key in keys]
    parts = {id(element.part) for element in elements}
    copy = dict(message)
    left = [entry for entry in copy.pop("tool_calls", None) or () if id(entry) not in parts]
    if id(copy.get("function_call")) in parts:
        del copy["function_call"]
    if left:
        copy["tool_calls"] = left
    is_said = bool(left) or any(copy.get(name) for name in ("content", "refusal", "audio", "function_call"))
    return [copy] if is_said else [], [quote_call(element.call) for element in elements if element.call]


def pair_items(
    items: Sequence[Payload], pinned_count: int = 0, cut_at: int | None = None, *, ids: bool = True
) -> list[Payload]:
    """Return items of OpenAI Responses with a call for every result and an output for all reasoning.

    A result may come any number of items after its call. OpenAI refuses an item with an id if the reasoning that led to
    the item is missing, and two items with one id: such an item loses its id, or is quoted if OpenAI requires the id.

    Args:
        pinned_count: The number of pinned items. They come first, and the items that were around them are missing.
        cut_at: The index of the first item behind the ones that a summary or a limit has left out; `None` means that
            none are missing.
        ids: False removes all ids, which OpenAI does not know if it stored no responses.
    """
    lost = _repeated_ids(items) if ids else set(range(len(items)))
    lost.update(_lost_ids(items[:pinned_count], 0, ends_at_other=False))
    if cut_at is not None:
        lost.update(_lost_ids(items[cut_at:], cut_at, ends_at_other=True))
    left: list[Payload] = []
    for at, item in enumerate(items):
        left += _without_id(item) if at in lost else [item]
    unpaired, shown, quotes = _unpaired(left), list[Payload](), list[Payload]()
    names = _names(left) if unpaired else {}
    for at, item in enumerate(left):
        if not is_output(item) and type(item) is not Opaque:  # nothing may separate reasoning and output
            shown += quotes
            quotes = []
        if at in unpaired:
            shown += [quote_result(result, names.get(result.key)) for result in results(item)]
            quotes += map(quote_call, calls(item))
        else:
            shown.append(item)
    return _without_bare_thoughts(shown + quotes)


def _repeated_ids(items: Sequence[Payload]) -> set[int]:
    """Return the indices of items whose id an earlier item has."""
    seen: set[str] = set()
    repeated: set[int] = set()
    for at, item in enumerate(items):
        item_id = item.get("id")
        if isinstance(item_id, str):
            repeated.update([at] if item_id in seen else [])
            seen.add(item_id)
    return repeated


def _lost_ids(items: Sequence[Payload], first: int, *, ends_at_other: bool) -> Iterator[int]:
    """Yield the indices of items with an id before the first reasoning.

    With `ends_at_other`, stop at the first message that no model produced.
    """
    for at, item in enumerate(items, first):
        if type(item) is Opaque:
            continue
        if not is_output(item):
            if ends_at_other:
                return
        elif is_thought(item):
            return
        else:
            yield at


def _without_id(item: Payload) -> list[Payload]:
    """Return the item without its `id`, or in quotes if OpenAI refuses it without; reasoning is left out then."""
    if "id" not in item or type(item) is Opaque:
        return [item]
    form = item_form(item)
    is_lost_thought = form is not None and form.role == "thought" and not item.get("encrypted_content")
    if form is None or not (form.needs_id or is_lost_thought):
        return [{name: value for name, value in item.items() if name != "id"}]
    quotes: list[Payload] = []
    for element in read_message(item):
        if element.call is not None:
            quotes.append(quote_call(element.call, is_answered=True))
        if element.kind == "both" and element.result is not None and element.result.content is not None:
            quotes.append(quote_result(element.result, element.call and element.call.name))
    return quotes


def _unpaired(items: Sequence[Payload]) -> frozenset[int]:
    """Return the indices of calls without a result, unless they are at the end, and of results without a call."""
    open_at: dict[Key, int] = {}
    keys_at: dict[int, list[Key]] = {}
    unpaired: set[int] = set()
    last_other = -1  # also the last result: a provider refuses some of the results of a response
    for at, item in enumerate(items):
        if not is_item(item):
            last_other = last_other if type(item) is Opaque else at
            continue
        answered, made = open_ends(item)
        for key, other_key in made.items():
            keys_at[at] = [key] if other_key is None else [key, other_key]
            unpaired.update(open_at[key] for key in keys_at[at] if key in open_at)
            open_at.update(dict.fromkeys(keys_at[at], at))
        last_other = at if answered else last_other
        for key in answered:
            call_at = open_at.get(key)
            for own_key in [] if call_at is None else keys_at[call_at]:
                open_at.pop(own_key, None)
            if call_at is None:
                unpaired.add(at)
    # A call is at the end, and still open, if only other calls follow it.
    return frozenset(unpaired.union(at for at in open_at.values() if at < last_other))


def _without_bare_thoughts(items: Sequence[Payload]) -> list[Payload]:
    """Leave out reasoning without output, because OpenAI refuses it."""
    left: list[Payload] = []
    is_followed = False
    for item in reversed(items):
        if type(item) is not Opaque:
            if not is_thought(item):
                is_followed = is_output(item)
            elif not is_followed:
                continue
        left.append(item)
    left.reverse()
    return left
