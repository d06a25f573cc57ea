"""The session of the tests of turns, in two memories."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redismem import Memory, Session


@pytest.fixture
async def other(redis_server: Any, namespace: str) -> AsyncIterator[Session]:
    """The session of the test, as another process would have it: over a connection of its own."""
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory.session("user-42")


@pytest.fixture
async def own(redis_server: Any, namespace: str) -> AsyncIterator[Session]:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory.session("user-42")
