"""Fixtures of the tests of the scripts."""

from __future__ import annotations

from typing import Any

import pytest
import redis.asyncio
from support.raw_scripts import Scripts


@pytest.fixture
def lua(raw: Any, namespace: str) -> Scripts:
    return Scripts(raw, namespace)


@pytest.fixture
async def server_lua(redis_server: Any, namespace: str) -> Any:
    """The scripts on a real server, for what the embedded store does not have."""
    async with redis.asyncio.Redis(port=redis_server.port) as client:
        yield Scripts(client, namespace)
