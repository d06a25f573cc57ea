"""What becomes of the messages that leave the window: summarize, trim, or one of your own.

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

from redismem.context import Summary
from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.messages.message import Message
from redismem.models import ChatModel, Draft, Summarizer, open_extractive, open_model
from redismem.models.extractive.summarizer import Extractive
from redismem.protocol.queue.calls import Job
from redismem.settings.settings import Settings
from redismem.text.word_counts import Sketch, learned

log = logging.getLogger("redismem.worker")


class Dropped(Enum):
    """What a strategy gives that writes no summary."""

    DROPPED = "dropped"


DROPPED = Dropped.DROPPED
"""Given by `compact`, the messages leave the window without a summary; they are kept if the settings keep originals.

None is not enough: that is a forgotten `return`.
"""


class Strategy(Protocol):
    """What becomes of the messages that leave the window.

    If it asks somebody who can be down for everybody, it says so by raising ProviderUnavailable. It may have an
    attribute `provider` then, which tells that one from others in the same namespace; None if there is nobody.
    """

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | Dropped:
        """The summary that stands for these messages, oldest first; DROPPED drops them without one.

        Or there are no messages, and `previous` is the text of the oldest summaries, which are to become one; else it
        is None. Whatever this raises is a failed attempt, and so is to give None: the messages stay. It may be called
        again for the same messages, and its outcome thrown away.
        """


class Summarize:
    """A model writes a summary, or the extractive summariser.

    A summary of messages has `max_tokens` at most. One that takes in others has what they leave of `total_tokens`, so
    that all of a session stay within that; the extractive summariser keeps to it with each.
    """

    def __init__(self, model: Summarizer, max_tokens: int = 500, total_tokens: int = 1_500) -> None:
        self._model = model
        self._max_tokens = max_tokens
        self._total_tokens = total_tokens
        self.provider: str | None = getattr(model, "provider", model.name)

    async def aclose(self) -> None:
        """Closes the model's connections."""
        await self._model.aclose()

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft:
        return await self.drafted(messages, previous, None, 0)

    async def drafted(
        self, messages: Sequence[Message], previous: str | None, sketch: Sketch | None, others_tokens: int
    ) -> Draft:
        """The same, by one who knows the session: how often its words are said, the tokens of its other summaries."""
        left_tokens = self._total_tokens - others_tokens
        if isinstance(self._model, Extractive):
            # Beside a model's summaries there may be nothing left: a few sentences all the same.
            room_tokens = max(left_tokens, min(self._max_tokens, self._total_tokens) // 4)
            return await self._model.summarize(messages, previous, room_tokens, sketch)
        room_tokens = self._max_tokens if previous is None else max(self._max_tokens, left_tokens)
        return await self._model.summarize(messages, previous, room_tokens)

    def writes_one(self, summaries: Sequence[Summary]) -> bool:
        """Whether it weighs these anew with each message that leaves the window: all of them are sentences."""
        return isinstance(self._model, Extractive) and all(each.model == self._model.name for each in summaries)


class Trim:
    """Lets messages leave the window, and no summary stands for them."""

    provider = None

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Dropped:
        del messages, previous
        return DROPPED


def checked(strategy: Strategy) -> Strategy:
    """The strategy. Raises InvalidSettings for what cannot be one: each attempt at a summary would fail."""
    if isinstance(strategy, type):
        raise InvalidSettings(f"a strategy is an object, not a class: pass {strategy.__name__}(...)")
    if not inspect.iscoroutinefunction(getattr(strategy, "compact", None)):
        raise InvalidSettings(f"the strategy {type(strategy).__name__} has no `async def compact(messages, previous)`")
    return strategy


def provider_of(strategy: Strategy) -> str | None:
    """Who is paused when nobody gets an answer; None if nobody is asked."""
    name: str | None = getattr(strategy, "provider", type(strategy).__name__)
    return name


def instead_of(strategy: Strategy, settings: Settings) -> Strategy | None:
    """What writes a summary if this strategy cannot; None if nothing shall, or nothing is asked that could fail."""
    cannot_fail = isinstance(strategy, Trim) or (isinstance(strategy, Summarize) and strategy.provider is None)
    if settings.extractive_after_s == 0 or cannot_fail:
        return None
    return Summarize(open_extractive(), *_summary_tokens(settings))


def _summary_tokens(settings: Settings) -> tuple[int, int]:
    """A token is four bytes or so: none is asked for that could not be stored."""
    most = settings.max_summary_bytes // 4
    return min(settings.summary_tokens, most), min(settings.summary_tokens_total, most)


def writes_one(strategy: Strategy, summaries: Sequence[Summary]) -> bool:
    """Whether this strategy keeps one summary of all that has left the window."""
    return isinstance(strategy, Summarize) and strategy.writes_one(summaries)


def noted(job: Job, sketch: Sketch | None, covered: Sequence[Message]) -> bytes | None:
    """What a commit of these messages stores of it; None leaves what is stored."""
    return sketch.pack() if sketch is not None and covered and job.sketch is not None else None


async def sketched(strategy: Strategy, stored: bytes | None, covered: Sequence[Message]) -> Sketch | None:
    """How often each word is said, in these messages too; None if nobody asks for that."""
    return await learned(Sketch.unpack(stored), covered) if isinstance(strategy, Summarize) else None


def from_settings(settings: Settings) -> Strategy | None:
    """The strategy that the settings name, with the model they name; None if nothing becomes of older messages.

    Raises InvalidSettings.
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
        return Summarize(open_extractive(), *summary_tokens)
    return Summarize(_model(settings), *summary_tokens)


def model_from_settings(settings: Settings) -> ChatModel | None:
    """The model that the settings name; None if they name none. Raises InvalidSettings."""
    return None if settings.model_provider == "extractive" or not settings.model else _model(settings)


def _model(settings: Settings) -> ChatModel:
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
