"""Compare the CPU of turns of two settings from many short plays, made in turn. No I/O."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import TypeVar

ROUNDS = 5
RUNNERS = 4
"""The rows that are in every round; of more, half are left out after each."""
_SIGNIFICANCE = 0.05
"""The share of such comparisons whose interval misses the true median."""
_LEAST_REQUESTS, _MOST_REQUESTS = 40, 400
"""The least requests of a heat, and the most of all heats of a round."""

Played = TypeVar("Played")


@dataclass(frozen=True, slots=True)
class Ratio:
    """The CPU of a turn as a multiple of that with other settings: the median of all pairs, and its 95 % interval."""

    middle: float
    least: float
    most: float


def ratio(heats: Sequence[float], of_now: Sequence[float]) -> Ratio | None:
    """Return the ratio of the heats to those of the settings now, which were played just before or after.

    Whatever slows the machine for longer than a heat slows both, and so does not count. The interval is that of the
    sign test, from the smallest to the greatest ratio if there are fewer than six pairs. `None` means no pair.
    """
    ratios = sorted(one / other for one, other in zip(heats, of_now, strict=False) if other)
    if not ratios:
        return None
    rank = _rank(len(ratios))
    return Ratio(statistics.median(ratios), ratios[rank], ratios[-1 - rank])


def _rank(count: int) -> int:
    """Return the rank of the interval's lower end among `count` sorted values, counted from 0."""
    below, rank = 0.5**count, 0
    while below <= _SIGNIFICANCE / 2:
        rank += 1
        below += comb(count, rank) * 0.5**count
    return max(0, rank - 1)


def groups(played: Sequence[Played], requests: Sequence[int]) -> list[list[Played]]:
    """Cut conversations into the heats of a round. `requests` has the number of requests of each."""
    found: list[list[Played]] = []
    total, in_last = 0, _LEAST_REQUESTS
    for each, count in zip(played, requests, strict=True):
        if total >= _MOST_REQUESTS:
            break
        if in_last >= _LEAST_REQUESTS:
            found.append([])
            in_last = 0
        found[-1].append(each)
        total, in_last = total + count, in_last + count
    if len(found) > 1 and in_last < _LEAST_REQUESTS:
        last = found.pop()
        found[-1] += last
    return found
