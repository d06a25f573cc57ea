"""The circuit breaker of a memory, which decides if Redis counts as down, and when to probe it. No I/O.

Closed: calls go to Redis. Open: calls fail at once. Half open: one probe is running, and calls still fail at once. An
error reply from Redis never opens the breaker, because a server that replies is up.
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
    """The state of a breaker, as `Health.state` and the breaker's events show it."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """The circuit breaker of one node, or of Redis as a whole. It is thread-safe, and safe after a fork."""

    __slots__ = (
        *("__weakref__", "_clock", "_lock", "_pause_s", "_probe_at"),
        *("answered_s", "is_closed", "place", "reason", "since_s", "state", "text"),
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic, place: str = "") -> None:
        self._clock = clock
        self.place = place
        """The host and port of the node; "" if the breaker is for Redis as a whole."""
        self._lock = threading.Lock()
        self.is_closed = True
        """True if `state` is CLOSED. It is a plain attribute because each call reads it."""
        self.state = BreakerState.CLOSED
        self.answered_s = -math.inf
        """The start of the latest call that Redis answered.

        The store writes it without a lock, because any recent value is good enough.
        """
        self.since_s: float | None = None
        """The start of the first call that Redis did not answer; `None` while the breaker is closed."""
        self.reason = self.text = ""
        self._pause_s = FIRST_PAUSE_S
        self._probe_at = 0.0
        forks.reset_after_fork(self)

    def reset(self) -> None:
        """Reset the lock and a running probe in a forked process, which has no copy of the thread that owned them."""
        self._lock = threading.Lock()
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN

    def trip(self, begun_s: float, reason: str, text: str = "") -> bool:
        """Record a call that got no reply by its deadline. Return True if this opens the breaker.

        The breaker stays closed if Redis has answered another call that started no earlier: then only this call was
        affected.
        """
        with self._lock:
            if not self.is_closed or self.answered_s >= begun_s:
                return False
            self._pause_s, self._probe_at = FIRST_PAUSE_S, self._clock()
            self.since_s, self.reason, self.text = begun_s, reason, text
            self.state, self.is_closed = BreakerState.OPEN, False
            return True

    def away_s(self) -> float:
        """Return the seconds since Redis stopped answering; 0 while the breaker is closed."""
        since_s = self.since_s
        return 0.0 if since_s is None else self._clock() - since_s

    def probe_in_s(self) -> float:
        """Return the seconds until the next probe is due."""
        return max(0.0, self._probe_at - self._clock())

    def begin_probe(self, *, at_once: bool = False) -> bool:
        """Return True if the caller must probe Redis now, and then call `close` or `fail_probe`."""
        with self._lock:
            if self.state is not BreakerState.OPEN or (not at_once and self._clock() < self._probe_at):
                return False
            self.state = BreakerState.HALF_OPEN
            return True

    def fail_probe(self, reason: str, text: str = "") -> None:
        """Open the breaker again, and schedule the next probe after a pause of at most LONGEST_PAUSE_S."""
        with self._lock:
            if self.state is BreakerState.HALF_OPEN:
                # With jitter, because pods that lost the same Redis must not all return at once.
                self._probe_at = self._clock() + _random.uniform(self._pause_s / 2, self._pause_s)
                self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
                if reason:
                    self.reason, self.text = reason, text
                self.state = BreakerState.OPEN

    def close(self) -> None:
        """Close the breaker, because Redis has answered the probe."""
        with self._lock:
            self.answered_s = self._clock()
            self.since_s, self.reason, self.text = None, "", ""
            self.state, self.is_closed = BreakerState.CLOSED, True


class Breakers:
    """One breaker for each node that was called, and one for Redis as a whole, for calls that any node can run."""

    def __init__(self, nodes: MultiNode, whole: Breaker) -> None:
        self._nodes = nodes
        self._whole = whole
        self._by_place: dict[str, Breaker] = {}

    def at(self, place: str) -> Breaker:
        """Return the breaker of the node at a place; "" means Redis as a whole."""
        if not place:
            return self._whole
        breaker = self._by_place.get(place)
        return self._by_place.setdefault(place, Breaker(place=place)) if breaker is None else breaker

    def of(self, call: Call[Any]) -> Breaker:
        """Return the breaker of the node that the call goes to."""
        return self._whole if call.is_independent or not self._whole.is_closed else self.of_owner(call.commands)

    def of_owner(self, commands: Sequence[Command]) -> Breaker:
        """Return the breaker of the node that owns the key of the first command."""
        return self.at(self._nodes.node_of(commands))

    def away(self) -> list[Breaker]:
        """Return all breakers that are not closed. Drops nodes that have left the cluster."""
        places = self._nodes.places
        for place, breaker in list(self._by_place.items()):
            if not breaker.is_closed and place not in places:
                del self._by_place[place]
        return [breaker for breaker in (self._whole, *self._by_place.values()) if not breaker.is_closed]

    def is_all_away(self) -> bool:
        """True if no node is known to answer."""
        places = self._nodes.places
        away = {breaker.place for breaker in self.away()}
        return "" in away or (bool(places) and away.issuperset(places))
