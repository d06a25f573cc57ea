"""An embedded store behind a transport that the tests of outages can interrupt."""

from __future__ import annotations

from collections.abc import AsyncIterator

import fakeredis
import pytest
from support.faulty import Faulty, open_memory

from redismem import Memory


@pytest.fixture
async def faulty() -> AsyncIterator[Faulty]:
    """An empty embedded store."""
    faulty = Faulty(fakeredis.FakeServer())
    yield faulty
    await faulty.aclose()


@pytest.fixture
async def degradable(faulty: Faulty, namespace: str) -> AsyncIterator[Memory]:
    """A memory with the fallback on that store."""
    async with open_memory(faulty, namespace) as memory:
        yield memory
        faulty.heal()  # closing would wait for a store that is down
