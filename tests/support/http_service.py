"""The service as it runs: uvicorn on loopback, over a memory of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx

from redismem import Memory
from redismem.models.tls import default_ssl_context
from redismem.web.access import Access
from redismem.web.metrics.prometheus import Meters
from redismem.web.server import listen, serve
from redismem.web.service import Limits, Service

SLOTS = """
[[intents]]
name = "pay"
words = ["pay"]
[[intents.slots]]
name = "card"
prompt = "Which card?"
pattern = '\\d{8}'
example = "12345678"
sensitive = true
asks_limit = 2
"""
"""An intent with one slot, whose value nobody is shown."""
# A busy machine is no reason to give up.
PATIENT = Limits(request_s=60, idle_s=60, stream_write_s=60)


class Served:
    """A service that answers, and a client of it."""

    def __init__(self, service: Service, client: httpx.AsyncClient, told: asyncio.Event) -> None:
        self.service = service
        self.client = client
        self.told = told
        """Tells it to stop."""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.client.request(method, path, **options)


@contextlib.asynccontextmanager
async def served(memory: Memory, *, limits: Limits = PATIENT, stop_s: float = 5, **given: Any) -> AsyncIterator[Served]:
    """The service over this memory, without keys if none are given."""
    namespace = memory.store.keys.namespace
    access = given.pop("access", None) or Access.of("", namespace)
    meters = given.pop("meters", Meters())
    service = Service(dict.fromkeys(access.namespaces, memory), access, limits, meters=meters, **given)
    async with serving(service, stop_s) as running:
        yield running


@contextlib.asynccontextmanager
async def serving(service: Service, stop_s: float = 5) -> AsyncIterator[Served]:
    """This service, listening."""
    told = asyncio.Event()
    with listen("127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        running = asyncio.create_task(serve(service, listening, told, stop_s))
        try:
            async with httpx.AsyncClient(
                base_url=url, verify=default_ssl_context(), timeout=120, trust_env=False
            ) as client:
                yield Served(service, client, told)
        finally:
            told.set()
            await running


async def until(true: Callable[[], Any], deadline_s: float = 60) -> Any:
    """Looks again and again until it is so, and gives what was seen."""
    end_s = time.monotonic() + deadline_s
    while True:
        found = true()
        found = await found if inspect.isawaitable(found) else found
        if found:
            return found
        assert time.monotonic() < end_s
        await asyncio.sleep(0.005)  # between two looks at a condition that has a deadline


def said(number: int | str, role: str = "user") -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": f"message {number}"}
