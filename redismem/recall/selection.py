"""Choose messages within a token budget, keeping tool calls complete. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from redismem.formats.recalled import DAY_TOKENS
from redismem.formats.tool_groups import CallIds, answers, call_ids
from redismem.messages.message import Message

_HITS_SHARE = 0.75
"""The share of a budget that is spent on hits before their neighbours are added."""
_RULES_SHARE = 0.15
"""The share of a budget that is reserved for standing rules. The hits get what they leave."""
_RULE_SHARE = 0.4
"""The share of a budget that one rule may take if none fits the reserved share: it is a part of a long message."""
_HIT_TOKENS = 50
"""A budget considers one hit per this number of tokens, so that short messages do not displace better hits."""

Size = tuple[int, int | None]
"""The tokens of a message's line, and the day under whose heading it stands; `None` means no heading."""


class _Choice:
    """The messages chosen so far, and the tokens that their lines and headings take."""

    def __init__(self, sizes: Mapping[int, Size], together: Mapping[int, Set[int]], heading_tokens: int) -> None:
        self.seqs = set[int]()
        self._heading_tokens = heading_tokens
        self._used_tokens = 0
        self._sizes, self._together = sizes, together
        self._days: set[int | None] = {None}

    def take(self, seqs: Iterable[int], max_tokens: float) -> None:
        """Add each message with the tool calls and results that belong to it, unless that exceeds the budget."""
        used = self._used_tokens
        if used >= max_tokens:
            return
        chosen, size_of, groups, days = self.seqs, self._sizes.get, self._together, self._days
        for seq in seqs:
            if seq in chosen or (size := size_of(seq)) is None:
                continue
            if groups and seq in groups:
                self._take_group(groups[seq], max_tokens)
                used = self._used_tokens
                continue
            tokens, day = size
            if day not in days:
                tokens += self._heading_tokens
            if used + tokens <= max_tokens:
                chosen.add(seq)
                days.add(day)
                used += tokens
                self._used_tokens = used

    def take_rules(self, rules: Sequence[int], max_tokens: float) -> None:
        """Add standing rules within the share that is reserved for them."""
        self.take(rules, _RULES_SHARE * max_tokens)
        for rule in rules:
            if self.seqs:
                break
            self.take([rule], _RULE_SHARE * max_tokens)

    def _take_group(self, group: Set[int], max_tokens: float) -> None:
        new = {seq: self._sizes[seq] for seq in group if seq in self._sizes and seq not in self.seqs}
        new_days = {day for _, day in new.values()} - self._days
        used = self._used_tokens + sum(tokens for tokens, _ in new.values()) + self._heading_tokens * len(new_days)
        if used <= max_tokens:
            self.seqs.update(new)
            self._days |= new_days
            self._used_tokens = used


def choose(
    hits: Sequence[int],
    matching: Set[int],
    sizes: Mapping[int, Size],
    together: Mapping[int, Set[int]],
    limit: int | None,
    max_tokens: int | None,
    frame_tokens: int = 0,
    heading_tokens: int = DAY_TOKENS,
    rules: Sequence[int] = (),
) -> list[int]:
    """Return the seqs of the best hits, the messages beside them, and all tool calls and results of these, sorted.

    A budget is spent on standing rules up to 15 %, on the best hits up to 75 %, then on their neighbours, then on all
    other hits. With a limit, the best hits come before all else.

    Args:
        hits: Seqs, best first: messages that match the query, and messages beside these.
        matching: The seqs of the messages that match the query.
        sizes: The size of each available message, by seq.
        together: The seqs of the tool calls and results that belong with a message, by the message's seq.
        limit: The maximum number of matching messages, not counting neighbours and tool calls.
        max_tokens: The token budget of the lines, headings and frame. A message that exceeds it is skipped.
        frame_tokens: The tokens that the quotation takes without any line.
        heading_tokens: The tokens of each heading.
        rules: The seqs of the standing rules that the question concerns, best first.
    """
    candidates = {*[hit for hit in hits if hit in matching and hit in sizes][:limit]}
    if limit is None and len(candidates) < len(hits):
        for hit in hits:  # a message beside one that is pinned or popped is no candidate
            if hit in sizes and any(seq in matching and seq in sizes for seq in (hit - 1, hit + 1)):
                candidates.add(hit)
    choice = _Choice(sizes, together, heading_tokens)
    left = math.inf if max_tokens is None else max_tokens - frame_tokens
    every = [hit for hit in hits if hit in candidates]
    best = every if max_tokens is None else [hit for hit in hits[: count_hits(max_tokens)] if hit in candidates]
    if rules and max_tokens is not None:
        choice.take_rules(rules, left)
    choice.take(best, left if limit is not None else _HITS_SHARE * left)
    choice.take([seq for hit in best if hit in choice.seqs for seq in (hit - 1, hit + 1)], left)
    choice.take(every, left)
    return sorted(choice.seqs)


def count_hits(max_tokens: int) -> int:
    """Return the number of best hits that a budget considers."""
    return max_tokens // _HIT_TOKENS + 1


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
