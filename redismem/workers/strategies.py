"""Strategies for messages that leave the window: summarize, trim, or one of your own.

A strategy is an object with one method:

>>> class Headlines:
...     async def compact(self, messages, previous):
...         return Draft("; ".join(str(message.content)[:40] for message in messages), 0, 0, "headlines")
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from redismem.context.results import Summary
from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.messages.message import Message
from redismem.models import ChatModel, Draft, Summarizer, open_extractive, open_model
from redismem.models.extractive.summarizer import Extractive
from redismem.protocol.queue.calls import Job
from redismem.settings.settings import Settings
from redismem.text.word_counts import Sketch, learn_messages

log = logging.getLogger("redismem.worker")


class Dropped(Enum):
    """The type of `DROPPED`: a strategy's result when it writes no summary."""

    DROPPED = "dropped"


DROPPED = Dropped.DROPPED
"""The result of `compact` that drops messages without a summary. Originals are kept if the settings say so.

The result `None` is an error, because a forgotten `return` would look like it.
"""


class Strategy(Protocol):
    """A way to replace the messages that leave the window.

    A strategy raises ProviderUnavailable if its provider is down for every session, not just for this one. Its optional
    attribute `provider` names the provider within the namespace; `None` means that the strategy uses no provider.
    """

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | Dropped:
        """Return a summary of these messages, which come oldest first; or DROPPED to drop them without a summary.

        If `messages` is empty, `previous` is the text of the oldest summaries, to be folded into one; otherwise it is
        `None`. After an exception, or the result `None`, the attempt has failed and the messages stay. `compact` may be
        called again for the same messages, and its result may be discarded.
        """


class Summarize:
    """Summarise with a chat model, or with the extractive summariser.

    A summary of messages has at most `max_tokens`. A summary that folds older summaries may use all of `total_tokens`
    that the session's other summaries leave. The extractive summariser's summaries always stay within `total_tokens`.
    """

    def __init__(self, model: Summarizer, max_tokens: int = 500, total_tokens: int = 1_750) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._total_tokens = total_tokens
        self.provider: str | None = getattr(model, "provider", model.name)

    async def aclose(self) -> None:
        """Close the model's connections."""
        await self._model.aclose()

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        return await self.draft(messages, previous, None, 0)

    async def draft(
        self, messages: Sequence[Message], previous: str | None, sketch: Sketch | None, others_tokens: int
    ) -> Draft:
        """Do the same as `compact`, but with the session's word counts and the token count of its other summaries."""
        left_tokens = self._total_tokens - others_tokens
        if isinstance(self._model, Extractive):
            # A model's summaries may leave no tokens at all; a few sentences are written anyway.
            room_tokens = max(left_tokens, min(self._max_tokens, self._total_tokens) // 4)
            return await self._model.summarize(messages, previous, room_tokens, sketch)
        room_tokens = self._max_tokens if previous is None else max(self._max_tokens, left_tokens)
        return await self._model.summarize(messages, previous, room_tokens)

    def keeps_one_summary(self, summaries: Sequence[Summary]) -> bool:
        """True if each new summary replaces all existing ones: the extractive summariser replaces its own summaries."""
        return isinstance(self._model, Extractive) and all(each.model == self._model.name for each in summaries)


class Trim:
    """Drop messages that leave the window, without a summary."""

    provider = None

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Dropped:
        del messages, previous
        return DROPPED


def validate_strategy(strategy: Strategy) -> Strategy:
    """Return the strategy, or raise InvalidSettings if it is unusable, since then every attempt would fail."""
    if isinstance(strategy, type):
        raise InvalidSettings(f"a strategy is an object, not a class: pass {strategy.__name__}(...)")
    if not inspect.iscoroutinefunction(getattr(strategy, "compact", None)):
        hint = (
            "; to choose summarize, trim or none, pass settings=Settings(strategy=...)"
            if isinstance(strategy, str)
            else ""
        )
        raise InvalidSettings(
            f"the strategy {type(strategy).__name__} has no `async def compact(messages, previous)`{hint}"
        )
    return strategy


def provider_of(strategy: Strategy) -> str | None:
    """Return the name of the strategy's provider, which is paused when it is down; `None` if it uses no provider."""
    name: str | None = getattr(strategy, "provider", type(strategy).__name__)
    return name


def fallback_for(strategy: Strategy, settings: Settings) -> Strategy | None:
    """Return the fallback strategy; `None` if the settings turn it off, or if this strategy cannot fail."""
    cannot_fail = isinstance(strategy, Trim) or (isinstance(strategy, Summarize) and strategy.provider is None)
    if settings.extractive_after_s == 0 or cannot_fail:
        return None
    return Summarize(open_extractive(), *_summary_tokens(settings))


def _summary_tokens(settings: Settings) -> tuple[int, int]:
    """Return the token limits per summary and in total, both capped to `max_summary_bytes` at 4 bytes per token."""
    most = settings.max_summary_bytes // 4
    return min(settings.summary_tokens, most), min(settings.summary_tokens_total, most)


def keeps_one_summary(strategy: Strategy, summaries: Sequence[Summary]) -> bool:
    """True if this strategy keeps a single summary of all messages that left the window."""
    return isinstance(strategy, Summarize) and strategy.keeps_one_summary(summaries)


def pack_sketch(job: Job, sketch: Sketch | None, covered: Sequence[Message]) -> bytes | None:
    """Return the packed word counts that a commit stores; `None` leaves the stored counts unchanged."""
    return sketch.pack() if sketch is not None and covered and job.sketch is not None else None


async def update_sketch(strategy: Strategy, stored: bytes | None, covered: Sequence[Message]) -> Sketch | None:
    """Return the session's word counts, including these messages; `None` if the strategy does not use word counts."""
    return await learn_messages(Sketch.unpack(stored), covered) if isinstance(strategy, Summarize) else None


def from_settings(settings: Settings, *, in_child: bool = False) -> Strategy | None:
    """Return the strategy that the settings name, with its model; `None` if the settings say `none`.

    `in_child` has the extractive summariser work in a child process. Raises InvalidSettings.
    """
    if settings.strategy == "none":
        return None
    if settings.strategy == "trim":
        return Trim()
    summary_tokens = _summary_tokens(settings)
    if settings.model_provider == "extractive":
        if unused := settings.unused_of_model:
            text = "%s: set without a provider, so summaries are written without a model; set REDISMEM_MODEL_PROVIDER"
            log.warning(text, " and ".join(unused), extra=facts(op="settings", setting=unused[0]))
        return Summarize(open_extractive(in_child=in_child), *summary_tokens)
    return Summarize(_open_model(settings), *summary_tokens)


def model_from_settings(settings: Settings) -> ChatModel | None:
    """Return the model that the settings name; `None` if they name no model. Raises InvalidSettings."""
    return None if settings.model_provider == "extractive" or not settings.model else _open_model(settings)


def _open_model(settings: Settings) -> ChatModel:
    assert settings.model_provider != "extractive"
    if not settings.model:
        raise InvalidSettings(f"model_provider {settings.model_provider} needs a model: set REDISMEM_MODEL")
    key = settings.model_api_key
    return open_model(
        settings.model_provider,
        settings.model,
        None if key is None else key.get_secret_value(),
        base_url=settings.model_base_url,
        allow_http=settings.model_allow_http,
        max_summary_bytes=settings.max_summary_bytes,
        max_tokens_field=settings.model_max_tokens_field,
    )
