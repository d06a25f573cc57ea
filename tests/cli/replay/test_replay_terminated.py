"""A replay ended by Ctrl-C or by a supervisor's SIGTERM leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from support.checks import until
from support.commands import start_command, wait_for_exit
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.transcripts import LONG, chat, namespace_keys, write
from support.waiting import START_S

from redismem import Memory
from redismem.protocol.keys import Keys


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_terminated_replay_leaves_nothing_behind(
    redis_server: RedisServer,
    direct_memory: Memory,
    proxy: Proxy,
    namespace: str,
    tmp_path: Path,
    told: signal.Signals,
    code: int,
) -> None:
    """Its traffic passes through this process, so it cannot end before this process sees that it has begun."""
    file = write(tmp_path / "chats.jsonl", *(chat(f"chat-{number}", LONG) for number in range(400)))
    with start_command(
        "demo", "replay", file, "--url", proxy.url, "--namespace", namespace, "--concurrency", 8
    ) as running:

        async def has_begun() -> bool:
            assert running.poll() is None
            return await direct_memory.count() >= 20

        await until(has_begun, START_S)
        running.send_signal(told)
        ran = await asyncio.to_thread(wait_for_exit, running)
        assert (ran.code, ran.out) == (code, "")
        assert await direct_memory.count() == 0
        left = namespace_keys(redis_server.url, namespace)
    keys = Keys(namespace, 64)
    assert left <= {keys.record, *(shard.fences for shard in keys.shards())}
