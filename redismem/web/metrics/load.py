"""The load of this server over the last minutes, from snapshots of its meters every few seconds.

A slot is the difference between two snapshots, so it adds no cost to a turn.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from redismem.web.metrics.prometheus import Meters, Work

SLOT_S = 5.0
_SLOTS_COUNT = 120


class Slot(NamedTuple):
    """The work between two snapshots."""

    end_ms: int
    took_ms: int
    work: Work

    def document(self) -> dict[str, Any]:
        """Return the slot as JSON values."""
        work = self.work
        return {
            "end_ms": self.end_ms,
            "took_ms": self.took_ms,
            "turns_count": sum(work.turns),
            "failed_count": work.failed_count,
            "evictions_count": work.evictions_count,
            "p50_ms": quantile_ms(work.bounds_s, work.turns, 0.50),
            "p99_ms": quantile_ms(work.bounds_s, work.turns, 0.99),
        }


class Load:
    """The load of the last ten minutes."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._slots: deque[Slot] = deque(maxlen=_SLOTS_COUNT)
        self._begun = meters.work()
        self._begun_s = time.monotonic()

    async def run(self) -> None:
        """Take a snapshot every `SLOT_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(SLOT_S)
            work, now_s = self._meters.work(), time.monotonic()
            self._slots.append(self._slot(work, now_s))
            self._begun, self._begun_s = work, now_s

    def document(self) -> dict[str, Any]:
        """Return the slots that have ended, oldest first, and the sum of all slots, including the running one."""
        now = self._slot(self._meters.work(), time.monotonic())
        slots = [*self._slots, now]
        works = [slot.work for slot in slots]
        total = Work(
            now.work.bounds_s,
            [sum(counts) for counts in zip(*(work.turns for work in works), strict=True)],
            sum(work.failed_count for work in works),
            sum(work.evictions_count for work in works),
        )
        return {
            "now_ms": now.end_ms,
            "slots": [slot.document() for slot in self._slots],
            "whole": Slot(now.end_ms, sum(slot.took_ms for slot in slots), total).document(),
        }

    def _slot(self, work: Work, now_s: float) -> Slot:
        """Return the current slot, which ends with a snapshot taken now."""
        return Slot(time.time_ns() // 1_000_000, round((now_s - self._begun_s) * 1000), work.since(self._begun))


def quantile_ms(bounds_s: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """Return the quantile `part` in ms, estimated from buckets as Prometheus does. `None` means nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    rank, below, floor_s = part * total, 0, 0.0
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if below + count >= rank:
            return round(1000 * (floor_s + (bound_s - floor_s) * (rank - below) / count), 3)
        below, floor_s = below + count, bound_s
    return round(1000 * bounds_s[-1], 3)
