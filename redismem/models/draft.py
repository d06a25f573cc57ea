"""A summary that is not stored yet, and what those who write one can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from redismem.messages.message import Message


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A summary that is not stored yet. The tokens are what all its requests cost, 0 if the provider did not say."""

    text: str
    input_tokens: int
    output_tokens: int
    model: str

    def __repr__(self) -> str:
        return f"<Draft by {self.model} in={self.input_tokens} out={self.output_tokens}>"


class Summarizer(Protocol):
    """Turns messages into a summary."""

    @property
    def name(self) -> str:
        """Who wrote a summary: goes into `Summary.model`."""

    async def summarize(self, messages: Sequence[Message], previous: str | None, max_tokens: int) -> Draft:
        """One text that stands for the previous summary and these messages; without messages, a shorter previous one.

        Raises ModelFailed if there is no usable text; ProviderUnavailable, which is one, if nobody gets one now. The
        caller decides whether and when to try again.
        """

    async def aclose(self) -> None:
        """Closes what it opened itself."""


class ChatModel(Summarizer, Protocol):
    """A summariser that can also answer."""

    async def reply(self, messages: Sequence[dict[str, Any]], *, max_tokens: int) -> str:
        """The model's answer to messages as `Context.to_openai()` gives them. Raises ModelFailed."""
