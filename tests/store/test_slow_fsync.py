"""A slow fsync, made by a tracer that holds the call back, and a server that is killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import contents, until, user
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.inspection.check import check

SETTINGS = Settings(shards=2, deadline_s=60, reply_timeout_s=30, strategy="none")


def is_traced(pid: int) -> bool:
    """True if all its threads are traced."""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return all("\nTracerPid:\t0\n" not in status for status in threads)


def trace(server: RedisServer, delay_s: float) -> subprocess.Popen[bytes]:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    late = f"inject=fdatasync:delay_enter={int(delay_s * 1_000_000)}"
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-e", "trace=fdatasync", "-e", late, "-p", str(server.pid)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def slow_to_sync(server: RedisServer, delay_s: float) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Delay each fdatasync of the server."""
    tracer = trace(server, delay_s)

    async def has_begun() -> bool:
        return is_traced(server.pid) or tracer.poll() is not None

    try:
        await until(has_begun)
        if tracer.poll() is not None:
            pytest.skip("this machine lets nobody trace another process")
        yield tracer
    finally:
        tracer.kill()
        tracer.wait()


async def kill_at_once(server: RedisServer, tracer: subprocess.Popen[bytes]) -> None:
    """Kill the tracer too: it would keep a held thread from ending."""
    os.kill(server.pid, signal.SIGKILL)
    tracer.kill()
    await asyncio.to_thread(server.kill)


async def fill(memory: Memory, first: int, count: int) -> list[Any]:
    for at in range(first, first + count):
        await memory.session("s").append(user(at), id=str(at))
    return [user(at)["content"] for at in range(first, first + count)]


async def is_prefix(memory: Memory, acked: list[Any], least: int) -> None:
    stored = await contents(memory.session("s"))
    assert stored == acked[: len(stored)]
    assert len(stored) >= least
    assert [violation async for violation in check(memory.store)] == []


async def test_everysec_loses_at_most_the_appends_during_a_sync(tmp_path: Path) -> None:
    """Redis acknowledges appends before the sync. Killed then, it loses the last of them, and no append is torn."""
    server = RedisServer(tmp_path, aof=True, options=("--appendfsync", "everysec")).start()
    try:
        async with (
            Memory.connect(server.url, settings=SETTINGS) as memory,
            redis.asyncio.Redis(port=server.port) as raw,
        ):
            acked = await fill(memory, 0, 20)
            async with slow_to_sync(server, 3_600) as tracer:
                acked += await fill(memory, 20, 1)

                async def syncs() -> bool:
                    return bool((await raw.info("persistence"))["aof_pending_bio_fsync"])

                await until(syncs)
                acked += await fill(memory, 21, 20)
                await kill_at_once(server, tracer)
            await asyncio.to_thread(server.start)
            await is_prefix(memory, acked, 20)
    finally:
        server.stop()


async def test_always_acknowledges_only_synced_appends(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, aof=True, options=("--appendfsync", "always")).start()
    try:
        async with Memory.connect(server.url, settings=SETTINGS) as memory:
            acked = await fill(memory, 0, 20)
            async with slow_to_sync(server, 0.2) as tracer:
                begun_s = time.monotonic()
                acked += await fill(memory, 20, 3)
                assert time.monotonic() - begun_s >= 3 * 0.2, "each waits for its sync"
                await kill_at_once(server, tracer)
            await asyncio.to_thread(server.start)
            await is_prefix(memory, acked, len(acked))
    finally:
        server.stop()
