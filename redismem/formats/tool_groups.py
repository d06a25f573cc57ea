"""Where a list of messages may be cut so that no tool result loses its call, nor a call its result. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from redismem.formats.tool_calls import Key, Payload, calls, may_hold_calls, results
from redismem.messages.message import Message

CallIds = tuple[list[tuple[bool, str]], list[tuple[bool, str]]]
"""The ids of the calls that a message answers, and of those that it makes."""


def _id(key: Key) -> tuple[bool, str]:
    """Ids are one space, whatever the form of a call; names of functions are another."""
    return key[0] == "function", key[1]


def call_ids(message: Message) -> CallIds:
    """Which calls a message answers, and which it makes."""
    payload = message.to_openai()
    if not may_hold_calls(payload):  # as nearly all do not: a long window is looked through in a quarter of the time
        return [], []
    made = [_id(key) for call in calls(payload) for key in (call.key, call.by_name) if key is not None]
    return [_id(result.key) for result in results(payload)], made


def answers(messages: Iterable[CallIds]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    """(call, result, id) of every tool result, as `links` gives them."""
    made: dict[tuple[bool, str], int] = {}
    for at, (answered_ids, made_ids) in enumerate(messages):
        for answered in answered_ids:
            yield made.get(answered, -1), at, answered
        for each in made_ids:
            made[each] = at


def _answers(messages: Sequence[Message]) -> Iterator[tuple[int, int, tuple[bool, str]]]:
    return answers(map(call_ids, messages))


def links(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """(call, result) of every tool result, as places in the list; the call is -1 if it is not in the list.

    A result belongs to the nearest call before it with its id: some models use an id again.
    """
    return [(call, result) for call, result, _ in _answers(messages)]


def _parted(pairs: Sequence[tuple[int, int]], count: int) -> list[int]:
    """How many results a cut at each place would part from their calls."""
    changes = [0] * (count + 1)
    for call, result in pairs:
        changes[call + 1] += 1
        changes[result + 1] -= 1
    return list(accumulate(changes))


def cut_before(messages: Sequence[Message], wanted: int) -> int:
    """The largest place up to `wanted` at which a cut parts no result from its call."""
    if not 0 < wanted < len(messages):
        return wanted
    parted = _parted([pair for pair in links(messages) if pair[0] >= 0], len(messages))
    return next(place for place in range(wanted, -1, -1) if not parted[place])


def cut_after(messages: Sequence[Message], wanted: int, *, keeps_orphans: bool = False) -> int:
    """The smallest place from `wanted` on from where every result has its call.

    A result whose call is not in the list is passed, unless `keeps_orphans`.
    """
    if not 0 <= wanted < len(messages):
        return wanted
    pairs = links(messages)
    parted = _parted([pair for pair in pairs if pair[0] >= 0] if keeps_orphans else pairs, len(messages))
    return next(place for place in range(wanted, len(messages) + 1) if not parted[place])


def newest_within(messages: Sequence[Message], max_tokens: int) -> int:
    """The place from where on the messages have `max_tokens` at most."""
    left = max_tokens
    for place in range(len(messages), 0, -1):
        left -= messages[place - 1].tokens
        if left < 0:
            return place
    return 0


def open_calls(part: Sequence[Message], messages: Sequence[Message]) -> list[int]:
    """Places in `part` of tool calls that no message answers. `part` begins where `messages` does."""
    answered: dict[int, Counter[tuple[bool, str]]] = {}
    for call, _, answered_id in _answers(messages):
        answered.setdefault(call, Counter())[answered_id] += 1
    payloads = [each.to_openai() for each in part]
    return [
        at
        for at, payload in enumerate(payloads)
        if may_hold_calls(payload) and _waits(payload, answered.get(at, Counter()))
    ]


def _waits(payload: Payload, answered: Counter[tuple[bool, str]]) -> bool:
    """Whether the message makes a call that is not among these."""
    left = [call.by_name for call in calls(payload) if _id(call.key) not in answered]
    return None in left or bool(Counter(_id(name) for name in left if name is not None) - answered)
