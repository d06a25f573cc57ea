"""The background of a context: what a project tells about the messages of a turn. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Protocol

from redismem.messages.coercion import Shape
from redismem.messages.message import Message

PROJECT_TOKENS = 1_500


class Background(Protocol):
    """What has something to say before the summaries of a context: a project of the memory."""

    async def background(self, messages: Sequence[Message | Shape], max_tokens: int) -> str:
        """What is known about what these messages speak of, in at most so many tokens; "" if it cannot be told now."""

    def check_tokens(self, max_tokens: int) -> None:
        """Raises InvalidItem for a budget that is none."""


def check_background(background: Background, max_tokens: int) -> None:
    """Raises TypeError for what is none, a project's name or one of a blocking memory, and InvalidItem."""
    if not inspect.iscoroutinefunction(getattr(background, "background", None)):
        raise TypeError(f"project is what memory.project(…) of an async memory gives, not {type(background).__name__}")
    background.check_tokens(max_tokens)
