"""Models that stream their answers, and streams that fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from support.provider_answers import PIECES, TEXT
from support.provider_server import ProviderServer

from redismem.errors import InvalidSettings, ModelFailed, ProviderUnavailable
from redismem.models.streaming import StreamingModel, open_streaming

PROVIDERS: list[Any] = ["openai", "anthropic", "gemini"]
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is it?"}]


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as running:
        yield running


@pytest.fixture(params=PROVIDERS)
async def model(request: pytest.FixtureRequest, provider: ProviderServer) -> AsyncIterator[StreamingModel]:
    found = open_streaming(
        request.param, "some-model", "canary-key", base_url=provider.base_url, allow_http=True, silence_s=30
    )
    yield found
    await found.aclose()


async def read_stream(model: StreamingModel, said: list[str] | None = None) -> list[str]:
    """Read the whole stream; `said` holds the pieces received before a failure."""
    found = [] if said is None else said
    async for text in model.stream(ASKED, max_tokens=100):
        assert isinstance(text, str)
        found.append(text)
    return found


async def test_it_is_heard_piece_by_piece(model: StreamingModel, provider: ProviderServer) -> None:
    assert "".join(await read_stream(model)) == TEXT
    asked = str(provider.bodies[0])
    assert "Where is it?" in asked
    assert "Be brief." in asked
    assert "canary-key" not in provider.asked[0].path + asked


async def test_pieces_come_before_the_end(model: StreamingModel, provider: ProviderServer) -> None:
    provider.mode = "hang"
    stream = model.stream(ASKED, max_tokens=100)
    assert [await anext(stream), await anext(stream)] == PIECES[:2]
    provider.release()
    assert "".join([str(text) async for text in stream]) == "".join(PIECES[2:])


@pytest.mark.parametrize("mode", ["break", "cut", "error"])
async def test_one_that_breaks_off_says_so_after_what_it_said(
    model: StreamingModel, provider: ProviderServer, mode: str
) -> None:
    provider.mode = mode
    said: list[str] = []
    with pytest.raises(ModelFailed, match="broke off") as failed:
        await read_stream(model, said)
    assert said == (PIECES if mode == "cut" else PIECES[:2])
    assert "canary" not in str(failed.value)


async def test_one_that_reaches_the_limit_says_so_after_what_it_said(
    model: StreamingModel, provider: ProviderServer
) -> None:
    provider.mode = "limit"
    said: list[str] = []
    with pytest.raises(ModelFailed, match=r"stopped at the limit of 100 tokens$"):
        await read_stream(model, said)
    assert said == PIECES
    provider.pieces = []  # all of them were spent on reasoning
    with pytest.raises(ModelFailed, match="limit of 100 tokens"):
        await read_stream(model)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("500", "answered 500"),
        ("401", "answered 401"),
        ("refused", "filtered|refused|blocked"),
        ("empty", "empty text"),
        ("garbage", "other than JSON"),
    ],
)
async def test_one_that_gives_nothing_fails(
    model: StreamingModel, provider: ProviderServer, mode: str, why: str
) -> None:
    provider.mode = mode
    with pytest.raises(ModelFailed, match=why) as failed:
        await read_stream(model)
    assert "canary" not in str(failed.value)


@pytest.mark.parametrize("limits", [{"silence_s": 0.1}, {"total_s": 0.1}])
async def test_one_that_is_silent_is_given_up(provider: ProviderServer, limits: dict[str, Any]) -> None:
    provider.mode = "silent"
    model = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True, **limits)
    with pytest.raises(ModelFailed):
        await read_stream(model)
    await model.aclose()


async def test_one_that_is_not_there_fails() -> None:
    model = open_streaming("openai", "m", base_url="http://127.0.0.1:1", allow_http=True)
    with pytest.raises(ProviderUnavailable, match="did not answer"):
        await read_stream(model)
    await model.aclose()


@pytest.mark.parametrize(
    ("name", "query", "path"),
    [
        ("openai", "?api-version=2026-10-21", "/chat/completions?api-version=2026-10-21"),
        ("gemini", "?x=1", "/models/m:streamGenerateContent?x=1&alt=sse"),
        ("gemini", "", "/models/m:streamGenerateContent?alt=sse"),
    ],
)
async def test_the_query_of_an_address_is_kept(provider: ProviderServer, name: Any, query: str, path: str) -> None:
    model = open_streaming(name, "m", "canary-key", base_url=provider.base_url + query, allow_http=True)
    assert "".join(await read_stream(model)) == TEXT
    (asked,) = provider.asked
    assert asked.path == f"/v1{path}"
    azure = "api-version" in query
    assert ("canary-key" in str(asked.headers), "api-key" in asked.headers) == (True, azure)
    await model.aclose()


@pytest.mark.parametrize("wrong", [("other", "m", {}), ("openai", "", {}), ("openai", "m", {"base_url": "http://x"})])
def test_settings_that_cannot_be_are_refused(wrong: Any) -> None:
    provider, name, options = wrong
    with pytest.raises(InvalidSettings):
        open_streaming(provider, name, **options)


async def test_values_without_json_are_refused(provider: ProviderServer) -> None:
    model = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True)
    with pytest.raises(ModelFailed, match="cannot represent"):
        async for _ in model.stream([{"role": "user", "content": float("inf")}], max_tokens=10):
            pass
    await model.aclose()
