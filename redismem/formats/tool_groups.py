"""Safe cut points in a list of messages: a cut never separates a tool call from its result. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from redismem.formats.tool_calls import Key, Payload, calls, may_hold_calls, results
from redismem.messages.message import Message

CallIds = tuple[list[tuple[bool, str]], list[tuple[bool, str]]]
"""The ids of the calls that a message answers, and the ids of the calls that it makes."""


def _id(key: Key) -> tuple[bool, str]:
    """Return an id without the format of its call: all formats share one id space, function names have another."""
    return key[0] == "function", key[1]


def call_ids(message: Message) -> CallIds:
    """Return the ids of the calls that a message answers, and of the calls that it makes."""
    payload = message.to_openai()
    if not may_hold_calls(payload):  # true for nearly all: scanning a long window takes a quarter of the time
        return [], []
    made = [_id(key) for call in calls(payload) for key in (call.key, call.by_name) if key is not None]
    return [_id(result.key) for result in results(payload)], made


def answers(messages: Iterable[CallIds]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    """Yield (call, result, id) of every tool result, with places as in `links`."""
    made: dict[tuple[bool, str], int] = {}
    for at, (answered_ids, made_ids) in enumerate(messages):
        for answered in answered_ids:
            yield made.get(answered, -1), at, answered
        for made_id in made_ids:
            made[made_id] = at


def _answers(messages: Sequence[Message]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    return answers(map(call_ids, messages))


def links(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return (call, result) of every tool result as places in the list; call is -1 if the call is not in the list.

    A result belongs to the nearest earlier call with its id, since some models reuse ids.
    """
    return [(call, result) for call, result, _ in _answers(messages)]


def _count_split_results(pairs: Sequence[tuple[int, int]], count: int) -> list[int]:
    """Count, for a cut at each place, the results that it would separate from their calls."""
    changes = [0] * (count + 1)
    for call, result in pairs:
        changes[call + 1] += 1
        changes[result + 1] -= 1
    return list(accumulate(changes))


def cut_before(messages: Sequence[Message], wanted: int) -> int:
    """Return the last safe cut point at or before `wanted`."""
    if not 0 < wanted < len(messages):
        return wanted
    split = _count_split_results([pair for pair in links(messages) if pair[0] >= 0], len(messages))
    return next(place for place in range(wanted, -1, -1) if not split[place])


def cut_after(messages: Sequence[Message], wanted: int, *, keeps_orphans: bool = False) -> int:
    """Return the first cut point at or after `wanted` after which every result has its call.

    The cut also skips results whose calls are not in the list, unless `keeps_orphans`.
    """
    if not 0 <= wanted < len(messages):
        return wanted
    pairs = links(messages)
    split = _count_split_results([pair for pair in pairs if pair[0] >= 0] if keeps_orphans else pairs, len(messages))
    return next(place for place in range(wanted, len(messages) + 1) if not split[place])


def newest_within(messages: Sequence[Message], max_tokens: int) -> int:
    """Return the first place whose messages to the end have at most `max_tokens`."""
    left = max_tokens
    for place in range(len(messages), 0, -1):
        left -= messages[place - 1].tokens
        if left < 0:
            return place
    return 0


def open_calls(part: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Return the places of messages with unanswered tool calls in `part`, a prefix of `messages`."""
    answered: dict[int, Counter[tuple[bool, str]]] = {}
    for call, _, answered_id in _answers(messages):
        answered.setdefault(call, Counter())[answered_id] += 1
    payloads = [message.to_openai() for message in part]
    return [
        at
        for at, payload in enumerate(payloads)
        if may_hold_calls(payload) and _has_open_call(payload, answered.get(at, Counter()))
    ]


def _has_open_call(payload: Payload, answered: Counter[tuple[bool, str]]) -> bool:
    """True if the message makes a call without an answer."""
    left = [call.by_name for call in calls(payload) if _id(call.key) not in answered]
    return None in left or bool(Counter(_id(name) for name in left if name is not None) - answered)
