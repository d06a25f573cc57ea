"""What the tests of the service share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.http_service import Served, served
from support.streaming_provider import StreamingProvider

from redismem import Memory


@pytest.fixture
async def http(memory: Memory) -> AsyncIterator[Served]:
    """The service on the store, for everybody on this machine."""
    async with served(memory) as running:
        yield running


@pytest.fixture
async def provider() -> AsyncIterator[StreamingProvider]:
    """A model's provider that streams."""
    async with StreamingProvider() as running:
        yield running
