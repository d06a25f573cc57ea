"""The draft of a summary, and the interfaces of summarisers and chat models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from redismem.messages.message import Message


@dataclass(frozen=True, slots=True, repr=False)
class Draft:
    """A summary that is not stored yet.

    The token counts are sums over all requests; 0 means that the provider did not report them.
    """

    text: str
    input_tokens: int
    output_tokens: int
    model: str

    def __repr__(self) -> str:
        return f"<Draft by {self.model} in={self.input_tokens} out={self.output_tokens}>"


class Summarizer(Protocol):
    """The interface of a summariser, which turns messages into a summary."""

    @property
    def name(self) -> str:
        """The summariser's name, stored in `Summary.model`."""

    async def summarize(self, messages: Sequence[Message], previous: str | None, max_tokens: int) -> Draft:
        """Summarise the previous summary and these messages. Without messages, shorten the previous summary.

        The caller decides whether and when to retry.

        Raises:
            ModelFailed: There is no usable text.
            ProviderUnavailable: The provider is down for all sessions.
        """

    async def aclose(self) -> None:
        """Close the resources that the summariser opened itself."""


class ChatModel(Summarizer, Protocol):
    """A summariser that can also chat."""

    async def reply(self, messages: Sequence[dict[str, Any]], *, max_tokens: int) -> str:
        """Return the model's answer to messages in the format of `Context.to_openai()`.

        Raises:
            ModelFailed: There is no usable text.
        """
