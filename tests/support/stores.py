"""The two kinds of store: Redis and the embedded store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from redismem import Memory, Settings
from redismem.workers.keeper import Keeper
from support.clock import Clock

# Long, as a retry on a busy machine would change counts and append ids.
PATIENCE = {"deadline_s": 60.0, "reply_timeout_s": 20.0}


def with_long_deadlines(settings: Settings | None) -> Settings:
    """Return the settings with long deadlines for a busy machine; deadlines of the test stay."""
    given = settings or Settings()
    defaults = {name: field.default for name, field in Settings.model_fields.items()}
    return given.model_copy(update={name: s for name, s in PATIENCE.items() if getattr(given, name) == defaults[name]})


class Store:
    """A store for memories and raw clients."""

    def __init__(self, make_client: Callable[[], Any], clock: Clock | None = None) -> None:
        """`clock` is the clock of its memories; `None` means the server's clock."""
        self._make_client = make_client
        self._clock = clock

    def client(self) -> Any:
        """Return a raw redis.asyncio client on the store, which the caller closes."""
        return self._make_client()

    @contextlib.asynccontextmanager
    async def memory(self, namespace: str, settings: Settings | None = None, **options: Any) -> AsyncIterator[Memory]:
        """Open a memory on the store, over its own client."""
        async with (
            self.client() as client,
            Memory.connect(
                client=client, namespace=namespace, settings=with_long_deadlines(settings), clock=self._clock, **options
            ) as memory,
        ):
            yield memory


def workers_of(memory: Memory) -> Any:
    """Return the workers of the memory that run now."""
    assert isinstance(memory.workers, Keeper)
    return memory.workers.current
