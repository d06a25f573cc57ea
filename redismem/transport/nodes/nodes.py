"""The nodes of a cluster: the lane to each, which of them has which slot, and looking around when that changes.

What has no answer makes this look around, in the background, until all is answered again or the slots have another
owner. The lane of a node that has lost its slots is closed then: a call that waits there ends, and is sent again by
whoever sends it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from functools import partial
from time import monotonic

from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import Transport
from redismem.transport.nodes.seeds import Places
from redismem.transport.nodes.sides import Side
from redismem.transport.nodes.slots import Topology, apart, is_down

_PAUSE_S = (0.05, 0.25)
_LONG_PAUSE_S = (0.5, 1.0)
_ASKED_COUNT = 2


class Nodes:
    """Named by their places, which are host and port."""

    def __init__(self, places: Places, side: Side, reply_timeout_s: float) -> None:
        self._places = places
        self._side = side
        self._reply_timeout_s = reply_timeout_s
        self._lanes: dict[str, Transport] = {}
        self.topology: Topology | None = None
        self._troubled: set[str] = set()
        """Places that have left a call without an answer, and have not answered since."""
        self._look_until = 0.0
        self._is_closed = False

    def lane(self, place: str) -> Transport:
        """The transport to one node."""
        lane = self._lanes.get(place)
        return self._begun(place) if lane is None else lane

    def _begun(self, place: str) -> Transport:
        if self._is_closed:
            raise RuntimeError("this memory is closed")
        return self._lanes.setdefault(place, self._side.lane(self._places.at(*apart(place))))

    @property
    def calls_count(self) -> int:
        """Calls that have no answer yet, if the lanes know it."""
        return sum(lane.calls_count for lane in self._lanes.values())

    async def known(self, timeout_s: float) -> Topology:
        """Which node has which slot. Raises ServerError, ConnectionLost if nobody says so."""
        if self.topology is None:
            try:
                await self._side.shared(partial(self._discover, timeout_s), timeout_s)
            except ConnectionLost as lost:
                lost.place = ""  # no node of several, but all that are named
                raise
        assert self.topology is not None
        return self.topology

    async def seen_anew(self, timeout_s: float) -> Topology:
        """The same, asked for now. Raises ServerError, ConnectionLost."""
        await self._refresh(timeout_s)
        assert self.topology is not None
        return self.topology

    async def _discover(self, timeout_s: float) -> None:
        if self.topology is None:
            await self._refresh(timeout_s)

    def well(self, topology: Topology) -> str:
        """The place of a primary that has answered everything of late, if there is one."""
        return next((place for place in topology.primaries if place not in self._troubled), topology.primaries[0])

    def is_troubled(self, place: str) -> bool:
        """Whether it has left a call without an answer of late."""
        return place in self._troubled

    def lost(self, lost: ConnectionLost, place: str) -> ConnectionLost:
        """Notes that a node has not answered, and looks around."""
        lost.place = place
        self._troubled.add(place)
        self.look(self._reply_timeout_s)
        return lost

    def refused(self, refusal: ServerError, place: str) -> None:
        """What a node says that is not, or not yet, what the others take it for.

        Raises ConnectionLost if it takes nothing since others are away: it is of no more use than one that is away.
        """
        if refusal.word == "MOVED":
            self.look(0)
        elif is_down(refusal):
            lost = ConnectionLost(refusal.word, sent=False)
            lost.place = place
            self.look(self._reply_timeout_s)
            raise lost from None
        elif refusal.word in ("CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"):
            self.look(self._reply_timeout_s)

    def look(self, for_s: float) -> None:
        """Looks around in the background, for so long at least; once in any case."""
        self._look_until = max(self._look_until, monotonic() + for_s)
        if not self._is_closed:
            self._side.later(self._look_around)

    async def _look_around(self) -> None:
        try:
            while not self._is_closed:
                # Whoever calls is told what is wrong; the next look asks others.
                with contextlib.suppress(ServerError, ConnectionLost):
                    await self._refresh(self._reply_timeout_s)
                hurries = monotonic() < self._look_until
                if not hurries and await self._is_all_well():
                    return
                await self._side.sleep(random.uniform(*(_PAUSE_S if hurries else _LONG_PAUSE_S)))
        except RuntimeError:
            if not self._is_closed:  # meanwhile, which is no trouble
                raise

    async def _is_all_well(self) -> bool:
        """Whether all nodes with slots answer. Those that do are troubled no more."""
        asked = sorted(self._troubled)
        outcomes = await self._side.all([partial(self._pinged, place) for place in asked])
        for place, outcome in zip(asked, outcomes, strict=True):
            if not isinstance(outcome, ConnectionLost):
                self._troubled.discard(place)
        return not self._troubled

    async def _pinged(self, place: str) -> None:
        """Raises ServerError, ConnectionLost. One that has lost its slots is not asked: nobody waits for it."""
        if self.topology is None or place in self.topology.primaries:
            await self.lane(place).run_independent([("PING",)], self._reply_timeout_s)

    async def _refresh(self, timeout_s: float) -> None:
        """Asks some nodes; what the first one says counts. Raises ServerError, ConnectionLost."""
        asked = [seed.place for seed in self._places.seeds]
        if (known := self.topology) is not None:
            well = [place for place in known.primaries if place not in self._troubled]
            asked = [place for places in (well, known.replicas, asked) for place in _some(places)]
        found = (await self._side.answers([partial(self._seen_by, place, timeout_s) for place in set(asked)]))[0]
        self.topology = found
        for place, lane in list(self._lanes.items()):
            if place in found.primaries:
                continue
            # A troubled one has lost its slots to another: who waits there waits in vain.
            if self._side.drop(lane, may_wait=place not in self._troubled):
                self._lanes.pop(place, None)

    async def _seen_by(self, place: str, timeout_s: float) -> Topology:
        (answer,) = await self.lane(place).run_independent([("CLUSTER", "SLOTS")], timeout_s)
        if isinstance(answer, ServerError):
            raise answer
        return Topology.read(answer, place)

    async def aclose(self) -> None:
        """Closes all lanes. Nothing can be called afterwards."""
        self._is_closed = True
        await self._side.end()
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            await lane.aclose()

    def drop(self) -> None:
        """Closes what is open, if nobody is left who could, and warns of it."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.drop()


def _some(places: Sequence[str]) -> list[str]:
    return random.sample(list(places), min(_ASKED_COUNT, len(places)))
