"""Summarisers and models: chat and embedding models over HTTP, and the extractive summariser, which needs no model.

Any object with the `name` and the two methods of `Summarizer` can be used as a summariser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from redismem.errors import InvalidSettings
from redismem.models.draft import ChatModel, Draft, Summarizer

if TYPE_CHECKING:
    import httpx

    from redismem.models.embeddings import Embeddings

__all__ = ["ChatModel", "Draft", "Provider", "Summarizer", "open_embeddings", "open_extractive", "open_model"]

Provider = Literal["openai", "gemini", "anthropic"]
"""The names of the providers of chat models."""


def open_model(
    provider: Provider,
    model: str,
    api_key: str | None = None,
    *,
    base_url: str | None = None,
    allow_http: bool = False,
    timeout_s: float = 60,
    input_tokens: int = 24_000,
    max_summary_bytes: int = 32 * 1024,
    max_tokens_field: str = "max_completion_tokens",
    client: httpx.AsyncClient | None = None,
) -> ChatModel:
    """Open a chat model over HTTP.

    Args:
        base_url: The URL before the provider's paths (`…/v1`). A query is kept. With Azure's `?api-version=…`, the key
            is sent in Azure's header.
        allow_http: True permits a URL without TLS, for a model on the same machine.
        timeout_s: The limit for each whole request. A long transcript takes several requests.
        input_tokens: The limit of input tokens per request; a token counts as four bytes.
        max_tokens_field: The field of the answer's limit. Many OpenAI-compatible servers expect the older `max_tokens`.
        client: An HTTP client with its own proxies and certificates, which the caller closes. Without it, the proxies
            and certificates of the environment are not used.

    Raises:
        InvalidSettings: The provider, model, key or address cannot be used.
    """
    from redismem.models.anthropic import Anthropic
    from redismem.models.gemini import Gemini
    from redismem.models.http_model import HttpModel, Wire
    from redismem.models.openai import OpenAI, key_header_for

    openai = OpenAI(max_tokens_field, key_header=key_header_for(base_url))
    wires: dict[str, Wire] = {"openai": openai, "gemini": Gemini(), "anthropic": Anthropic()}
    if provider not in wires:
        raise InvalidSettings(f"the provider of a model must be one of {', '.join(wires)}")
    return HttpModel(
        wires[provider],
        model,
        api_key,
        base_url=base_url,
        allow_http=allow_http,
        timeout_s=timeout_s,
        input_tokens=input_tokens,
        max_summary_bytes=max_summary_bytes,
        client=client,
    )


def open_extractive(*, in_child: bool = False) -> Summarizer:
    """Open the offline summariser, which extracts sentences, names, numbers and open questions verbatim.

    Args:
        in_child: True writes the summaries in a child process at a lower priority, which starts with the first summary
            and ends with `aclose()` or this process. If it cannot be started, they are written in this process.
    """
    if in_child:
        from redismem.models.extractive.in_child import ExtractiveInChild

        return ExtractiveInChild()
    from redismem.models.extractive.summarizer import Extractive

    return Extractive()


def open_embeddings(
    provider: str,
    model: str,
    api_key: str | None = None,
    *,
    base_url: str | None = None,
    allow_http: bool = False,
    dimensions: int = 0,
    timeout_s: float = 30,
) -> Embeddings:
    """Open an embedding model over HTTP: `openai`, any server compatible with it, or `gemini`.

    `dimensions` is the requested length of a vector; 0 means the model's default. For the other arguments see
    `open_model`.

    Raises:
        InvalidSettings: The provider, model, key or address cannot be used.
    """
    from redismem.models.embeddings import Embeddings, open_wire

    wire = open_wire(provider, base_url)
    return Embeddings(
        wire,
        model,
        api_key,
        base_url=base_url,
        allow_http=allow_http,
        dimensions=dimensions,
        timeout_s=timeout_s,
    )
