"""The two stores that every behaviour is shown on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from redismem import Memory, Settings
from support.clock import Clock

# What is sent again, because the machine is busy and a reply is late, would be counted and remembered as such.
PATIENCE = {"deadline_s": 60.0, "reply_timeout_s": 20.0}


def patient(settings: Settings | None) -> Settings:
    """The settings, with time for a busy machine; what a test has set itself stays."""
    given = settings or Settings()
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    return given.model_copy(update={name: s for name, s in PATIENCE.items() if getattr(given, name) == defaults[name]})


class Store:
    """A place to keep sessions, and the raw client that looks into it behind the memory's back."""

    def __init__(self, make_client: Callable[[], Any], clock: Clock | None = None) -> None:
        """`clock`: of its memories, instead of the server's."""
        self._make_client = make_client
        self._clock = clock

    def client(self) -> Any:
        """A raw redis.asyncio client on the store. Close it."""
        return self._make_client()

    @contextlib.asynccontextmanager
    async def memory(self, namespace: str, settings: Settings | None = None, **options: Any) -> AsyncIterator[Memory]:
        """A memory on the store, over a client of its own."""
        async with (
            self.client() as client,
            Memory.connect(
                client=client, namespace=namespace, settings=patient(settings), clock=self._clock, **options
            ) as memory,
        ):
            yield memory
