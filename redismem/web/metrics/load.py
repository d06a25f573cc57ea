"""The load of this server over the last minutes, from its meters, sampled every few seconds.

Nothing is noted on the path of a turn: two looks at the same counters, and what lies between them.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from redismem.web.metrics.prometheus import Meters, Worked

SLOT_S = 5.0
_SLOTS_COUNT = 120


class Slot(NamedTuple):
    """The work between two samples."""

    end_ms: int
    took_ms: int
    worked: Worked

    def document(self) -> dict[str, Any]:
        """All of it as JSON values."""
        worked = self.worked
        return {
            "end_ms": self.end_ms,
            "took_ms": self.took_ms,
            "turns_count": sum(worked.turns),
            "failed_count": worked.failed_count,
            "evictions_count": worked.evictions_count,
            "p50_ms": quantile_ms(worked.bounds_s, worked.turns, 0.50),
            "p99_ms": quantile_ms(worked.bounds_s, worked.turns, 0.99),
        }


class Load:
    """The last ten minutes."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._slots: deque[Slot] = deque(maxlen=_SLOTS_COUNT)
        self._seen = meters.worked()
        self._seen_s = time.monotonic()

    async def run(self) -> None:
        """Looks until it is cancelled."""
        while True:
            await asyncio.sleep(SLOT_S)
            self._slots.append(self._slot())

    def document(self) -> dict[str, Any]:
        """The slots that have ended, oldest first, and all of them together with the one that has not."""
        now = self._slot(keep=True)
        slots = [*self._slots, now]
        worked = [slot.worked for slot in slots]
        whole = Worked(
            now.worked.bounds_s,
            [sum(counts) for counts in zip(*(each.turns for each in worked), strict=True)],
            sum(each.failed_count for each in worked),
            sum(each.evictions_count for each in worked),
        )
        return {
            "now_ms": now.end_ms,
            "slots": [slot.document() for slot in self._slots],
            "whole": Slot(now.end_ms, sum(slot.took_ms for slot in slots), whole).document(),
        }

    def _slot(self, *, keep: bool = False) -> Slot:
        """Return the work since the last sample. With `keep`, this one is not recorded as a sample."""
        seen, seen_s = self._meters.worked(), time.monotonic()
        slot = Slot(time.time_ns() // 1_000_000, round((seen_s - self._seen_s) * 1000), seen.since(self._seen))
        if not keep:
            self._seen, self._seen_s = seen, seen_s
        return slot


def quantile_ms(bounds_s: Sequence[float], counts: Sequence[int], part: float) -> float | None:
    """The quantile `part` in milliseconds, as Prometheus estimates it from buckets; None: nothing was counted."""
    total = sum(counts)
    if not total:
        return None
    wanted, below, floor_s = part * total, 0, 0.0
    for bound_s, count in zip(bounds_s, counts, strict=False):
        if below + count >= wanted:
            return round(1000 * (floor_s + (bound_s - floor_s) * (wanted - below) / count), 3)
        below, floor_s = below + count, bound_s
    return round(1000 * bounds_s[-1], 3)
