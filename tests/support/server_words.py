"""Temporary refusals of a server, each provoked on a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from support.checks import until
from support.redis_server import RedisServer, free_port


@contextlib.asynccontextmanager
async def config(raw: Any, **values: str) -> AsyncIterator[None]:
    values = {name.replace("_", "-"): value for name, value in values.items()}
    before = {name: (await raw.config_get(name))[name] for name in values}
    for name, value in values.items():
        await raw.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            await raw.config_set(name, value)


@contextlib.asynccontextmanager
async def too_few_replicas(raw: Any) -> AsyncIterator[None]:
    async with config(raw, min_replicas_to_write="1"):
        yield


@contextlib.asynccontextmanager
async def replica(raw: Any) -> AsyncIterator[None]:
    await raw.replicaof("127.0.0.1", free_port())
    try:
        yield
    finally:
        await raw.replicaof("NO", "ONE")


@contextlib.asynccontextmanager
async def replica_without_master(raw: Any) -> AsyncIterator[None]:
    async with config(raw, replica_serve_stale_data="no"), replica(raw):
        yield


@contextlib.asynccontextmanager
async def busy(raw: Any) -> AsyncIterator[None]:
    port = raw.connection_pool.connection_kwargs["port"]
    # No timeout and no retry: a retry would start a second loop after the first was killed.
    patient = redis.asyncio.Redis(port=port, socket_timeout=None, retry=Retry(NoBackoff(), 0))
    async with patient, redis.asyncio.Redis(port=port) as other:
        looping: asyncio.Future[Any] = asyncio.ensure_future(patient.eval("while true do end", 0))

        async def is_busy() -> bool:
            try:
                return not await other.ping()
            except redis.exceptions.ResponseError as error:
                return "BUSY" in str(error)

        await until(is_busy)
        try:
            yield
        finally:
            await other.script_kill()
            with contextlib.suppress(redis.exceptions.ResponseError):
                await looping


PASSING = {
    "NOREPLICAS": too_few_replicas,
    "READONLY": replica,
    "MASTERDOWN": replica_without_master,
    "BUSY": busy,
}

# Loading takes about two minutes, so it does not end during a test. A loading server answers once per ten keys or so:
# with ten times the delay, its replies took as long as the deadline of a test that had to be lucky.
_FILLERS_COUNT = 100_000
_LOAD_US = 1_000


@contextlib.asynccontextmanager
async def loading(folder: Path) -> AsyncIterator[tuple[RedisServer, Callable[[], Awaitable[None]]]]:
    """Start a server that stays loading. Yields it, and a function that lets loading finish."""
    server = RedisServer(folder, options=("--loading-process-events-interval-bytes", "1024")).start()
    starting = None
    try:
        async with redis.asyncio.Redis(port=server.port) as raw:
            await raw.mset({f"filler:{number}": "x" * 100 for number in range(_FILLERS_COUNT)})
            await raw.save()
        server.kill()
        server.options += ("--key-load-delay", str(_LOAD_US))
        starting = asyncio.create_task(asyncio.to_thread(server.start))

        async def go_on() -> None:
            await asyncio.to_thread(server.say, "CONFIG", "SET", "key-load-delay", "0")

        async def loads() -> bool:
            with contextlib.suppress(redis.exceptions.ConnectionError):
                return b"loading:1" in await asyncio.to_thread(server.say, "INFO", "persistence")
            return False

        await until(loads)
        try:
            yield server, go_on
        finally:
            await go_on()
    finally:
        if starting is not None:
            await starting
        server.stop()
