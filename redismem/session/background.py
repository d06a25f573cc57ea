"""The background of a context: text about the items of a project that a turn mentions. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Protocol

from redismem.messages.coercion import Shape
from redismem.messages.message import Message

PROJECT_TOKENS = 1_500


class Background(Protocol):
    """A source of background text for contexts, such as a project of the memory."""

    async def background(self, messages: Sequence[Message | Shape], max_tokens: int) -> str:
        """Return text about the items that these messages mention, within the budget; "" if Redis cannot be read."""

    def check_tokens(self, max_tokens: int) -> None:
        """Raise InvalidItem if the budget is too small."""


def check_background(background: Background, max_tokens: int) -> None:
    """Raise TypeError if `background` is no project of an async memory, InvalidItem if the budget is too small."""
    if not inspect.iscoroutinefunction(getattr(background, "background", None)):
        raise TypeError(f"project must come from memory.project(…) of an async memory, not {type(background).__name__}")
    background.check_tokens(max_tokens)
