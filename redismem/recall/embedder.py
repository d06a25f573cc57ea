"""Who makes vectors of texts: a callable of the user's own, or a provider's model. What it gives is checked here.

Neither this nor numpy is imported if there is no embedder.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic

from redismem.concurrency.callbacks import awaited_within
from redismem.errors import InvalidSettings, ModelFailed, ProviderUnavailable
from redismem.events import facts
from redismem.models import open_embeddings
from redismem.originals.vectors import mark_of
from redismem.settings.settings import Settings

try:
    from redismem.recall.nearest import checked_rows
except ModuleNotFoundError as missing:
    if missing.name != "numpy":
        raise
    raise InvalidSettings("embed needs numpy: pip install 'redismem[embeddings]'") from missing

log = logging.getLogger("redismem")

Embed = Callable[[list[str]], Awaitable[Sequence[Sequence[float]]]]
"""Gives a vector for each of these texts, in their order."""

TEXTS_LIMIT = 8
"""Texts that are given at once: to read the answer, at 1,536 dimensions, takes the event loop 4 ms."""
TEXT_CHARS = 6_000
"""What of a message is given."""
_TIMEOUT_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_LONGEST_RETRY_AFTER_S = 3_600.0


class _Pause:
    """Nobody waits for an embedder that has just failed: for longer each time."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failures_count = 0
        self._until_s = -math.inf

    @property
    def is_on(self) -> bool:
        return self._clock_s() < self._until_s

    def failed(self, name: str, error: ProviderUnavailable) -> None:
        if self.is_on:
            return  # one of several that were under way
        pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0**self._failures_count)
        pause_s = max(pause_s, min(error.retry_after_s or 0.0, _LONGEST_RETRY_AFTER_S))
        self._failures_count = min(self._failures_count + 1, 30)
        self._until_s = self._clock_s() + pause_s
        known = facts(op="embed", reason=error.reason, backoff_ms=int(pause_s * 1000))
        log.warning("%s is asked for no vectors for %.0f s: %s", name, pause_s, error.reason, extra=known)

    def ended(self, name: str) -> None:
        if self._failures_count:
            log.info("%s gives vectors again", name, extra=facts(op="embed", outcome="ok"))
        self._failures_count, self._until_s = 0, -math.inf


class Embedder:
    """Makes vectors of texts, by a callable or a provider's model. Fit for any number of tasks of one event loop."""

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
        """How many dimensions the last vectors had that it gave; 0: it has given none yet."""
        self._embed = embed
        self._question_timeout_s = question_timeout_s
        self._aclose = aclose
        # Who is too slow for a question may still be fit for the work.
        self._questions, self._work = _Pause(clock_s), _Pause(clock_s)

    async def aclose(self) -> None:
        """Closes the connections of a provider's model; a callable is the caller's."""
        if self._aclose is not None:
            await self._aclose()

    @property
    def is_paused(self) -> bool:
        """Whether it has just failed with messages: they wait."""
        return self._work.is_on

    async def question(self, text: str) -> bytes | None:
        """The row of a question; None if nobody is to wait for it now. Raises ModelFailed, also if it is late."""
        if self._questions.is_on or not text.strip():
            return None
        _, rows = await self._checked([text[:TEXT_CHARS]], self._question_timeout_s, self._questions)
        return rows[0]

    async def rows(self, texts: Sequence[str]) -> tuple[int, list[bytes]]:
        """Dimensions, and a row for each of these texts, 1 at least. Raises ModelFailed."""
        found = list[bytes]()
        sizes = set[int]()
        for at in range(0, len(texts), TEXTS_LIMIT):
            part = [text[:TEXT_CHARS] for text in texts[at : at + TEXTS_LIMIT]]
            size, rows = await self._checked(part, _TIMEOUT_S, self._work)
            sizes.add(size)
            found += rows
        if len(sizes) > 1:
            reason = "the embedder gave vectors of two sizes"
            raise ModelFailed(reason, reason=reason, permanent=True)
        return sizes.pop(), found

    async def _checked(self, texts: list[str], timeout_s: float, pause: _Pause) -> tuple[int, list[bytes]]:
        try:
            given = await self._given(texts, timeout_s)
        except ProviderUnavailable as error:
            pause.failed(self.name, error)
            raise
        pause.ended(self.name)
        self.dimensions, rows = checked_rows(given, len(texts))
        return self.dimensions, rows

    async def _given(self, texts: list[str], timeout_s: float) -> object:
        late = self._unavailable(f"did not answer within {timeout_s:g} s")
        try:
            return await awaited_within(timeout_s, late, partial(self._embed, texts))
        except ModelFailed:
            raise
        except Exception as error:  # whatever a callable of the caller's own raises
            raise self._unavailable(f"failed with {type(error).__name__}") from error

    def _unavailable(self, what: str) -> ProviderUnavailable:
        reason = f"{self.name} {what}"
        return ProviderUnavailable(reason, reason=reason, perhaps_request=True)


def open_embedder(embed: Embed | str, settings: Settings) -> Embedder:
    """What `embed` stands for: a callable, or the name of a provider's model, such as `openai:text-embedding-3-small`.

    Raises InvalidSettings.
    """
    timeout_s = settings.embed_timeout_s
    if not isinstance(embed, str):
        if not callable(embed):
            raise InvalidSettings(f"embed is an async callable or provider:model, not a {type(embed).__name__}")
        return Embedder(embed, _name_of(embed), timeout_s)
    provider, _, model = embed.partition(":")
    key, base_url = settings.embed_api_key, settings.embed_base_url
    if provider == settings.model_provider and base_url is None:
        # One provider at one address has one key.
        key, base_url = key or settings.model_api_key, settings.model_base_url
    made = open_embeddings(
        provider,
        model,
        None if key is None else key.get_secret_value(),
        base_url=base_url,
        allow_http=settings.model_allow_http,
        dimensions=settings.embed_dimensions,
        timeout_s=_TIMEOUT_S,
    )
    return Embedder(made, made.name, timeout_s, made.aclose)


def _name_of(embed: object) -> str:
    """A callable's own name: by it the vectors of one are told from those of another."""
    name = getattr(embed, "name", None) or getattr(embed, "__qualname__", None) or type(embed).__qualname__
    return str(name)
