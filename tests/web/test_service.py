"""The memories of a running service."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from redismem import Memory, Receipt
from redismem.store.store import Store
from redismem.web.service import opened


class Meeting:
    """Workers that stop only once the workers of all memories are stopping."""

    def __init__(self, barrier: asyncio.Barrier, _: Store) -> None:
        self._barrier = barrier

    async def start(self) -> None:
        """Start nothing."""

    async def stop(self) -> None:
        await self._barrier.wait()
        raise OSError("a fault of one of them leaves none of the others open")

    def appended(self, session_id: str, receipt: Receipt) -> None:
        """Ignore it."""


async def test_all_memories_close_at_once(caplog: pytest.LogCaptureFixture) -> None:
    barrier = asyncio.Barrier(3)
    with pytest.raises(OSError, match="a fault"):
        async with (
            asyncio.timeout(60),
            opened(
                ("a", "b", "c"),
                lambda name: Memory.connect("memory://", namespace=name, workers=partial(Meeting, barrier)),
            ) as memories,
        ):
            pass
    assert sorted(memories) == ["a", "b", "c"]
    logged = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert logged == ["another memory was not closed as it should be: OSError"] * 2
