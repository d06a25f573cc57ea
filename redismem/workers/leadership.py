"""Who of all pods looks at the queues: of each work one, which says on every tick that it is still there.

This saves looks and decides nothing else. What is taken up by two is claimed by one; who cannot find out whose turn it
is takes it; one that dies is missed after two ticks. What its holder finds too much for itself, all do.
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

# The next tick may be late by a tenth, and another pod's comes up to a tick after that: within three ticks in all.
_HOLD_TICKS = 1.75
# So long, a pod whose work failed leaves it to the others.
_BACK_TICKS = 3


class Turns:
    """The works that this process does, and on which ticks. `works`: whether there is more of it than it can do."""

    def __init__(self, store: Store, works: Mapping[str, Callable[[], bool]]) -> None:
        self.held: frozenset[str] = frozenset()
        """What this process does for all pods, as of its last tick."""
        self._store = store
        self._works = works
        self._holder = f"{_place()}/{os.getpid()}/{nonce().decode()[:8]}"
        self._hold_ms = max(1, int(store.settings.tick_s * 1000 * _HOLD_TICKS))
        self._back_ticks = dict.fromkeys(works, 0)
        self._is_first = True

    async def take(self) -> frozenset[str]:
        """The works to do on this tick: those it holds, and those whose holder asks for help. At first, all.

        Raises StoreUnavailable.
        """
        wanted = {work: is_crowded() for work, is_crowded in self._works.items() if not self._stands_back(work)}
        try:
            found = await self._store.run(self._hold(self._hold_ms, wanted)) if wanted else {}
        except StoreUnavailable:
            raise
        except RedismemError as error:
            log_failure("nobody knows whose turn it is: every pod takes it", error, facts(op="tick"))
            return frozenset(wanted)
        held = frozenset(work for work, hold in found.items() if hold.holder == self._holder)
        self._say(held)
        is_first, self._is_first = self._is_first, False
        return frozenset(
            work for work in wanted if is_first or work in held or work not in found or found[work].is_crowded
        )

    def stand_back(self, work: str) -> None:
        """The work has failed here: another pod may do better."""
        self._back_ticks[work] = _BACK_TICKS

    def _stands_back(self, work: str) -> bool:
        self._back_ticks[work] = max(0, self._back_ticks[work] - 1)
        return self._back_ticks[work] > 0

    async def give_up(self) -> None:
        """Leaves all of it to others, at once. Raises StoreUnavailable."""
        if self.held:
            held, self.held = self.held, frozenset()
            await self._store.run(self._hold(0, dict.fromkeys(held, False)))

    def _hold(self, hold_ms: int, works: Mapping[str, bool]) -> Call[dict[str, Hold]]:
        return holds.hold(self._store.keys, self._store.clock, self._holder, hold_ms, works)

    def _say(self, held: frozenset[str]) -> None:
        for work in sorted(held ^ self.held):
            outcome = "held" if work in held else "left"
            known = facts(op="tick", namespace=self._store.keys.namespace, outcome=outcome)
            log.info("ticks for all pods, %s: %s", work, outcome, extra=known)
        self.held = held


def _place() -> str:
    """The name of this machine, which in Kubernetes is the pod's."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "-"
