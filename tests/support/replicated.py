"""A primary and two replicas, which tests can pause."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
import redis.asyncio

from support.checks import until
from support.redis_server import RedisServer


class Replicated:
    """A primary and two replicas."""

    def __init__(self, folder: Path, binary: str = RedisServer.binary) -> None:
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        self.primary = RedisServer(folder / "primary", options=quick)
        of = (*quick, "--replicaof", f"127.0.0.1 {self.primary.port}")
        self.replicas = [RedisServer(folder / f"replica-{number}", options=of) for number in range(2)]
        for server in (self.primary, *self.replicas):
            server.binary = binary
            server.start()
        self.url = self.primary.url

    async def wait_until_ready(self) -> None:
        async with redis.asyncio.Redis(port=self.primary.port) as client:
            await client.config_set("repl-timeout", 3600)  # long, so that a paused replica is not dropped

            async def both() -> bool:
                await client.incr("written")
                return int(await client.wait(2, 50)) == 2

            await until(both)

    @contextmanager
    def stop_replicas(self, *numbers: int) -> Iterator[None]:
        for number in numbers:
            self.replicas[number].stop_process()
        try:
            yield
        finally:
            for number in numbers:
                self.replicas[number].go_on()

    def length_on_replica(self, number: int, key: bytes) -> int:
        with redis.Redis(port=self.replicas[number].port) as client:
            return int(client.llen(key))

    def stop(self) -> None:
        for server in (*self.replicas, self.primary):
            server.stop()
