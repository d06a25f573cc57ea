"""What becomes of the messages that leave the window: summarize, trim, or one of your own.

A strategy is an object with one method:

>>> class Headlines:
...     async def compact(self, messages, previous):
...         return Draft("; ".join(str(message.content)[:40] for message in messages), 0, 0, "headlines")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from redismem.errors import InvalidSettings
from redismem.messages import Message
from redismem.models import Draft, Summarizer, open_extractive, open_model
from redismem.settings import Settings


class Strategy(Protocol):
    """What becomes of the messages that leave the window."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | None:
        """The summary that stands for these messages, oldest first; None drops them without one.

        Or there are no messages, and `previous` is the text of the oldest summaries, which are to become one; else it
        is None. Whatever this raises is a failed attempt: the messages stay. It may be called again for the same
        messages, and its outcome thrown away.
        """


class Summarize:
    """A model writes a summary."""

    def __init__(self, model: Summarizer, max_tokens: int = 500) -> None:
        self._model = model
        self._max_tokens = max_tokens

    async def aclose(self) -> None:
        """Closes the model's connections."""
        await self._model.aclose()

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | None:
        return await self._model.summarize(messages, previous, self._max_tokens)


class Trim:
    """They are dropped."""

    async def compact(self, messages: Sequence[Message], previous: str | None) -> Draft | None:
        del messages, previous
        return None


def from_settings(settings: Settings) -> Strategy | None:
    """The strategy that the settings name, with the model they name; None if nothing becomes of older messages.

    Raises InvalidSettings.
    """
    if settings.strategy == "none":
        return None
    if settings.strategy == "trim":
        return Trim()
    # A token is four bytes or so: none is asked for that could not be stored.
    summary_tokens = min(settings.summary_tokens, settings.max_summary_bytes // 4)
    if settings.model_provider == "extractive":
        return Summarize(open_extractive(), summary_tokens)
    if not settings.model:
        raise InvalidSettings(f"model_provider {settings.model_provider} needs a model: set REDISMEM_MODEL")
    key = settings.model_api_key
    model = open_model(
        settings.model_provider,
        settings.model,
        None if key is None else key.get_secret_value(),
        base_url=settings.model_base_url,
        allow_http=settings.model_allow_http,
        max_summary_bytes=settings.max_summary_bytes,
        max_tokens_field=settings.model_max_tokens_field,
    )
    return Summarize(model, summary_tokens)
