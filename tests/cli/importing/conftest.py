"""Fixtures of imports: a plain client of Redis, a memory, and the command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.redis_server import RedisServer

from redismem import blocking


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=redis_server.port, protocol=2) as client:
        yield client


@pytest.fixture
def memory(redis_server: RedisServer, namespace: str) -> Iterator[blocking.Memory]:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        yield memory


@pytest.fixture
def run(command: Any, redis_options: list[str]) -> Callable[..., Any]:
    """Return a function that imports and returns the document that it prints."""

    def run(*words: object, code: int = 0) -> Any:
        ran = command("import", *words, *redis_options, "--json")
        assert ran.code == code, ran.err
        return ran.document | {"err": ran.err}

    return run
