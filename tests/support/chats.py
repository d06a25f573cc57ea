"""A chat as it is served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from redismem import Memory
from redismem.models.streaming import open_streaming
from redismem.web.chat.chat import Chat
from support.http_service import Served, served
from support.provider_server import ProviderServer

ASKED = {"session_id": "s", "message": "Where is my parcel?"}


@contextlib.asynccontextmanager
async def chatting(memory: Memory, provider: ProviderServer | None, **given: Any) -> AsyncIterator[Served]:
    """A service whose chat asks this provider; None: without a model. `chat`: more of a Chat."""
    options = given.pop("chat", {})
    model: Any = None
    if provider is not None:
        model = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True)
    async with served(memory, chat=Chat(model, **options), **given) as http:
        yield http


def stored(messages: Any) -> list[tuple[str, str, Any]]:
    """Role, text, and why it is incomplete."""
    return [(each.role, each.content, each.metadata.get("incomplete")) for each in messages]
