"""Vectors over HTTP, from a server that speaks like OpenAI and Gemini, and one that misbehaves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.embedders import vector
from support.provider_server import ProviderServer

from redismem import InvalidSettings, Settings
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.models import open_embeddings
from redismem.recall.embedder import TEXT_CHARS, TEXTS_LIMIT, Embedder, open_embedder
from redismem.recall.nearest import quantize

MODELS = {"openai": "text-embedding-3-small", "gemini": "gemini-embedding-001"}


@pytest.fixture(params=MODELS)
def provider(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextlib.asynccontextmanager
async def connect_embedder(provider: str, server: ProviderServer, **changed: Any) -> AsyncIterator[Embedder]:
    given: dict[str, Any] = {
        "embed_base_url": server.base_url,
        "model_allow_http": True,
        "embed_api_key": "canary-key",
        "embed_timeout_s": 20,
    }
    embedder = open_embedder(f"{provider}:{MODELS[provider]}", Settings(**given | changed))
    try:
        yield embedder
    finally:
        await embedder.aclose()


async def test_a_vector_for_each_text(server: ProviderServer, provider: str) -> None:
    texts = [f"text {number} \ud83d" for number in range(TEXTS_LIMIT + 3)]
    async with connect_embedder(provider, server) as embedder:
        assert embedder.name == f"{provider}/{MODELS[provider]}"
        dimensions, rows = await embedder.rows([*texts, "x" * 2 * TEXT_CHARS])
    said = [text.replace("\ud83d", "?") for text in texts]
    assert (dimensions, rows[:-1]) == quantize([vector(text, 32) for text in said], len(texts))
    assert [len(asked.texts or ()) for asked in server.asked] == [TEXTS_LIMIT, 4]
    last = server.asked[-1]
    assert last.texts is not None
    assert len(last.texts[-1]) == TEXT_CHARS
    key = "authorization" if provider == "openai" else "x-goog-api-key"
    assert last.headers[key].endswith("canary-key")
    assert "canary-key" not in last.path


async def test_fewer_dimensions_are_asked_for_and_named(server: ProviderServer, provider: str) -> None:
    async with connect_embedder(provider, server, embed_dimensions=32) as embedder:
        assert await embedder.question("text")
        assert embedder.name.endswith("/32")
    (asked,) = server.asked
    body = asked.body if provider == "openai" else asked.body["requests"][0]
    assert body["dimensions" if provider == "openai" else "outputDimensionality"] == 32


@pytest.mark.parametrize("mode", ["few", "many", "ragged", "nan", "words", "empty", "raw", "400"])
async def test_what_is_no_vector_each_is_refused(server: ProviderServer, provider: str, mode: str) -> None:
    server.mode, server.raw = mode, b'{"data": [7], "embeddings": 7}'
    async with connect_embedder(provider, server) as embedder:
        with pytest.raises(ModelFailed) as refused:
            await embedder.rows(["canary-text", "another"])
        assert not isinstance(refused.value, ProviderUnavailable)
        assert "canary" not in str(refused.value) + refused.value.reason
        server.mode = "ok"
        assert await embedder.rows(["text"]), "another is not to blame"


@pytest.mark.parametrize("mode", ["500", "401", "drop", "hang"])
async def test_who_answers_nobody_is_not_waited_for_again_at_once(
    server: ProviderServer, provider: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.mode = mode
    now_s = 0.0
    model = open_embeddings(provider, "model", "key", base_url=server.base_url, allow_http=True, timeout_s=20)
    embedder = Embedder(model, model.name, 0.05 if mode == "hang" else 20, model.aclose, lambda: now_s)
    with pytest.raises(ProviderUnavailable):
        await embedder.question("canary-text")
    assert await embedder.question("canary-text") is None
    assert not embedder.is_paused, "it may still be fit for the work"
    asked_count = len(server.asked)
    now_s = 1.5
    with pytest.raises(ProviderUnavailable):
        await embedder.question("canary-text")
    now_s = 3.4
    assert await embedder.question("canary-text") is None, "longer each time"
    assert len(server.asked) <= asked_count + 1
    assert "canary-text" not in caplog.text
    assert len([record for record in caplog.records if "is paused for" in record.message]) == 2
    server.release()
    server.mode, now_s = "ok", 3.6
    embedder._question_timeout_s = 20
    assert await embedder.question("text")
    await embedder.aclose()


def test_what_cannot_be_asked_is_refused_at_once() -> None:
    for wanted in ("anthropic:model", "openai", "openai:", "nobody:model", 7):
        with pytest.raises(InvalidSettings):
            open_embedder(wanted, Settings())  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="https"):
        open_embedder("openai:model", Settings(embed_base_url="http://127.0.0.1:1/v1"))


async def test_one_provider_at_one_address_has_one_key(server: ProviderServer) -> None:
    both: dict[str, Any] = {
        "model_provider": "openai",
        "model": "m",
        "model_api_key": "canary-key",
        "model_allow_http": True,
    }
    embedder = open_embedder("openai:model", Settings(model_base_url=server.base_url, **both))
    assert await embedder.question("text") is not None
    await embedder.aclose()
    assert server.asked[-1].headers["authorization"] == "Bearer canary-key"
    embedder = open_embedder("openai:model", Settings(embed_base_url=server.base_url, **both))
    assert await embedder.question("text") is not None
    await embedder.aclose()
    assert "authorization" not in server.asked[-1].headers, "a key goes to no other address than its own"
