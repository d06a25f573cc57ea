"""Choose messages within a budget, whole tool calls together. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from redismem.formats.recalled import LINE_TOKENS
from redismem.formats.tool_groups import CallIds, answers, call_ids
from redismem.messages.message import Message


def chosen(
    hits: Sequence[int],
    tokens: Mapping[int, int],
    together: Mapping[int, Set[int]],
    limit: int | None,
    max_tokens: int | None,
) -> list[int]:
    """The seqs of the best of these messages, each with its neighbours and what it belongs to; in order.

    `tokens`: of each message that may be taken. `together`: the tool calls and results that a message belongs to.
    `limit`: hits, without what comes with them. What does not fit `max_tokens` is passed over.
    """
    taken: set[int] = set()
    left = math.inf if max_tokens is None else max_tokens
    count, size_of = 0, tokens.get
    for hit in hits:
        if count == limit or left < LINE_TOKENS:
            break
        if hit not in tokens:
            continue
        count += 1
        for group in ((hit - 1, hit, hit + 1), (hit,)):
            whole: Iterable[int] = group
            if together:
                whole = set().union(*(together.get(each, {each}) for each in group if each in tokens))
            more, size = [], 0
            for seq in whole:
                if seq not in taken and (own := size_of(seq)) is not None:
                    more.append(seq)
                    size += own + LINE_TOKENS
            if size <= left:
                taken.update(more)
                left -= size
                break
    return sorted(taken)


def calling(messages: Iterable[Message]) -> dict[int, CallIds]:
    """The calls and results in these messages, by the seqs of those that have any."""
    found = {each.seq: call_ids(each) for each in messages}
    return {seq: ids for seq, ids in found.items() if ids != ([], [])}


def groups(calling: Mapping[int, CallIds]) -> Mapping[int, Set[int]]:
    """The seqs of calls and results that belong together, by each of these seqs. The messages are given in order."""
    found: dict[int, set[int]] = {}
    seqs_of = list(calling)
    for call, result, _ in answers(calling.values()):
        if call >= 0:
            less, more = sorted((found.setdefault(seqs_of[at], {seqs_of[at]}) for at in (call, result)), key=len)
            if less is not more:  # the less are moved: one call may have any number of results
                more |= less
                found.update(dict.fromkeys(less, more))
    return found
