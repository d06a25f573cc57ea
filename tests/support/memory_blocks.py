"""A memory block of LlamaIndex for tests."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import Field
from llama_index.core.memory import BaseMemoryBlock


class Flushed(BaseMemoryBlock[str]):
    """A memory block that keeps the texts of what the memory flushes into it."""

    texts: list[str | None] = Field(default_factory=list)

    async def _aget(self, messages: list[ChatMessage] | None = None, **kwargs: Any) -> str:
        return ""

    async def _aput(self, messages: list[ChatMessage]) -> None:
        self.texts += [message.content for message in messages]
