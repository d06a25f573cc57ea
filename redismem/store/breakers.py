"""One breaker a node, if there are several: what does not answer must not keep calls from what does. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.protocol.call import Call, Command
from redismem.store.breaker import Breaker
from redismem.transport.base import Transport


class Breakers:
    """The breakers of the nodes that calls have gone to, and that of all of them together, for what may go to any."""

    def __init__(self, transport: Transport, whole: Breaker) -> None:
        self._transport: Any = transport
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
        return self.at(self._transport.node_of(commands))

    def away(self) -> list[Breaker]:
        """The breakers of what does not answer, without nodes that the cluster has no more."""
        places = self._transport.places
        for place, breaker in list(self._by_place.items()):
            if not breaker.is_closed and place not in places:
                del self._by_place[place]
        return [breaker for breaker in (self._whole, *self._by_place.values()) if not breaker.is_closed]

    def is_all_away(self) -> bool:
        """Whether no node at all is known to answer."""
        places = self._transport.places
        away = {breaker.place for breaker in self.away()}
        return "" in away or (bool(places) and away.issuperset(places))
