"""The open streams, answers in progress and sessions of a server. No key and no namespace can take all places.

A key may hold as many places as are still free, a namespace twice as many. So a key that takes all it can gets half of
the places, two get a third each, and there is always room for the next. Event streams leave a quarter of the places to
chats.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from enum import StrEnum

from redismem.web.access import Access, Caller
from redismem.web.http.problems import Problem


class Kind(StrEnum):
    """The purposes of a place, which are counted apart."""

    EVENTS = "event streams"
    CHAT = "chat streams"
    ANSWER = "answers in progress"
    """An answer has a place of its own, because it continues for a while after its last listener has left."""
    SESSION = "sessions"
    """A session of an MCP client. It mostly waits, so there are ten places for sessions per place for a stream."""


_APART = {Kind.ANSWER: 1, Kind.SESSION: 10}
"""The kinds that are counted apart from streams, with their places per place for a stream."""


class Place:
    """One place, from `take` to `leave`."""

    __slots__ = ("_owner", "caller", "kind", "revoked")

    def __init__(self, owner: OpenStreams, caller: Caller, kind: Kind) -> None:
        self._owner = owner
        self.caller = caller
        self.kind = kind
        self.revoked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the caller's key is no longer valid."""

    def leave(self) -> None:
        self._owner.give_back(self)
        self.revoked.cancel()


class OpenStreams:
    """The places of a server."""

    def __init__(self, limit: int) -> None:
        """Create `limit` places for streams, as many for answers, and ten times as many for sessions."""
        self._limit = limit
        self._places: set[Place] = set()
        self._counts: Counter[Kind | tuple[Kind, str, str]] = Counter()

    @property
    def streams_count(self) -> int:
        """The number of open streams."""
        return self._counts[Kind.EVENTS] + self._counts[Kind.CHAT]

    def take(self, caller: Caller, kind: Kind, access: Access) -> Place:
        """Take a place, which the caller must leave.

        With a single key, or a single namespace, there is nobody to share with.

        Raises:
            Problem: overloaded, if there is no place; too_many_requests, if the key or the namespace has its share.
        """
        free_count = self._free_count(kind)
        if free_count <= 0:
            raise Problem("overloaded", f"this server has no place for more {kind}")
        if access.keys_count > 1 and self._counts[kind, "key", caller.name] >= free_count:
            raise Problem("too_many_requests", f"this key has its share of this server's {kind}", retry_after_s=1)
        if len(access.namespaces) > 1 and self._counts[kind, "namespace", caller.namespace] >= 2 * free_count:
            raise Problem("too_many_requests", f"this namespace has its share of this server's {kind}", retry_after_s=1)
        place = Place(self, caller, kind)
        self._places.add(place)
        self._counts.update(_counted(place))
        return place

    def give_back(self, place: Place) -> None:
        """Free a place. Does nothing if it is free already."""
        if place in self._places:
            self._places.discard(place)
            self._counts.subtract(_counted(place))
            for name in _counted(place):
                if not self._counts[name]:
                    del self._counts[name]

    def revoke(self, access: Access) -> None:
        """Mark the places of callers whose keys are no longer valid."""
        for place in self._places:
            if not place.revoked.done() and not access.knows(place.caller):
                place.revoked.set_result(None)

    def _free_count(self, kind: Kind) -> int:
        if kind in _APART:
            return self._limit * _APART[kind] - self._counts[kind]
        free_count = self._limit - self.streams_count
        if kind is Kind.EVENTS:
            return min(free_count, self._limit - self._limit // 4 - self._counts[kind])
        return free_count


def _counted(place: Place) -> list[Kind | tuple[Kind, str, str]]:
    kind, caller = place.kind, place.caller
    return [kind, (kind, "key", caller.name), (kind, "namespace", caller.namespace)]
