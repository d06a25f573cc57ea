"""Elect one leader per kind of work: the pod that polls the queues for all pods. It renews its hold on every tick.

Leadership only saves polling: if two pods do the same work, a claim decides which of them gets a session. A pod that
cannot find out which pod leads does the work itself. A dead leader is replaced after two ticks. A leader with more
work than it can do asks all pods for help.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Mapping

from redismem.errors import RedismemError, StoreUnavailable
from redismem.events import facts
from redismem.protocol.call import Call
from redismem.protocol.ids import nonce
from redismem.protocol.namespace import holds
from redismem.protocol.namespace.holds import Hold
from redismem.store.store import Store
from redismem.workers.failures import log_failure

log = logging.getLogger("redismem.worker")

# A tick may be a tenth late, and another pod's comes up to a tick after that: three ticks in all.
_HOLD_TICKS = 1.75
# A pod whose work failed leaves it to other pods for this many ticks.
_BACKOFF_TICKS = 3


class Leadership:
    """The kinds of work that this process does on each tick. `works` maps each kind to a test for overload."""

    def __init__(self, store: Store, works: Mapping[str, Callable[[], bool]]) -> None:
        self.held: frozenset[str] = frozenset()
        """The kinds of work this process leads, as of its last tick."""
        self._store = store
        self._works = works
        self._holder = f"{_host_name()}/{os.getpid()}/{nonce().decode()[:8]}"
        self._hold_ms = max(1, int(store.settings.tick_s * 1000 * _HOLD_TICKS))
        self._backoff_ticks = dict.fromkeys(works, 0)
        self._is_first = True

    async def acquire(self) -> frozenset[str]:
        """Renew or take the holds, and return the kinds of work to do on this tick.

        On the first tick this is all work; later, the work that this pod leads, has no leader, or needs help.

        Raises StoreUnavailable.
        """
        works = {work: is_crowded() for work, is_crowded in self._works.items() if not self._is_backing_off(work)}
        try:
            holds_by_work = await self._store.run(self._hold(self._hold_ms, works)) if works else {}
        except StoreUnavailable:
            raise
        except RedismemError as error:
            log_failure("leadership is unknown: every pod does the work", error, facts(op="tick"))
            return frozenset(works)
        held = frozenset(work for work, hold in holds_by_work.items() if hold.holder == self._holder)
        self._set_held(held)
        is_first, self._is_first = self._is_first, False
        return frozenset(
            work
            for work in works
            if is_first or work in held or work not in holds_by_work or holds_by_work[work].is_crowded
        )

    def back_off(self, work: str) -> None:
        """Leave this kind of work to other pods for a few ticks, because it failed in this one."""
        self._backoff_ticks[work] = _BACKOFF_TICKS

    def _is_backing_off(self, work: str) -> bool:
        self._backoff_ticks[work] = max(0, self._backoff_ticks[work] - 1)
        return self._backoff_ticks[work] > 0

    async def release(self) -> None:
        """Release every hold at once, so that other pods take over, and leave the list of running processes.

        Raises StoreUnavailable.
        """
        if not self._is_first:
            held, self.held = self.held, frozenset()
            await self._store.run(self._hold(0, dict.fromkeys(held, False)))

    def _hold(self, hold_ms: int, works: Mapping[str, bool]) -> Call[dict[str, Hold]]:
        return holds.hold(self._store.keys, self._store.clock, self._holder, hold_ms, works)

    def _set_held(self, held: frozenset[str]) -> None:
        for work in sorted(held ^ self.held):
            outcome = "held" if work in held else "left"
            known = facts(op="tick", namespace=self._store.keys.namespace, outcome=outcome)
            log.info("ticks for all pods, %s: %s", work, outcome, extra=known)
        self.held = held


def _host_name() -> str:
    """Return this machine's host name, which in Kubernetes is the pod's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "-"
