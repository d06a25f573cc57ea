"""A primary that sentinels know: they are asked where it is before each connection, and now and then.

A connection to what is no primary any more, by its own word, is given up before anything is sent there. Sentinels are
asked all at once, and the one that knows of the latest failover is believed; what they answer, redis-py reads.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from redis._parsers.helpers import parse_sentinel_master

from redismem.concurrency.finished import finished
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.base import BEHIND_SENTINELS
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.lane.connection import RECONNECTING
from redismem.transport.lane.lane import Lane
from redismem.transport.nodes.seeds import Places
from redismem.transport.nodes.sides import LoopSide, Side, ThreadSide
from redismem.transport.resp import Outcome
from redismem.transport.url import Address

# Sentinels that have not heard of a failover yet answer as soon as those that have.
_GRACE_S = 0.05
# A deposed primary that is cut off from the sentinels goes on answering.
_LOOK_EVERY_S = 1.0
# While they are at it, what the old primary takes is lost.
_LOOK_SOON_S = 0.1
_ANSWER_S = 0.5


class Sentinels:
    """Where the primary is, as they say."""

    def __init__(self, places: Places, side: Side) -> None:
        self._places = places
        self._side = side
        self._lanes = [side.lane(seed) for seed in places.seeds]
        self._look_at = monotonic() + _LOOK_EVERY_S

    async def primary(self, timeout_s: float) -> Address:
        """Raises ServerError, ConnectionLost."""
        works = [partial(self._asked, number, timeout_s) for number in range(len(self._lanes))]
        found = await self._side.answers(works, _GRACE_S)
        if any("failover_in_progress" in state["flags"] for state in found):
            self.look_soon()
        latest = max(found, key=lambda state: int(state["config-epoch"]))
        return self._places.at(latest["ip"], latest["port"])

    async def _asked(self, number: int, timeout_s: float) -> dict[str, Any]:
        try:
            (answer,) = await self._lanes[number].run([("SENTINEL", "MASTER", self._places.service)], timeout_s)
        except ConnectionLost as lost:
            lost.place = self._places.seeds[number].place
            raise
        if isinstance(answer, ServerError):
            raise answer
        state: dict[str, Any] = parse_sentinel_master(answer)  # type: ignore[no-untyped-call]
        return state

    def look_soon(self) -> None:
        """Who has been let in by what stood still meanwhile may be let in by what is the primary no more."""
        self._look_at = min(self._look_at, monotonic() + _LOOK_SOON_S)

    def is_time_to_look(self) -> bool:
        """Whether nobody has looked for a while; who is told so looks."""
        now = monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + random.uniform(_LOOK_EVERY_S / 2, _LOOK_EVERY_S)
        return True

    async def aclose(self) -> None:
        """Closes the connections to them."""
        for lane in self._lanes:
            await lane.aclose()

    def drop(self) -> None:
        """Closes what is open, if nobody is left who could."""
        for lane in self._lanes:
            if isinstance(lane, Lane):
                lane.drop()


class SentinelLane(Lane):
    """A lane to the primary, wherever it is."""

    def __init__(self, places: Places, *, stall_s: float) -> None:
        super().__init__(places.seeds[0], stall_s=stall_s)
        self._places = places
        self._side = LoopSide(stall_s)
        self._sentinels = Sentinels(places, self._side)
        self.place = BEHIND_SENTINELS + places.place

    def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> Awaitable[list[Any]]:
        if self._sentinels.is_time_to_look():
            self._side.later(self._look)
        return super().run(commands, timeout_s, script)

    def send(self, content: bytes, reply_count: int, timeout_s: float) -> Awaitable[list[Any]]:
        if self._sentinels.is_time_to_look():
            self._side.later(self._look)
        return super().send(content, reply_count, timeout_s)

    def _another(self, stall_s: float) -> Lane:
        return SentinelLane(self._places, stall_s=stall_s)

    async def _look(self) -> None:
        connection, place = self._connection, self.place
        try:
            address = await self._sentinels.primary(_ANSWER_S)
        except (ServerError, ConnectionLost):
            return  # the primary may be well all the same
        if connection is not None and address.place != place:
            connection.lose(RECONNECTING)

    async def _found(self) -> Address:
        address = await self._sentinels.primary(min(_ANSWER_S, self._stall_s))
        self._sentinels.look_soon()
        self.place = address.place
        return address

    async def aclose(self) -> None:
        """Gives up what is on its way. Nothing can be called afterwards."""
        await self._side.end()
        await super().aclose()
        await self._sentinels.aclose()

    def drop(self) -> None:
        """Closes what is open, if nobody is left who could, and warns of it."""
        super().drop()
        self._sentinels.drop()


class BlockingSentinelLane(BlockingLane):
    """The same for blocking callers."""

    def __init__(self, places: Places, *, max_connections: int) -> None:
        super().__init__(places.seeds[0], max_connections=max_connections)
        self._side = ThreadSide(max_connections)
        self._sentinels = Sentinels(places, self._side)
        self.place = BEHIND_SENTINELS + places.place

    def _call(self, content: bytes, reply_count: int, read: Callable[[list[Any]], Outcome], until: float) -> Outcome:
        if self._sentinels.is_time_to_look():
            self._side.later(self._look)
        return super()._call(content, reply_count, read, until)

    async def _look(self) -> None:
        try:
            self.place = (await self._sentinels.primary(_ANSWER_S)).place
        except (ServerError, ConnectionLost):
            return  # the primary may be well all the same
        except RuntimeError:
            if not self._is_closed:
                raise

    def _found(self, until: float) -> Address:
        address = finished(self._sentinels.primary(max(0.001, min(_ANSWER_S, until - monotonic()))))
        self.place = address.place
        return address

    async def aclose(self) -> None:
        """Closes what is idle, and the rest when its call is over. Nothing can be called afterwards."""
        await super().aclose()
        await self._sentinels.aclose()
