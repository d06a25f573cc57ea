"""A channel with its listeners, and the pauses between attempts to subscribe it."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any, Protocol

from redismem.events import facts
from redismem.transport.subscriptions.link import Link

log = logging.getLogger("redismem")

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 1.0
_DOUBLINGS = 7  # from the first pause to the longest one


class Listener(Protocol):
    """A listener to a channel. Its methods run in the event loop of its subscription, and must not block."""

    def on_message(self, payload: bytes) -> None:
        """Take the next message of the channel."""

    def on_gap(self) -> None:
        """Read now, because messages may be missing.

        Called after each new subscription that follows a lost connection or a moved slot, and when a channel must be
        polled that was subscribed before.
        """


class Channel:
    """A channel with its listeners."""

    __slots__ = ("hops", "is_failing", "is_missed", "is_on", "link", "listeners", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.listeners: dict[Listener, asyncio.Future[bool] | None] = {}
        """Each listener, with a future while its `add` waits."""
        self.link: Link | None = None
        """The connection that carries the channel; `None` while the channel waits for one."""
        self.is_on = False
        """True if the server has confirmed the subscription, and its connection is open."""
        self.is_missed = False
        """True if the subscription has ended since, and the listeners have not been told."""
        self.is_failing = False
        """True if the last attempt to subscribe failed."""
        self.hops = 0
        """The number of redirections in a row."""

    def confirm(self) -> None:
        """Note that the channel is on. The `add` of a new listener returns True; all others must read."""
        self.is_on, self.is_failing, self.is_missed, self.hops = True, False, False, 0
        self._tell(has_gap=True)

    def fail(self) -> None:
        """Note that the channel must be polled. The `add` of a new listener returns False."""
        self.lose()
        has_gap, self.is_failing, self.is_missed = self.is_missed, True, False
        self._tell(has_gap=has_gap)

    def lose(self) -> None:
        """Note that the subscription has ended. Its listeners are told after the next attempt."""
        self.link, self.is_missed, self.is_on = None, self.is_on or self.is_missed, False

    def end(self) -> None:
        """End the subscription without a word to the listeners. An `add` that waits returns False."""
        self.is_on = False
        self._tell(has_gap=False)

    def _tell(self, *, has_gap: bool) -> None:
        for listener, told in tuple(self.listeners.items()):
            if told is not None and not told.done():
                told.set_result(self.is_on)
            elif has_gap and listener in self.listeners:
                _call(listener.on_gap)

    def deliver(self, payload: bytes) -> None:
        """Give a message to all listeners."""
        for listener in tuple(self.listeners):
            _call(listener.on_message, payload)


def _call(method: Any, *arguments: Any) -> None:
    """Call a method of a listener. Its failure must not end the connection of the others."""
    try:
        method(*arguments)
    except Exception as error:
        kind = type(error).__name__
        if kind not in _logged:
            _logged.add(kind)
            log.error("a listener to a channel failed with %s", kind, extra=facts(op="follow", error=kind))


_logged: set[str] = set()
"""The class names of the failures of listeners that have been logged. A failing listener fails for each message."""


class Pauses:
    """The pauses between attempts to reach one node, each about twice as long as the one before."""

    def __init__(self) -> None:
        self._count = 0
        self.until = 0.0
        """The time of the next attempt."""

    def begin(self, now: float) -> float:
        """Begin a pause, unless one is under way. Return the time of the next attempt."""
        if self.until <= now:
            longest_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**self._count)
            # With jitter, because processes that lost the same server must not all reconnect at once.
            self.until = now + random.uniform(0, longest_s)
            self._count = min(self._count + 1, _DOUBLINGS)
        return self.until
