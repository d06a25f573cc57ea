"""Safe cut points in a list of messages: a cut never falls inside a group. No I/O.

A group is a model's reasoning, all further output of the same response, including tool calls, and the results of these
calls. Providers refuse a result without its call, and an item without the reasoning that led to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from redismem.formats.elements import Ends, Key, ends_of
from redismem.formats.reading import is_thought, read_message
from redismem.formats.sections import is_item, is_output, may_hold_calls
from redismem.messages.message import Message, Opaque

CallIds = tuple[list[tuple[bool, str]], list[tuple[bool, str]]]
"""The ids of the calls that a message answers, and the ids of the calls that it makes."""


def _id(key: Key) -> tuple[bool, str]:
    """Return a call's id regardless of its format, and True if it is a function's name instead of an id."""
    return key[0] == "function", key[1]


def call_ids(message: Message) -> CallIds:
    """Return the ids of the calls that a message answers, and of the calls that it makes."""
    payload = message.visible
    if not may_hold_calls(payload):  # nearly all messages end here, which makes a scan four times as fast
        return [], []
    ends = ends_of(read_message(payload))
    made = [_id(key) for call in ends.made for key in (call.key, call.by_name) if key is not None]
    return [_id(result.key) for result in ends.answered], made


def answers(messages: Iterable[CallIds]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    """Yield (call, result, id) of every tool result. Call and result are indices, as in `links`."""
    made: dict[tuple[bool, str], int] = {}
    for at, (answered_ids, made_ids) in enumerate(messages):
        for answered in answered_ids:
            yield made.get(answered, -1), at, answered
        for made_id in made_ids:
            made[made_id] = at


def _answers(messages: Sequence[Message]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    return answers(map(call_ids, messages))


def links(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return (call, result) of every tool result as indices in the list; call is -1 if it is not in the list.

    A result answers the nearest earlier call with its id, because some models reuse ids.
    """
    return [(call, result) for call, result, _ in _answers(messages)]


def responses(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield (reasoning, output) as indices in the list, for every message of a response after its reasoning.

    A response ends at the next message that no model produced, such as a result.
    """
    reasoning = -1
    for at, message in enumerate(messages):
        payload = message.visible
        if type(payload) is Opaque or (reasoning < 0 and not may_hold_calls(payload)):
            continue
        if not is_output(payload):
            reasoning = -1
        elif reasoning >= 0:
            yield reasoning, at
        elif is_thought(payload):
            reasoning = at


def begins_inside(messages: Sequence[Message]) -> bool:
    """True if the list may begin inside a response.

    OpenAI's items refer to their reasoning, which is then missing.
    """
    if not messages:
        return False
    payload = messages[0].visible
    return is_output(payload) and (is_item(payload) or (payload.get("type") == "message" and "id" in payload))


def _count_split(pairs: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Count, for a cut at each index, the pairs that it would separate."""
    changes = [0] * (count + 1)
    for first, last in pairs:
        changes[first + 1] += 1
        changes[last + 1] -= 1
    return list(accumulate(changes))


def cut_before(messages: Sequence[Message], wanted: int, *, splits_responses: bool = False) -> int:
    """Return the last safe cut point at or before `wanted`.

    With `splits_responses`, the cut may separate reasoning from its output, but never a call from its result.
    """
    if not 0 < wanted < len(messages):
        return wanted
    pairs = [pair for pair in links(messages) if pair[0] >= 0]
    split = _count_split(pairs if splits_responses else [*pairs, *responses(messages)], len(messages))
    return next(place for place in range(wanted, -1, -1) if not split[place])


def cut_after(messages: Sequence[Message], wanted: int, *, keeps_orphans: bool = False) -> int:
    """Return the first safe cut point at or after `wanted`, after which every result has its call.

    Unless `keeps_orphans`, the cut also skips results whose calls are not in the list. If that leaves no message, the
    cut falls inside the last group, between reasoning and its output.
    """
    if not 0 <= wanted < len(messages):
        return wanted
    pairs = [pair for pair in links(messages) if pair[0] >= 0 or not keeps_orphans]
    count = len(messages)
    for split in (_count_split([*pairs, *responses(messages)], count), _count_split(pairs, count)):
        place = next(place for place in range(wanted, count + 1) if not split[place])
        if place < count:
            return place
    return count


def newest_within(messages: Sequence[Message], max_tokens: int) -> int:
    """Return the first index from which all messages to the end have at most `max_tokens`."""
    left = max_tokens
    for place in range(len(messages), 0, -1):
        left -= messages[place - 1].tokens
        if left < 0:
            return place
    return 0


def open_calls(part: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Return the indices of messages in `part`, a prefix of `messages`, with calls that `messages` do not answer."""
    answered: dict[int, Counter[tuple[bool, str]]] = {}
    for call, _, answered_id in _answers(messages):
        answered.setdefault(call, Counter())[answered_id] += 1
    payloads = [message.visible for message in part]
    return [
        at
        for at, payload in enumerate(payloads)
        if may_hold_calls(payload) and _has_open_call(ends_of(read_message(payload)), answered.get(at, Counter()))
    ]


def _has_open_call(ends: Ends, answered: Counter[tuple[bool, str]]) -> bool:
    """True if one of the calls of a message has no answer."""
    left = [call.by_name for call in ends.made if _id(call.key) not in answered]
    return None in left or bool(Counter(_id(name) for name in left if name is not None) - answered)
