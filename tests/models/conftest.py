"""The provider server of these tests, and a model of each provider that asks it."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import pytest
from support.provider_server import ProviderServer

from redismem.models import ChatModel, http, open_model, streaming

KEY = "canary-key"
OpenModel = Callable[..., contextlib.AbstractAsyncContextManager[ChatModel]]


@pytest.fixture(scope="session", autouse=True)
def patient_connections() -> Iterator[None]:
    """Let connections take a minute: five seconds, as models allow, may be too few on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (http, streaming):
            patch.setattr(module, "CONNECT_S", 60.0)
        yield


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as server:
        yield server


@pytest.fixture(params=["openai", "gemini", "anthropic"])
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_chat_model(server: ProviderServer, provider: str) -> OpenModel:
    @contextlib.asynccontextmanager
    async def open_chat(**options: Any) -> AsyncIterator[ChatModel]:
        where = {"base_url": server.base_url, "allow_http": True}
        model = open_model(provider, "some-model-1.5", KEY, **where | options)  # type: ignore[arg-type]
        try:
            yield model
        finally:
            await model.aclose()

    return open_chat


@pytest.fixture(scope="session")
def tls() -> ssl.SSLContext:
    """Loading the certificates takes longer than most of these tests."""
    return httpx.create_ssl_context(trust_env=False)


@pytest.fixture
async def model(open_chat_model: OpenModel, tls: ssl.SSLContext) -> AsyncIterator[ChatModel]:
    """A model over the tests' client; `open_chat_model()` returns one over its own client."""
    async with httpx.AsyncClient(verify=tls, trust_env=False) as client, open_chat_model(client=client) as model:
        yield model
