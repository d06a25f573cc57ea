"""Fixtures for the tests of the service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import fastapi.openapi.utils
import pytest
from support.http_service import RunningService, Servers, serve_chat, serve_memory
from support.provider_server import ProviderServer

import redismem.web.openapi
from redismem import Memory
from redismem.inspection import checkup
from redismem.web.api import operations


@pytest.fixture(scope="session", autouse=True)
def one_document() -> Iterator[None]:
    """Build the OpenAPI document once: all services share it, and building it takes longer than most tests."""
    built: list[str] = []

    def document(**given: Any) -> Any:
        if not built:
            built.append(json.dumps(fastapi.openapi.utils.get_openapi(**given)))
        return json.loads(built[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redismem.web.openapi, "get_openapi", document)
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_checks() -> Iterator[None]:
    """Let `/readyz` and `/metrics` wait long for Redis: a busy machine needs more than their 1 and 3 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operations, "_CHECK_S", 20)
        patch.setattr(checkup, "SCRAPE_S", 20)
        yield


@pytest.fixture
async def http(memory: Memory) -> AsyncIterator[RunningService]:
    """A service without keys on the store."""
    async with serve_memory(memory) as running:
        yield running


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    """A model's provider that streams."""
    with ProviderServer() as running:
        yield running


@pytest.fixture
async def servers(redis_server: Any, namespace: str, provider: ProviderServer) -> AsyncIterator[Servers]:
    """Two servers on one Redis, whose chats ask the same provider."""
    connect = partial(Memory.connect, redis_server.url, namespace=namespace)
    async with (
        connect() as one,
        connect() as two,
        serve_chat(one, provider) as first,
        serve_chat(two, provider) as second,
    ):
        yield first, second
