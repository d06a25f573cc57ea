"""The circuit breaker of a memory: whether Redis counts as away, and when to look for it again. No I/O.

Closed, calls go to Redis. Open, nobody waits for it. Half open, one probe is on its way, and the others still do not
wait. An error that Redis answers with opens nothing: who answers is there.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from redismem.concurrency import forks
from redismem.protocol.call import Call, Command
from redismem.transport.base import MultiNode

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
_random = random.SystemRandom()


class BreakerState(StrEnum):
    """What `Health.state` and the events of a breaker say."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Fit for any number of threads, and for processes that are forked off."""

    __slots__ = (
        *("__weakref__", "_clock", "_lock", "_pause_s", "_probe_at"),
        *("answered_s", "is_closed", "place", "reason", "since_s", "state"),
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic, place: str = "") -> None:
        self._clock = clock
        self.place = place
        """Host and port of the node, if there are several."""
        self._lock = threading.Lock()
        self.is_closed = True
        """The same as `state`, for the path of a turn."""
        self.state = BreakerState.CLOSED
        self.answered_s = -math.inf
        """When the call began that was answered last. Written by the store, without a lock: any recent one will do."""
        self.since_s: float | None = None
        """Since when Redis is away: when the first call began that it did not answer. None while closed."""
        self.reason = ""
        self._pause_s = FIRST_PAUSE_S
        self._probe_at = 0.0
        forks.inherit(self)

    def begin_again(self) -> None:
        """In a process that was forked off: whoever held the lock, or had a probe on its way, is not there."""
        self._lock = threading.Lock()
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def unanswered(self, begun_s: float, reason: str) -> bool:
        """A call that began then was tried for all the time it had, and no answer came. True if this opens the breaker.

        It does not if that call, or one that began later, was answered: then this one had its own trouble.
        """
        with self._lock:
            if not self.is_closed or self.answered_s >= begun_s:
                return False
            self._pause_s, self._probe_at = FIRST_PAUSE_S, self._clock()
            self.since_s, self.reason = begun_s, reason
            self.state, self.is_closed = BreakerState.OPEN, False
            return True

    def away_s(self) -> float:
        """Seconds that Redis has been away; 0 if it is not."""
        since_s = self.since_s
        return 0.0 if since_s is None else self._clock() - since_s

    def probe_in_s(self) -> float:
        """Seconds until the next probe may go out."""
        return max(0.0, self._probe_at - self._clock())

    def begin_probe(self, *, at_once: bool = False) -> bool:
        """True to the one who is to look whether Redis answers, and who must then say `found` or `missed`."""
        with self._lock:
            if self.state is not BreakerState.OPEN or (not at_once and self._clock() < self._probe_at):
                return False
            self.state = BreakerState.HALF_OPEN
            return True

    def missed(self, reason: str) -> None:
        """The probe found nothing: the next one goes out later, by up to LONGEST_PAUSE_S."""
        with self._lock:
            if self.state is BreakerState.HALF_OPEN:
                # All the pods that lost the same Redis must not come back in the same moment.
                self._probe_at = self._clock() + _random.uniform(self._pause_s / 2, self._pause_s)
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
                self.reason = reason or self.reason
                self.state = BreakerState.OPEN

    def found(self) -> None:
        """The probe was answered: closed."""
        with self._lock:
            self.answered_s = self._clock()
            self.since_s, self.reason = None, ""
            self.state, self.is_closed = BreakerState.CLOSED, True


class Breakers:
    """The breakers of the nodes that calls have gone to, and that of all of them together, for what may go to any."""

    def __init__(self, nodes: MultiNode, whole: Breaker) -> None:
        self._nodes = nodes
        self._whole = whole
        self._by_place: dict[str, Breaker] = {}

    def at(self, place: str) -> Breaker:
        """The breaker of the node at a place; "" is the place of all together."""
        if not place:
            return self._whole
        found = self._by_place.get(place)
        return self._by_place.setdefault(place, Breaker(place=place)) if found is None else found

    def of(self, call: Call[Any]) -> Breaker:
        """The breaker of the node which a call goes to."""
        return self._whole if call.is_independent or not self._whole.is_closed else self.owning(call.commands)

    def owning(self, commands: Sequence[Command]) -> Breaker:
        """The breaker of the node which has the key of the first of these commands."""
        return self.at(self._nodes.node_of(commands))

    def away(self) -> list[Breaker]:
        """The breakers of what does not answer, without nodes that the cluster has no more."""
        places = self._nodes.places
        for place, breaker in list(self._by_place.items()):
            if not breaker.is_closed and place not in places:
                del self._by_place[place]
        return [breaker for breaker in (self._whole, *self._by_place.values()) if not breaker.is_closed]

    def is_all_away(self) -> bool:
        """Whether no node at all is known to answer."""
        places = self._nodes.places
        away = {breaker.place for breaker in self.away()}
        return "" in away or (bool(places) and away.issuperset(places))
