"""`redismem serve` as a process whose chat asks a provider of the test. A test may kill it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from support.commands import start_command, wait_for_line
from support.forks import Fork
from support.provider_server import ProviderServer


class ServiceProcess(NamedTuple):
    """A running server."""

    process: Fork
    url: str

    def kill(self) -> None:
        """Kill it, and wait until it is dead."""
        self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def start_services(
    redis_server: Any, namespace: str, provider: ProviderServer, lease_s: float, count: int = 1, *options: str
) -> AsyncIterator[list[ServiceProcess]]:
    """Start servers on one Redis, all at once and with these further options; they are killed at the end."""
    environment = {
        "REDISMEM_MODEL_PROVIDER": "openai",
        "REDISMEM_MODEL": "m",
        "REDISMEM_MODEL_BASE_URL": provider.base_url,
        "REDISMEM_MODEL_ALLOW_HTTP": "true",
        "REDISMEM_LIVE_LEASE_S": str(lease_s),
    }
    words = ("serve", "--port", "0", "--url", redis_server.url, "--namespace", namespace, *options)
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(start_command(*words, **environment)) for _ in range(count)]
        yield [ServiceProcess(each, await asyncio.to_thread(_address, each)) for each in started]


def _address(running: Fork) -> str:
    (url,) = re.findall(r"http://[^\s/]+", wait_for_line(running.stdout, "listens on"))
    return str(url)
