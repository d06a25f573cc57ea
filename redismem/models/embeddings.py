"""Embed texts with a provider's model: OpenAI, servers compatible with it, and Gemini."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote

from redismem.errors import InvalidSettings
from redismem.models.base_url import split_base_url
from redismem.models.gemini import Gemini
from redismem.models.http import Address, Endpoint, model_error, normalize_key
from redismem.models.openai import OpenAI, key_header_for

MAX_REPLY_BYTES = 2 * 1024 * 1024
"""The longest accepted answer. 8 vectors of 4,096 dimensions in full precision are shorter."""


class EmbeddingsWire(Address, Protocol):
    """A provider's format of embedding requests and answers. No I/O."""

    def body(self, model: str, texts: Sequence[str], dimensions: int) -> dict[str, Any]: ...

    def answer(self, reply: Any) -> list[Any]:
        """Return the vectors, in the order of the texts. Raises ModelFailed, KeyError, TypeError."""


class OpenAIEmbeddings:
    """OpenAI's `/embeddings`, and servers compatible with it."""

    def __init__(self, key_header: str | None) -> None:
        self._chat = OpenAI(key_header=key_header)
        self.name = self._chat.name
        self.base_url = self._chat.base_url
        self.headers = self._chat.headers

    def path(self, model: str) -> str:
        del model
        return "/embeddings"

    def body(self, model: str, texts: Sequence[str], dimensions: int) -> dict[str, Any]:
        request: dict[str, Any] = {"model": model, "input": list(texts), "encoding_format": "float"}
        return request | ({"dimensions": dimensions} if dimensions else {})

    def answer(self, reply: Any) -> list[Any]:
        places = {each["index"]: each["embedding"] for each in reply["data"]}
        return [places[at] for at in range(len(reply["data"]))]


class GeminiEmbeddings:
    """Gemini's `batchEmbedContents`."""

    base_url = "https://generativelanguage.googleapis.com/v1beta"

    def __init__(self) -> None:
        self._chat = Gemini()
        self.name = self._chat.name
        self.headers = self._chat.headers

    def path(self, model: str) -> str:
        return f"/models/{quote(model, safe='')}:batchEmbedContents"

    def body(self, model: str, texts: Sequence[str], dimensions: int) -> dict[str, Any]:
        more = {"outputDimensionality": dimensions} if dimensions else {}
        return {
            "requests": [{"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **more} for text in texts]
        }

    def answer(self, reply: Any) -> list[Any]:
        return [each["values"] for each in reply["embeddings"]]


class Embeddings:
    """An embedding model behind a provider's HTTP API."""

    def __init__(
        self,
        wire: EmbeddingsWire,
        model: str,
        api_key: str | None,
        *,
        base_url: str | None,
        allow_http: bool,
        dimensions: int,
        timeout_s: float,
    ) -> None:
        """Raises InvalidSettings."""
        if not model or not model.isprintable():
            raise InvalidSettings("a model needs its name; there is no default")
        key = normalize_key(api_key)
        base, query = split_base_url(wire.base_url if base_url is None else base_url, allow_http)
        url, headers = base + wire.path(model) + query, wire.headers(key) if key else {}
        self._wire = wire
        self._model = model
        self._dimensions = dimensions
        self._endpoint = Endpoint(wire.name, url, headers, timeout_s, max_reply_bytes=MAX_REPLY_BYTES)
        self.name = f"{wire.name}/{model}" + (f"/{dimensions}" if dimensions else "")

    def __repr__(self) -> str:
        return f"<{self.name}>"

    async def __call__(self, texts: list[str]) -> list[Any]:
        """Return one vector per text, as the provider sent them. Raises ModelFailed."""
        reply = await self._endpoint.ask(partial(self._wire.body, self._model, texts, self._dimensions))
        try:
            return self._wire.answer(reply)
        except (KeyError, TypeError, ValueError):
            raise model_error(f"{self._wire.name} answered without vectors", permanent=True) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._endpoint.aclose()


def open_wire(provider: str, base_url: str | None) -> EmbeddingsWire:
    """Return the provider's embedding format. Raises InvalidSettings if it has no embeddings."""
    if provider == "openai":
        return OpenAIEmbeddings(key_header_for(base_url))
    if provider == "gemini":
        return GeminiEmbeddings()
    raise InvalidSettings("embed must be openai:MODEL, gemini:MODEL, wordllama or an async callable")
