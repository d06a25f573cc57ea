"""The two kinds of store: Redis and the embedded store."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redismem import Memory, Settings, blocking
from redismem.workers.keeper import Keeper
from support.clock import Clock

# Long, as a retry on a busy machine would change counts and append ids.
PATIENCE = {"deadline_s": 60.0, "reply_timeout_s": 20.0}
PATIENT = {f"REDISMEM_{name.upper()}": str(s) for name, s in PATIENCE.items()}
"""The environment of all tests: see `pytest_configure` in tests/conftest.py."""
LONG_DEADLINES = Settings(**PATIENCE, fallback_after_s=20)


@contextlib.contextmanager
def short_deadlines(*memories: Memory | blocking.Memory, after_s: float = 0.05) -> Iterator[None]:
    """Let open memories give up after 0.05 s, or another time, until the block ends.

    For calls that are to fail: a Redis that answers may miss such a deadline on a busy machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        for store in (memory.store for memory in memories):
            patch.setattr(store, "settings", store.settings.model_copy(update={"deadline_s": after_s}))
            patch.setattr(store.availability, "reply_timeout_s", after_s)
            patch.setattr(store, "_patience_s", after_s)
        yield


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
                client=client, namespace=namespace, settings=settings, clock=self._clock, **options
            ) as memory,
        ):
            yield memory


def workers_of(memory: Memory) -> Any:
    """Return the workers of the memory that run now."""
    assert isinstance(memory.workers, Keeper)
    return memory.workers.current
