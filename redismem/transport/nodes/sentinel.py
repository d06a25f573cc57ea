"""A primary behind sentinels. The sentinels are asked for its address before each connection, and regularly.

If the node then says that it is not a primary, the connection is closed before any call is sent. All sentinels are
asked at once, and the reply of the one that knows the latest failover is used. redis-py parses the replies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from redis._parsers.helpers import parse_sentinel_master

from redismem.concurrency.run_sync import run_without_loop
from redismem.protocol.call import Command, Subject
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

# Sentinels that do not know of a failover yet answer as fast as the others.
_GRACE_S = 0.05
# A former primary that is cut off from the sentinels still answers.
_CHECK_EVERY_S = 1.0
# Writes to the old primary during a failover are lost.
_CHECK_SOON_S = 0.1
_ANSWER_S = 0.5


class Sentinels:
    """Asks the sentinels for the address of the primary."""

    def __init__(self, places: Places, side: Side) -> None:
        self._places = places
        self._side = side
        self._lanes = [side.lane(seed) for seed in places.seeds]
        self._check_at = monotonic() + _CHECK_EVERY_S

    async def primary(self, timeout_s: float) -> Address:
        """Return the address of the primary.

        Raises:
            ServerError: The sentinels refused to return it.
            ConnectionLost: No sentinel replied.
        """
        works = [partial(self._ask, number, timeout_s) for number in range(len(self._lanes))]
        states = await self._side.first_results(works, _GRACE_S)
        if any("failover_in_progress" in state["flags"] for state in states):
            self.check_soon()
        latest = max(states, key=lambda state: int(state["config-epoch"]))
        return self._places.at(latest["ip"], latest["port"])

    async def _ask(self, number: int, timeout_s: float) -> dict[str, Any]:
        try:
            (answer,) = await self._lanes[number].run([("SENTINEL", "MASTER", self._places.service)], timeout_s)
        except ConnectionLost as lost:
            lost.place = self._places.seeds[number].place
            raise
        if isinstance(answer, ServerError):
            raise answer
        state: dict[str, Any] = parse_sentinel_master(answer)  # type: ignore[no-untyped-call]
        return state

    def check_soon(self) -> None:
        """Make the next check due soon.

        A node that stalled during a failover may accept a connection as if it were still the primary.
        """
        self._check_at = min(self._check_at, monotonic() + _CHECK_SOON_S)

    def is_check_due(self) -> bool:
        """True if the primary must be checked now, because the last check is too old."""
        return monotonic() >= self._check_at

    def begin_check(self) -> None:
        """Note that a check begins, so that the next one is due later."""
        self._check_at = monotonic() + random.uniform(_CHECK_EVERY_S / 2, _CHECK_EVERY_S)

    async def aclose(self) -> None:
        """Close the connections to the sentinels."""
        for lane in self._lanes:
            await lane.aclose()

    def drop(self) -> None:
        """Close open connections to the sentinels, if `aclose` was never called."""
        for lane in self._lanes:
            if isinstance(lane, Lane):
                lane.drop()


class SentinelLane(Lane):
    """A lane to the current primary."""

    def __init__(self, places: Places, *, stall_s: float, connect_s: float = 0) -> None:
        super().__init__(places.seeds[0], stall_s=stall_s, connect_s=connect_s)
        self._places = places
        self._side = LoopSide(self._connect_s, self._connect_s)
        self._sentinels = Sentinels(places, self._side)
        self.place = BEHIND_SENTINELS + places.place

    def _start(
        self,
        content: bytes,
        reply_count: int,
        is_transaction: bool,
        script: Script | None,
        timeout_s: float,
        commands: Sequence[Command] = (),
        subject: Subject = None,
    ) -> asyncio.Future[list[Any]]:
        if self._sentinels.is_check_due() and asyncio.get_running_loop() is self._loop:  # otherwise a twin checks
            self._sentinels.begin_check()
            self._side.run_in_background(self._check_primary)
        return super()._start(content, reply_count, is_transaction, script, timeout_s, commands, subject)

    def _new_lane(self, stall_s: float) -> Lane:
        return SentinelLane(self._places, stall_s=stall_s, connect_s=self._connect_s)

    async def _check_primary(self) -> None:
        connection, place, second = self._connection, self.place, self._second
        try:
            address = await self._sentinels.primary(_ANSWER_S)
        except (ServerError, ConnectionLost):
            return  # the primary may be up all the same
        if connection is not None and address.place != place:
            connection.lose(RECONNECTING)
        if second is not None and address.place != second.place:
            second.reconnect()

    async def channel_addresses(self, channels: Sequence[bytes], timeout_s: float) -> Sequence[Address | None]:
        """Return the current primary's address for each channel.

        Raises:
            ServerError: The sentinels refused to return it.
            ConnectionLost: No sentinel replied.
        """
        return [await self._sentinels.primary(min(_ANSWER_S, timeout_s))] * len(channels)

    async def _find_address(self) -> Address:
        address = await self._sentinels.primary(min(_ANSWER_S, self._connect_s))
        self._sentinels.check_soon()
        self.place = address.place
        return address

    async def aclose(self) -> None:
        """End all pending calls. Nothing can be called afterwards."""
        await self._side.end()
        await super().aclose()
        await self._sentinels.aclose()

    def drop(self) -> None:
        """Close open connections with a warning, if `aclose` was never called."""
        super().drop()
        self._sentinels.drop()


class BlockingSentinelLane(BlockingLane):
    """A lane to the current primary, for blocking callers."""

    def __init__(self, places: Places, *, max_connections: int) -> None:
        super().__init__(places.seeds[0], max_connections=max_connections)
        self._side = ThreadSide(max_connections)
        self._sentinels = Sentinels(places, self._side)
        self.place = BEHIND_SENTINELS + places.place

    def _call(self, content: bytes, reply_count: int, read: Callable[[list[Any]], Outcome], until: float) -> Outcome:
        if self._sentinels.is_check_due():
            self._sentinels.begin_check()
            self._side.run_in_background(self._check_primary)
        return super()._call(content, reply_count, read, until)

    async def _check_primary(self) -> None:
        try:
            self.place = (await self._sentinels.primary(_ANSWER_S)).place
        except (ServerError, ConnectionLost):
            return  # the primary may be up all the same
        except RuntimeError:
            if not self._is_closed:
                raise

    def _find_address(self, until: float) -> Address:
        address = run_without_loop(self._sentinels.primary(max(0.001, min(_ANSWER_S, until - monotonic()))))
        self.place = address.place
        return address

    async def aclose(self) -> None:
        """Close idle connections now and the others after their call. Nothing can be called afterwards."""
        await super().aclose()
        await self._sentinels.aclose()
