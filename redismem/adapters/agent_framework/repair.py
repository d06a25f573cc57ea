"""A history that a model accepts: each call has a result, and each result a call."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence

from agent_framework import Content, Message

from redismem.adapters.repairs import NO_ENDS, NO_RESULT, Ends, find_orphans

_APPROVALS = ("function_approval_request", "function_approval_response")


def repair(history: Sequence[Message], asked: Sequence[Message]) -> list[Message] | None:
    """Return the history with a result for each call, and without results that answer none; `None` if it is in order.

    Calls that wait for an approval are the framework's: it removes or answers them. The messages are not changed.
    """
    messages = [*history, *asked]
    approvals = [each.function_call for message in messages for each in message.contents if each.type in _APPROVALS]
    exempt = {call.call_id for call in approvals if call is not None}
    orphans = find_orphans((_ends_of(message, exempt) for message in messages), may_end_open=False)
    closing: dict[int, list[Content]] = {}
    for at, ids in orphans.calls.items():
        if at < len(history):
            closing[min(orphans.ends[at], len(history))] = [_no_result(id) for id in sorted(ids)]
    lone = {at: ids for at, ids in orphans.results.items() if at < len(history)}
    if not closing and not lone:
        return None
    repaired: list[Message] = []
    for at, message in enumerate(history):
        if at in closing:
            repaired.append(Message("tool", closing[at]))
        left = _without(message, lone.get(at, ()))
        if left.contents or left is message:
            repaired.append(left)
    return [*repaired, *(Message("tool", results) for at, results in closing.items() if at == len(history))]


def _ends_of(message: Message, exempt: Collection[str | None]) -> Ends:
    contents = [each for each in message.contents if each.call_id and each.call_id not in exempt]
    if not contents:
        return NO_ENDS
    answered = [str(each.call_id) for each in contents if each.type == "function_result"]
    made = [str(each.call_id) for each in contents if each.type == "function_call" and not each.informational_only]
    return answered, made


def _no_result(call_id: str) -> Content:
    """Return the result of an interrupted call, as the framework settles calls itself."""
    return Content.from_function_result(call_id, result=f"Error: {NO_RESULT}", exception="Interrupted")


def _without(message: Message, call_ids: Collection[str]) -> Message:
    """Return the message without these results."""
    if not call_ids:
        return message
    left = copy.copy(message)
    left.contents = [
        each for each in message.contents if each.type != "function_result" or each.call_id not in call_ids
    ]
    return left
