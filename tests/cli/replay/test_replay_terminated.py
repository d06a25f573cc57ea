"""A replay ended by Ctrl-C or by a supervisor's SIGTERM leaves nothing behind."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import start_command, wait_for_exit
from support.redis_server import RedisServer
from support.transcripts import LONG, chat, namespace_keys, write

import redismem.blocking
from redismem.protocol.keys import Keys


@pytest.mark.parametrize(("told", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_terminated_replay_leaves_nothing_behind(
    redis_server: RedisServer, namespace: str, tmp_path: Path, told: signal.Signals, code: int
) -> None:
    file = write(tmp_path / "chats.jsonl", *(chat(f"chat-{number}", LONG) for number in range(4_000)))
    options: list[Any] = ["--url", redis_server.url, "--namespace", namespace, "--concurrency", 8]
    with (
        start_command("replay", file, *options) as running,
        redismem.blocking.Memory.connect(redis_server.url, namespace=namespace) as memory,
    ):
        until_s = time.monotonic() + 60
        while (count := memory.count()) < 20:
            assert time.monotonic() < until_s
            assert running.poll() is None
        running.send_signal(told)
        ran = wait_for_exit(running)
        assert ran.code == code, f"told when it had stored {count} sessions"
        assert ran.out == ""
        assert memory.count() == 0
        left = namespace_keys(redis_server.url, namespace)
    keys = Keys(namespace, 64)
    assert left <= {keys.record, *(shard.fences for shard in keys.shards())}
