"""Safe cut points in a list of messages: a cut never falls inside a group. No I/O.

A group is a model's reasoning, all further output of the same response, including tool calls, and the results of these
calls. Providers refuse a result without its call, and an item without the reasoning that led to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter

from redismem.formats.elements import Key
from redismem.formats.open_ends import open_ends
from redismem.formats.reading import is_thought
from redismem.formats.sections import is_item, is_output, may_hold_calls
from redismem.messages.message import Message, Opaque

CallId = tuple[bool, str]
CallIds = tuple[Sequence[CallId], Sequence[tuple[CallId, CallId | None]]]
"""The ids of the calls that a message answers, and those of the calls that it makes, each with a second id or None."""
_NO_IDS: CallIds = (), ()
"""The ids of a message without calls, results and reasoning."""


def _id(key: Key) -> CallId:
    """Return a call's id regardless of its format, and True if it is a function's name instead of an id."""
    return key[0] == "function", key[1]


def call_ids(message: Message) -> CallIds:
    """Return the ids of the calls that a message answers, and of the calls that it makes."""
    payload = message.visible
    if not may_hold_calls(payload):  # nearly all messages end here, which makes a scan four times as fast
        return _NO_IDS
    answered, made = open_ends(payload)
    return [_id(key) for key in answered], [
        (_id(key), None if second is None else _id(second)) for key, second in made.items()
    ]


def answers(messages: Iterable[CallIds]) -> Iterator[tuple[int, int, CallId]]:
    """Yield (call, result, id) of every tool result. Call and result are indices, as in `links`."""
    made: dict[CallId, int] = {}
    for at, (answered_ids, made_ids) in enumerate(messages):
        for answered in answered_ids:
            yield made.get(answered, -1), at, answered
        for made_id, second_id in made_ids:
            made[made_id] = at
            if second_id is not None:
                made[second_id] = at


def links(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Return (call, result) of every tool result as indices in the list; call is -1 if it is not in the list.

    A result answers the nearest earlier call with its id, because some models reuse ids.
    """
    return _links(map(call_ids, messages))


def _links(ids: Iterable[CallIds]) -> list[tuple[int, int]]:
    return [(call, result) for call, result, _ in answers(ids)]


def _responses(messages: Sequence[Message], ids: Sequence[CallIds]) -> Iterator[tuple[int, int]]:
    """Yield (reasoning, output) as indices in the list, for every message of a response after its reasoning.

    A response ends at the next message that no model produced, such as a result.
    """
    reasoning = -1
    for at, own_ids in enumerate(ids):
        if reasoning < 0 and (own_ids is _NO_IDS or any(own_ids)):
            continue
        payload = messages[at].visible
        if type(payload) is Opaque:
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


def cut_before(messages: Sequence[Message], wanted: int, *, splits_responses: bool = False) -> int:
    """Return the last safe cut point at or before `wanted`.

    With `splits_responses`, the cut may separate reasoning from its output, but never a call from its result.
    """
    if not 0 < wanted < len(messages):
        return wanted
    ids = [call_ids(message) for message in messages]
    pairs = [pair for pair in _links(ids) if pair[0] >= 0]
    if not splits_responses:
        pairs += _responses(messages, ids)
    return _place_before(pairs, wanted)


def add_groups(messages: Sequence[Message], chosen: Collection[int]) -> set[int]:
    """Return these indices in the list, and those of all messages of their groups."""
    ids = [call_ids(message) for message in messages]
    together: dict[int, list[int]] = {}
    for one, other in (*(pair for pair in _links(ids) if pair[0] >= 0), *_responses(messages, ids)):
        together.setdefault(one, []).append(other)
        together.setdefault(other, []).append(one)
    whole, left = set(chosen), list(chosen)
    while left:
        new = [at for at in together.get(left.pop(), ()) if at not in whole]
        whole.update(new)
        left += new
    return whole


def _place_before(pairs: Iterable[tuple[int, int]], place: int) -> int:
    """Return the last index at or before this one where a cut separates no pair."""
    for first, last in sorted(pairs, key=itemgetter(1), reverse=True):
        if last < place:
            break
        place = min(place, first)
    return place


def _place_after(pairs: Iterable[tuple[int, int]], place: int) -> int:
    """Return the first index at or after this one where a cut separates no pair."""
    for first, last in sorted(pairs):
        if first >= place:
            break
        if last >= place:
            place = last + 1
    return place


def cut_after(messages: Sequence[Message], wanted: int, *, keeps_orphans: bool = False) -> int:
    """Return the first safe cut point at or after `wanted`, after which every result has its call.

    Unless `keeps_orphans`, the cut also skips results whose calls are not in the list. If that leaves no message, the
    cut falls inside the last group, between reasoning and its output.
    """
    if not 0 <= wanted < len(messages):
        return wanted
    ids = [call_ids(message) for message in messages]
    pairs = [pair for pair in _links(ids) if pair[0] >= 0 or not keeps_orphans]
    place = _place_after([*pairs, *_responses(messages, ids)], wanted)
    return place if place < len(messages) else _place_after(pairs, wanted)


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
    ids = [call_ids(message) for message in messages]
    answered: dict[int, Counter[CallId]] = {}
    for call, _, answered_id in answers(ids):
        answered.setdefault(call, Counter())[answered_id] += 1
    made = ((at, made_ids) for at, (_, made_ids) in enumerate(ids[: len(part)]) if made_ids)
    return [at for at, made_ids in made if _has_open_call(made_ids, answered.get(at, Counter()))]


def _has_open_call(made_ids: Sequence[tuple[CallId, CallId | None]], answered: Counter[CallId]) -> bool:
    """True if one of the calls of a message has no answer."""
    left = [second_id for made_id, second_id in made_ids if made_id not in answered]
    return None in left or bool(Counter(second_id for second_id in left if second_id is not None) - answered)
