"""The two stores that every behaviour is shown on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from redismem import Memory, Settings


class Store:
    """A place to keep sessions, and the raw client that looks into it behind the memory's back."""

    def __init__(self, make_client: Callable[[], Any]) -> None:
        self._make_client = make_client

    def client(self) -> Any:
        """A raw redis.asyncio client on the store. Close it."""
        return self._make_client()

    @contextlib.asynccontextmanager
    async def memory(self, namespace: str, settings: Settings | None = None, **options: Any) -> AsyncIterator[Memory]:
        """A memory on the store, over a client of its own."""
        async with (
            self.client() as client,
            Memory.connect(client=client, namespace=namespace, settings=settings, **options) as memory,
        ):
            yield memory
