"""The event loop of a client that the caller provides: the client's connections work in one loop only."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from redismem.concurrency.loops import at_loop_end


class ClientLoop:
    """Lets event loops use a redis.asyncio client one after the other, and closes its connections with each loop.

    A cluster client serves only its first loop, because redis-py does not leave a loop cleanly.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that uses the client."""
        self._is_cluster = getattr(client, "connection_pool", None) is None
        self._lock = threading.Lock()
        self.forget_end: Callable[[], None] = lambda: None
        """Leave the client's connections open at the end of the loop, because the caller closes the client."""

    async def enter(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the client in the running loop from now on.

        Raises:
            RuntimeError: Another loop uses the client. Its connections would mix up the replies of both.
        """
        with self._lock:
            is_closed = self.loop is not None and self.loop.is_closed()
            if self.loop is not None and (self._is_cluster or not is_closed):
                raise RuntimeError(
                    "the redis-py client of this memory belongs to another event loop: give the memory a URL, "
                    "which has connections for each loop, or make a client and a memory per loop"
                )
            self.loop = loop
        if is_closed:  # without a shutdown
            self.forget_end()
            with contextlib.suppress(RuntimeError):  # each connection says that its loop is closed, and is dropped
                await disconnect(self._client)
        self.forget_end = at_loop_end(self._leave)

    async def _leave(self) -> None:
        if self._is_cluster:
            await self._client.aclose()
        else:
            self.loop = None
            await disconnect(self._client)


async def disconnect(client: Any) -> None:
    """Close all connections of a client. It opens new ones with its next command."""
    await client.connection_pool.disconnect()
    sentinels = getattr(getattr(client.connection_pool, "sentinel_manager", None), "sentinels", ())
    for sentinel in sentinels:
        await sentinel.connection_pool.disconnect()
