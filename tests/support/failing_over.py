"""Several who append while a primary is lost, and what must be there of theirs then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

from redismem import StoreUnavailable
from support.callers import Caller

AHEAD_COUNT = 3
"""How many appends a writer may be ahead of the slowest and still make one more.

So of three writers two make at most 14 appends behind the third's own: a session remembers the last 16.
"""


async def append_until_acked(caller: Caller, name: str, text: str) -> None:
    """Whose call was given up sends it again with its id, as the error says."""
    while True:
        try:
            await caller.append(name, text, id=text)
            return
        except StoreUnavailable:
            continue


class Writers:
    """Each appends to these sessions in turn, until it is told to stop."""

    def __init__(self, callers: Sequence[Caller], names: list[str]) -> None:
        self.acked: list[Counter[str]] = [Counter() for _ in callers]
        self._callers = callers
        self._names = names
        self._stopping = False
        self._changed = asyncio.Condition()

    def begin(self) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._write(number)) for number in range(len(self._callers))]

    async def _write(self, number: int) -> None:
        own = self.acked[number]
        while not self._stopping:
            for name in self._names:
                async with self._changed:
                    await self._changed.wait_for(partial(self._may_go_on, own, name))
                await append_until_acked(self._callers[number], name, f"{number}.{own[name]}")
                own[name] += 1
                async with self._changed:
                    self._changed.notify_all()

    def _may_go_on(self, own: Counter[str], name: str) -> bool:
        """Nobody gets so far ahead that an id is forgotten while another's call waits for the failover."""
        return self._stopping or own[name] <= min(each[name] for each in self.acked) + AHEAD_COUNT

    def least(self) -> int:
        return min(own[name] for own in self.acked for name in self._names)

    async def stop(self) -> None:
        self._stopping = True
        async with self._changed:
            self._changed.notify_all()


def check_texts(texts: list[str], acked: list[int] | None) -> None:
    """Each once, those of a writer in their order. `acked`: how many of each writer's must be there."""
    assert max(Counter(texts).values()) == 1, "doubled"
    for number in range(3):
        own = [int(text.partition(".")[2]) for text in texts if text.startswith(f"{number}.")]
        assert own == sorted(own), "overtaken"
        if acked is not None:
            assert own == list(range(acked[number])), "lost on a node that nothing happened to"
