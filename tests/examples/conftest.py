"""The places that an example runs against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.example_processes import Places
from support.provider_server import ProviderServer
from support.redis_server import RedisServer


@pytest.fixture
def places(redis_server: RedisServer, namespace: str) -> Iterator[Places]:
    """The shared Redis, a fresh namespace and a scripted provider."""
    with ProviderServer() as provider:
        yield Places(redis_server, namespace, provider)
