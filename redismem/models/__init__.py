"""What writes summaries: a model over HTTP, or the extractive summariser, which needs nothing.

A summariser of one's own is any object with a `name` and the two methods of `Summarizer`.
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
    """A model over HTTP.

    `base_url` ends where the provider's paths begin (`…/v1`); a query, such as Azure's `?api-version=…`, is kept, and
    with that one the key goes into Azure's header. `allow_http` permits one without TLS, for a model on one's own
    machine. `timeout_s` is for one request as a whole; a long transcript takes several, each of them with at
    most `input_tokens` (estimated: a quarter of the bytes). `max_tokens_field`: many OpenAI-compatible servers want the
    older `max_tokens`. Proxies and certificates of the environment are not used: a `client` may bring its own; it is
    not closed here.

    Raises InvalidSettings.
    """
    from redismem.models.anthropic import Anthropic
    from redismem.models.gemini import Gemini
    from redismem.models.http_model import HttpModel, Wire
    from redismem.models.openai import OpenAI, key_header_for

    openai = OpenAI(max_tokens_field, key_header=key_header_for(base_url))
    wires: dict[str, Wire] = {"openai": openai, "gemini": Gemini(), "anthropic": Anthropic()}
    if provider not in wires:
        raise InvalidSettings(f"the provider of a model is one of {', '.join(wires)}")
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


def open_extractive() -> Summarizer:
    """The summariser that works offline: sentences, names, numbers and open questions as they were said."""
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
    """A model over HTTP that gives vectors of texts: `openai`, or what speaks as it does, or `gemini`.

    `dimensions`: how many a vector is asked to have; 0: as many as the model gives by itself. The rest as `open_model`.
    Raises InvalidSettings.
    """
    from redismem.models.embeddings import Embeddings, wire_of

    wire = wire_of(provider, base_url)
    return Embeddings(
        wire,
        model,
        api_key,
        base_url=base_url,
        allow_http=allow_http,
        dimensions=dimensions,
        timeout_s=timeout_s,
    )
