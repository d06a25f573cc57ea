"""The HTTP connections of a model: a client for each event loop, because a connection works in one loop only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import httpx

from redismem.concurrency.loops import at_loop_end, run_on
from redismem.models.tls import default_ssl_context


class Clients:
    """Clients of the running event loops, each closed when its loop shuts down; or the caller's client for all."""

    def __init__(self, given: httpx.AsyncClient | None = None) -> None:
        self._given = given
        self._ssl_context = None if given is not None else default_ssl_context()
        self._by_loop: dict[asyncio.AbstractEventLoop, httpx.AsyncClient] = {}
        self._waits: dict[asyncio.AbstractEventLoop, Callable[[], None]] = {}
        """For each loop, the function that ends the wait for its end."""
        self._is_closed = False

    def here(self) -> httpx.AsyncClient:
        """Return the client for the running event loop.

        Raises:
            RuntimeError: The model is closed.
        """
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        return self._by_loop.get(loop) or self._open(loop)

    def _open(self, loop: asyncio.AbstractEventLoop) -> httpx.AsyncClient:
        if self._is_closed or self._ssl_context is None:
            raise RuntimeError("this model is closed")
        for ended in [each for each in tuple(self._by_loop) if each.is_closed()]:
            self._by_loop.pop(ended, None)
            self._waits.pop(ended)()
        client = self._by_loop[loop] = httpx.AsyncClient(verify=self._ssl_context, trust_env=False)
        self._waits[loop] = at_loop_end(partial(self._close, loop))
        return client

    async def _close(self, loop: asyncio.AbstractEventLoop) -> None:
        if (client := self._by_loop.pop(loop, None)) is not None:
            self._waits.pop(loop)()
            await client.aclose()

    async def aclose(self) -> None:
        """Close the connections of all event loops that run, unless the caller provided the client."""
        self._is_closed = True
        here = asyncio.get_running_loop()
        for loop in tuple(self._by_loop):
            if loop is here:
                await self._close(loop)
            elif loop.is_running():
                await run_on(loop, self._close(loop))
