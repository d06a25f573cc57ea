"""The embedder: calls a user's callable or a provider's model, checks the vectors, and pauses after failures.

Without an embedder, neither this module nor numpy is imported. numpy is an extra, so it is imported on use.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic

from redismem.concurrency.callbacks import run_callback_within
from redismem.errors import InvalidSettings, ModelFailed, ProviderUnavailable
from redismem.events import facts
from redismem.models import open_embeddings
from redismem.originals.vectors import mark_of
from redismem.settings.extras import MissingExtra, require_extra
from redismem.settings.settings import Settings

log = logging.getLogger("redismem")

Embed = Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]]
"""An async callable that returns one vector per text, in order."""

TEXTS_LIMIT = 8
"""The number of texts per request: at 1,536 dimensions, reading the answer takes the event loop 4 ms."""
TEXT_CHARS = 6_000
"""The number of characters of a message to embed."""
_TIMEOUT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_LONGEST_RETRY_AFTER_S = 3_600.0


class _Pause:
    """A pause after an embedder's failures, with exponential backoff."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failures_count = 0
        self._until_s = -math.inf

    @property
    def is_on(self) -> bool:
        return self._clock_s() < self._until_s

    def record_failure(self, name: str, error: ProviderUnavailable) -> None:
        if self.is_on:
            return  # a concurrent call has started this pause
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._failures_count)
        pause_s = max(pause_s, min(error.retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S))
        self._failures_count = min(self._failures_count + 1, 30)
        self._until_s = self._clock_s() + pause_s
        extra = facts(op="embed", reason=error.reason, backoff_ms=int(pause_s * 1000))
        log.warning("embedder %s is paused for %.0f s: %s", name, pause_s, error.reason, extra=extra)

    def record_success(self, name: str) -> None:
        if self._failures_count:
            log.info("embedder %s works again", name, extra=facts(op="embed", outcome="ok"))
        self._failures_count, self._until_s = 0, -math.inf


class Embedder:
    """An embedder over a callable or a provider's model, for any number of concurrent tasks of one event loop."""

    def __init__(
        self,
        embed: Embed,
        name: str,
        question_timeout_s: float,
        aclose: Callable[[], Awaitable[None]] | None = None,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        self.mark = mark_of(name)
        self.dimensions = 0
        """The dimensions of the last vectors; 0 before the first."""
        self._embed = embed
        self._question_timeout_s = question_timeout_s
        self._aclose = aclose
        # An embedder that is too slow for questions may still be fast enough for messages.
        self._questions, self._work = _Pause(clock_s), _Pause(clock_s)

    async def aclose(self) -> None:
        """Close the connections of a provider's model. A user's callable is left open."""
        if self._aclose is not None:
            await self._aclose()

    @property
    def is_paused(self) -> bool:
        """True while the embedder is not called for messages because it has failed."""
        return self._work.is_on

    async def question(self, text: str) -> bytes | None:
        """Embed a question and return its row; `None` while the embedder is paused, or if the text is blank.

        Raises ModelFailed, also after a timeout.
        """
        if self._questions.is_on or not text.strip():
            return None
        _, rows = await self._embed_rows([text[:TEXT_CHARS]], self._question_timeout_s, self._questions)
        return rows[0]

    async def rows(self, texts: Sequence[str]) -> tuple[int, list[bytes]]:
        """Embed at least one text, and return the dimensions and one row per text. Raise ModelFailed."""
        rows = list[bytes]()
        sizes = set[int]()
        for at in range(0, len(texts), TEXTS_LIMIT):
            batch = [text[:TEXT_CHARS] for text in texts[at : at + TEXTS_LIMIT]]
            size, batch_rows = await self._embed_rows(batch, _TIMEOUT_S, self._work)
            sizes.add(size)
            rows += batch_rows
        if len(sizes) > 1:
            reason = "the embedder returned vectors of two sizes"
            raise ModelFailed(reason, reason=reason, permanent=True)
        return sizes.pop(), rows

    async def _embed_rows(self, texts: list[str], timeout_s: float, pause: _Pause) -> tuple[int, list[bytes]]:
        try:
            vectors = await self._call(texts, timeout_s)
        except ProviderUnavailable as error:
            pause.record_failure(self.name, error)
            raise
        from redismem.recall.nearest import quantize  # imports numpy

        pause.record_success(self.name)
        self.dimensions, rows = quantize(vectors, len(texts))
        return self.dimensions, rows

    async def _call(self, texts: list[str], timeout_s: float) -> object:
        late = self._make_error(f"did not answer within {timeout_s:g} s")
        try:
            return await run_callback_within(timeout_s, late, partial(self._embed, texts))
        except ModelFailed:
            raise
        except Exception as error:  # a user's callable may raise anything
            raise self._make_error(f"failed with {type(error).__name__}") from error

    def _make_error(self, failure: str) -> ProviderUnavailable:
        reason = f"{self.name} {failure}"
        return ProviderUnavailable(reason, reason=reason, perhaps_request=True)


def open_embedder(embed: Embed | str, settings: Settings) -> Embedder:
    """Return an embedder that calls this callable, or a model: `openai:MODEL`, `gemini:MODEL` or `wordllama`.

    Raises InvalidSettings.
    """
    extra = "wordllama" if embed == "wordllama" else "embeddings"
    try:
        require_extra(extra, "embed")
    except MissingExtra as missing:
        raise InvalidSettings(str(missing)) from missing
    timeout_s = settings.embed_timeout_s
    if embed == "wordllama":
        from redismem.recall.wordllama import WordLlama

        embed = WordLlama(settings.embed_dimensions)
    if not isinstance(embed, str):
        if not callable(embed):
            raise InvalidSettings(
                f"embed must be an async callable, provider:model or wordllama, not {type(embed).__name__}"
            )
        return Embedder(embed, _name_of(embed), timeout_s)
    provider, _, model = embed.partition(":")
    key, base_url = settings.embed_api_key, settings.embed_base_url
    if provider == settings.model_provider and base_url is None:
        # The provider of the chat model has one address and one key.
        key, base_url = key or settings.model_api_key, settings.model_base_url
    embeddings = open_embeddings(
        provider,
        model,
        None if key is None else key.get_secret_value(),
        base_url=base_url,
        allow_http=settings.model_allow_http,
        dimensions=settings.embed_dimensions,
        timeout_s=_TIMEOUT_S,
    )
    return Embedder(embeddings, embeddings.name, timeout_s, embeddings.aclose)


def _name_of(embed: object) -> str:
    """Return the callable's name, which is stored with its vectors."""
    name = getattr(embed, "name", None) or getattr(embed, "__qualname__", None) or type(embed).__qualname__
    return str(name)
