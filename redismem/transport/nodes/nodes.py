"""The nodes of a cluster: a lane to each node, the owner of each slot, and the refresh of this topology.

A call without a reply starts a refresh of the topology in the background. The refresh repeats until all nodes answer
again or their slots have new owners. When a node has lost its slots, its lane is closed. This ends the lane's pending
calls, so that the store retries them.
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
from redismem.transport.nodes.slots import Topology, is_down, split_place
from redismem.transport.url import Address

_PAUSE_S = (0.05, 0.25)
_LONG_PAUSE_S = (0.5, 1.0)
_ASKED_COUNT = 2


class Nodes:
    """All nodes of a cluster, by place (host and port)."""

    def __init__(self, places: Places, side: Side, reply_timeout_s: float) -> None:
        self._places = places
        self._side = side
        self._reply_timeout_s = reply_timeout_s
        self._lanes: dict[str, Transport] = {}
        self.topology: Topology | None = None
        self._troubled: set[str] = set()
        """Places of nodes that left a call without a reply, and have not answered since."""
        self._refresh_until = 0.0
        self._is_closed = False

    def lane(self, place: str) -> Transport:
        """Return the transport to one node."""
        lane = self._lanes.get(place)
        return self._open_lane(place) if lane is None else lane

    def _open_lane(self, place: str) -> Transport:
        if self._is_closed:
            raise RuntimeError("this memory is closed")
        return self._lanes.setdefault(place, self._side.lane(self.address(place)))

    def address(self, place: str) -> Address:
        """Return the address of one node."""
        return self._places.at(*split_place(place))

    @property
    def calls_count(self) -> int:
        """The number of calls without a reply so far, if the lanes count them."""
        return sum(lane.calls_count for lane in self._lanes.values())

    async def get_topology(self, timeout_s: float) -> Topology:
        """Return the topology, and ask the nodes for it if it is unknown.

        Raises:
            ServerError: A node refused to return it.
            ConnectionLost: No node replied.
        """
        if self.topology is None:
            try:
                await self._side.run_shared(partial(self._discover, timeout_s), timeout_s)
            except ConnectionLost as lost:
                lost.place = ""  # the error is about all seeds, not about one node
                raise
        assert self.topology is not None
        return self.topology

    async def refresh_topology(self, timeout_s: float) -> Topology:
        """Ask for the topology now, and return it.

        Raises:
            ServerError: A node refused to return it.
            ConnectionLost: No node replied.
        """
        await self._refresh(timeout_s)
        assert self.topology is not None
        return self.topology

    async def _discover(self, timeout_s: float) -> None:
        if self.topology is None:
            await self._refresh(timeout_s)

    def healthy_primary(self, topology: Topology) -> str:
        """Return the place of a primary without trouble; if there is none, of any primary."""
        return next((place for place in topology.primaries if place not in self._troubled), topology.primaries[0])

    def is_troubled(self, place: str) -> bool:
        """True if the node recently left a call without a reply."""
        return place in self._troubled

    def note_lost(self, lost: ConnectionLost, place: str) -> ConnectionLost:
        """Record that a node did not reply, start a refresh, and return the error with the node's place."""
        lost.place = place
        self._troubled.add(place)
        self.start_refresh(self._reply_timeout_s)
        return lost

    def note_refusal(self, refusal: ServerError, place: str) -> None:
        """Start a refresh if an error means that the topology is out of date.

        Raises:
            ConnectionLost: The node rejects all calls because the cluster is down, so the node counts as down too.
        """
        if refusal.word == "MOVED":
            self.start_refresh(0)
        elif is_down(refusal):
            lost = ConnectionLost(refusal.word, sent=False)
            lost.place = place
            self.start_refresh(self._reply_timeout_s)
            raise lost from None
        elif refusal.word in ("CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"):
            self.start_refresh(self._reply_timeout_s)

    def start_refresh(self, for_s: float) -> None:
        """Refresh the topology in the background, for at least `for_s` seconds, and at least once."""
        self._refresh_until = max(self._refresh_until, monotonic() + for_s)
        if not self._is_closed:
            self._side.run_in_background(self._keep_refreshing)

    async def _keep_refreshing(self) -> None:
        try:
            while not self._is_closed:
                # The callers get the errors; the next round asks other nodes.
                with contextlib.suppress(ServerError, ConnectionLost):
                    await self._refresh(self._reply_timeout_s)
                is_urgent = monotonic() < self._refresh_until
                if not is_urgent and await self._is_all_healthy():
                    return
                await self._side.sleep(random.uniform(*(_PAUSE_S if is_urgent else _LONG_PAUSE_S)))
        except RuntimeError:
            if not self._is_closed:  # otherwise the transport was closed meanwhile
                raise

    async def _is_all_healthy(self) -> bool:
        """Ping the troubled nodes, and forget each that answers. Return True if no troubled node is left."""
        places = sorted(self._troubled)
        outcomes = await self._side.run_all([partial(self._ping, place) for place in places])
        for place, outcome in zip(places, outcomes, strict=True):
            if not isinstance(outcome, ConnectionLost):
                self._troubled.discard(place)
        return not self._troubled

    async def _ping(self, place: str) -> None:
        """Ping a node that still owns slots: no call waits for another node. Raises ServerError, ConnectionLost."""
        if self.topology is None or place in self.topology.primaries:
            await self.lane(place).run_independent([("PING",)], self._reply_timeout_s)

    async def _refresh(self, timeout_s: float) -> None:
        """Ask several nodes for the topology, and take the first reply. Raises ServerError, ConnectionLost."""
        places_to_ask = [seed.place for seed in self._places.seeds]
        if (topology_before := self.topology) is not None:
            well = [place for place in topology_before.primaries if place not in self._troubled]
            places_to_ask = [
                place for places in (well, topology_before.replicas, places_to_ask) for place in _sample(places)
            ]
        works = [partial(self._ask_node, place, timeout_s) for place in set(places_to_ask)]
        topology = (await self._side.first_results(works))[0]
        self.topology = topology
        for place, lane in list(self._lanes.items()):
            if place in topology.primaries:
                continue
            # The slots of a troubled node have a new owner, so the node's pending calls would wait in vain.
            if self._side.drop(lane, may_wait=place not in self._troubled):
                self._lanes.pop(place, None)

    async def _ask_node(self, place: str, timeout_s: float) -> Topology:
        (answer,) = await self.lane(place).run_independent([("CLUSTER", "SLOTS")], timeout_s)
        if isinstance(answer, ServerError):
            raise answer
        return Topology.read(answer, place)

    async def aclose(self) -> None:
        """Close all lanes. Nothing can be called afterwards."""
        self._is_closed = True
        await self._side.end()
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            await lane.aclose()

    def drop(self) -> None:
        """Close open connections with a warning, if `aclose` was never called."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.drop()


def _sample(places: Sequence[str]) -> list[str]:
    return random.sample(list(places), min(_ASKED_COUNT, len(places)))
