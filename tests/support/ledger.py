"""Writers with a session each: what was acknowledged to them is written down, and held against what is there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple

from redismem import Memory, Settings, StoreUnavailable, Unconfirmed
from redismem.inspection.check import check
from support.checks import until
from support.fault_rows import Row

_PACE_S = 0.05


class Append(NamedTuple):
    """One that was acknowledged."""

    session_id: str
    number: int
    begun_s: float
    ended_s: float


class Ledger:
    """What is not acknowledged is sent again with its id, until it is."""

    def __init__(self, memory: Memory, names: Sequence[str]) -> None:
        self._memory = memory
        self._names = names
        self._is_over = False
        self.acked: list[Append] = []

    async def write(self, name: str) -> None:
        session, number, begun_s = self._memory.session(name), 0, time.monotonic()
        while not self._is_over:
            try:
                receipt = await session.append({"role": "user", "content": str(number)}, id=str(number))
            except (StoreUnavailable, Unconfirmed):
                await asyncio.sleep(_PACE_S)  # whoever is refused at once tries again soon
                continue
            assert receipt.replicas, "acknowledged, and no replica has it"
            self.acked.append(Append(name, number, begun_s, time.monotonic()))
            await asyncio.sleep(_PACE_S)
            number, begun_s = number + 1, time.monotonic()

    def since(self, begun_s: float, names: Collection[str]) -> list[Append]:
        """Appends to these sessions that began after that."""
        return [append for append in self.acked if append.begun_s > begun_s and append.session_id in names]

    async def until_more(self, names: Collection[str], count: int = 10) -> None:
        """Until so many more are acknowledged in each of these sessions that begin from now on."""
        begun_s = time.monotonic()

        async def reached() -> bool:
            found = [append.session_id for append in self.since(begun_s, names)]
            return all(found.count(name) >= count for name in names)

        await until(reached, 120, every_s=0.05)

    def end(self) -> None:
        """Each writer makes its last append."""
        self._is_over = True

    async def check(self) -> None:
        """All that was acknowledged is there, once and in order; nothing is torn."""
        for name in self._names:
            messages = await self._memory.session(name).messages(include_originals=True)
            there = [int(str(message.content)) for message in messages]
            acked = [append.number for append in self.acked if append.session_id == name]
            # The last one may have been made without anybody having been told.
            assert there in (acked, [*acked, len(acked)]), f"{name}: lost, doubled or overtaken"
        assert [violation async for violation in check(self._memory.store)] == [], "torn"

    def row(self, begun_s: float, ended_s: float, hit: Collection[str]) -> Row:
        """What a fault came to for those that were acknowledged meanwhile."""
        during = [append for append in self.acked if append.begun_s < ended_s and append.ended_s > begun_s]
        waited_s = {True: 0.0, False: 0.0}
        for append in during:
            is_hit = append.session_id in hit
            waited_s[is_hit] = max(waited_s[is_hit], append.ended_s - append.begun_s)
        return Row(1, len(during), waited_s[True], waited_s[False])


@contextlib.asynccontextmanager
async def writing(url: str, namespace: str, settings: Settings, names: Sequence[str]) -> AsyncIterator[Ledger]:
    """A writer for each of the names, over one memory; in the end all is checked."""
    async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
        ledger = Ledger(memory, names)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(ledger.write(name))
            yield ledger
            ledger.end()
        await ledger.check()
