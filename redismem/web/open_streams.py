"""The open streams, answers in progress and sessions of a server. No key can take all places.

Each kind has places of its own. A key may hold as many of them as are still free. So a key that takes all it can gets
half of the places, two get a third each, and there is always room for the next.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum

from redismem.web.access import Access, Caller
from redismem.web.http.problems import Problem


class StreamKind(StrEnum):
    """The purposes of a place, which are counted apart."""

    EVENTS = "event streams"
    CHAT = "chat streams"
    ANSWER = "answers in progress"
    """An answer has a place of its own, because it continues after its last listener has left."""
    SESSION = "sessions"
    """A session of an MCP client. It mostly waits, so there are ten times as many places."""


class OpenStream:
    """One place, from `take` to `leave`."""

    __slots__ = ("_owner", "caller", "kind", "revoked")

    def __init__(self, owner: OpenStreams, caller: Caller, kind: StreamKind) -> None:
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
        """Create `limit` places of each kind, and ten times as many for sessions."""
        self._limits = dict.fromkeys(StreamKind, limit) | {StreamKind.SESSION: 10 * limit}
        self._places: dict[StreamKind, set[OpenStream]] = {kind: set() for kind in StreamKind}

    @property
    def streams_count(self) -> int:
        """The number of open streams."""
        return len(self._places[StreamKind.EVENTS]) + len(self._places[StreamKind.CHAT])

    @property
    def answers_count(self) -> int:
        """The number of answers in progress."""
        return len(self._places[StreamKind.ANSWER])

    def take(self, caller: Caller, kind: StreamKind, access: Access) -> OpenStream:
        """Take a place, which the caller must leave. A single key has nobody to share with.

        Raises:
            Problem: overloaded, if there is no place; too_many_requests, if the key has its share.
        """
        places = self._places[kind]
        free_count = self._limits[kind] - len(places)
        if free_count <= 0:
            raise Problem("overloaded", f"this server has no place for more {kind}")
        if access.keys_count > 1 and sum(place.caller.name == caller.name for place in places) >= free_count:
            raise Problem("too_many_requests", f"this key has its share of this server's {kind}", retry_after_s=1)
        place = OpenStream(self, caller, kind)
        places.add(place)
        return place

    def give_back(self, place: OpenStream) -> None:
        """Free a place. Does nothing if it is free already."""
        self._places[place.kind].discard(place)

    def revoke(self, access: Access) -> None:
        """Mark the places of callers whose keys are no longer valid."""
        for place in set().union(*self._places.values()):
            if not place.revoked.done() and not access.knows(place.caller):
                place.revoked.set_result(None)
