"""The examples as processes, started by the commands that examples/README.md gives."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import os
import re
import shlex
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from redismem.models.tls import default_ssl_context
from support.commands import wait_for_exit
from support.forks import Fork
from support.provider_server import ProviderServer
from support.redis_server import RedisServer, free_port
from support.stores import PATIENCE
from support.waiting import START_S, wait_until

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def read_commands() -> dict[str, str]:
    """Return the command of each example in the README."""
    rows = re.findall(r"^\| \[.+?\]\((.+?)/?\) \| .+ \| `(.+)` \|$", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    return dict(rows)


class Places:
    """The Redis, the namespace and the provider of an example."""

    def __init__(self, redis_server: RedisServer, namespace: str, provider: ProviderServer) -> None:
        self.redis_server = redis_server
        self.redis_url = redis_server.url
        self.namespace = namespace
        self.provider = provider

    @property
    def environment(self) -> dict[str, str]:
        return {
            "REDISMEM_URL": self.redis_url,
            "REDISMEM_NAMESPACE": self.namespace,
            "REDISMEM_TICK_S": "0.05",
            **{f"REDISMEM_{name.upper()}": str(seconds) for name, seconds in PATIENCE.items()},
            "OPENAI_BASE_URL": self.provider.base_url,
            "OPENAI_API_KEY": "a-key",
        }


@contextlib.contextmanager
def start_example(name: str, places: Places, *more: str, **environment: str) -> Iterator[Fork]:
    """Start an example by its command, with these words behind its module; kill it at the end, with its children."""
    module, *words = shlex.split(read_commands()[name].removeprefix("python -m "))
    if module.startswith("examples.") and more:
        words = []
    environ = places.environment | environment
    with Fork(module, *words, *more, environment=environ, stderr="stdout", start_new_session=True) as running:
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


async def run_example_here(name: str, places: Places, *words: str, **environment: str) -> str:
    """Run an example's main function in this process, and return what it prints.

    It goes on where killed processes of the example have stopped. Only they pay for the import of its framework.
    """
    example = importlib.import_module(f"examples.{name.removesuffix('.py')}")
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(io.StringIO()) as printed,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # of the framework, also of what it leaves to the garbage collector
        for variable, value in (places.environment | environment).items():
            patch.setenv(variable, value)
        await asyncio.to_thread(asyncio.run, example.main(*words))
        gc.collect()
    return printed.getvalue()


@contextlib.contextmanager
def serve_example(name: str, places: Places, **environment: str) -> Iterator[httpx.Client]:
    """Start an example that serves HTTP, and yield a client of it once it accepts connections."""
    port = free_port()
    with (
        start_example(name, places, "--port", str(port), **environment) as running,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", verify=default_ssl_context(), timeout=60, trust_env=False
        ) as client,
    ):

        def accepts() -> bool:
            assert running.poll() is None, wait_for_exit(running).out
            with contextlib.suppress(httpx.ConnectError):
                return client.get("/").status_code > 0
            return False

        wait_until(accepts, f"{name} accepts connections", START_S)
        yield client
