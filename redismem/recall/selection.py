"""Choose messages within a token budget, keeping tool calls complete. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from redismem.formats.recalled import LINE_TOKENS
from redismem.formats.tool_groups import CallIds, answers, call_ids
from redismem.messages.message import Message


def choose(
    hits: Sequence[int],
    tokens: Mapping[int, int],
    together: Mapping[int, Set[int]],
    limit: int | None,
    max_tokens: int | None,
) -> list[int]:
    """Return the seqs of the best hits, the messages beside each hit, and all tool calls and results of these, sorted.

    Args:
        hits: Seqs, best first.
        tokens: The tokens of each available message by seq.
        together: The seqs of the tool calls and results that belong with a message, by the message's seq.
        limit: The maximum number of hits, not counting neighbours and tool calls.
        max_tokens: The token budget. A hit whose neighbours exceed it is taken alone, or skipped if it does not fit.
    """
    chosen: set[int] = set()
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
                whole = set().union(*(together.get(seq, {seq}) for seq in group if seq in tokens))
            new, size = [], 0
            for seq in whole:
                if seq not in chosen and (own := size_of(seq)) is not None:
                    new.append(seq)
                    size += own + LINE_TOKENS
            if size <= left:
                chosen.update(new)
                left -= size
                break
    return sorted(chosen)


def map_calls(messages: Iterable[Message]) -> dict[int, CallIds]:
    """Return the ids of tool calls and results, by seq; only for messages that have calls or results."""
    ids_by_seq = {message.seq: call_ids(message) for message in messages}
    return {seq: ids for seq, ids in ids_by_seq.items() if any(ids)}


def group_calls(ids_by_seq: Mapping[int, CallIds]) -> Mapping[int, Set[int]]:
    """Return, for each message with tool calls or results, the seqs of all messages that belong to the same calls.

    `ids_by_seq` must be in the order of the messages.
    """
    groups: dict[int, set[int]] = {}
    seqs = list(ids_by_seq)
    for call, result, _ in answers(ids_by_seq.values()):
        if call >= 0:
            small, large = sorted((groups.setdefault(seqs[at], {seqs[at]}) for at in (call, result)), key=len)
            if small is not large:  # moving the small group keeps a call with many results linear
                large |= small
                groups.update(dict.fromkeys(small, large))
    return groups
