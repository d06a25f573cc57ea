"""Thousands of sessions over the limit: the right ones go, and no script does much. `make nightly` takes 30,000."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
from support.clock import T0, Clock
from support.redis_server import RedisServer
from support.selection import EVERYTHING
from support.writers import chat_message

from redismem import Memory, Settings
from redismem.protocol.call import Command, Subject
from redismem.protocol.queue.depths import members
from redismem.protocol.scripts import Script, load
from redismem.store.store import Store
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address
from redismem.workers.eviction import Eviction

COUNT, LIMIT = (30_000, 20_000) if EVERYTHING else (3_000, 1_500)
SLOW_US = 5_000  # how many took longer is told; what a busy machine makes of it, no test decides
MOST_SESSIONS = 100  # in one script
pytestmark = pytest.mark.timeout(600)


class Recorder(Lane):
    """A lane that records the number of keys per script: each script loops over its sessions."""

    most_keys_count = 0

    def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> Awaitable[list[Any]]:
        for command in commands:
            if command[0] == "EVALSHA":
                self.most_keys_count = max(self.most_keys_count, int(command[2]))
        return super().run(commands, timeout_s, script, subject)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of its own, because the test reads its slow log and statistics."""
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.stop()


def begin_all(client: Any, memory: Memory, clock: Clock, active_ms: list[int]) -> None:
    """Append for real, a thousand messages per write."""
    client.script_load(load("append").source)
    for first in range(0, COUNT, 1_000):
        pipeline = client.pipeline(transaction=False)
        for number in range(first, first + 1_000):
            clock.now_ms = active_ms[number]
            (command,) = memory.store.session_calls(f"s-{number}").append([chat_message(number)]).commands
            pipeline.execute_command(*command)
        pipeline.execute()


async def test_the_least_recently_active_of_thousands_go(
    server: RedisServer, namespace: str, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    shuffled = random.Random(7).sample(range(COUNT), COUNT)
    active_ms = [T0 + place for place in shuffled]
    with redis.Redis(port=server.port) as client:
        settings = Settings(max_sessions=LIMIT, deadline_s=60, reply_timeout_s=20)
        lane = Recorder(Address("127.0.0.1", server.port), stall_s=60)
        async with Memory(Store(lane, namespace, settings, clock)) as memory:
            begin_all(client, memory, clock, active_ms)
            assert await clock.run_at(T0, memory.count()) == COUNT
            client.config_set("slowlog-log-slower-than", SLOW_US)
            client.config_set("slowlog-max-len", 1_000)
            client.slowlog_reset()
            client.config_resetstat()
            began_s = time.monotonic()
            evicted = await clock.run_at(T0 + COUNT, Eviction(memory.store).enforce())
            took_s = time.monotonic() - began_s
            slow = [entry for entry in client.slowlog_get(1_000) if entry["command"].startswith(b"EVALSHA")]
            stats = client.info("commandstats")
            scripts = stats["cmdstat_evalsha"]
            left = await memory.store.run(members(memory.store.keys.shards(), "active", COUNT))
            keys_count = client.dbsize()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{evicted} of {COUNT} sessions evicted in {took_s:.1f} s ({evicted / took_s:.0f}/s), "
            f"{scripts['calls']} scripts of {scripts['usec_per_call']} us, {len(slow)} over {SLOW_US} us\n"
        )
    assert evicted == COUNT - LIMIT
    assert {entry.session_id for entry in left} == {
        f"s-{number}" for number in range(COUNT) if shuffled[number] >= COUNT - LIMIT
    }
    assert keys_count < 2 * LIMIT + 64 * 6, "nothing but the messages and the state of those that stay"
    assert lane.most_keys_count <= 4 * MOST_SESSIONS + 5, "what is stored of each, and the indexes"
    commands_count = sum(command["calls"] for command in stats.values())
    assert commands_count < 25 * evicted, "inside of scripts too: it grows with those that go, not with those there are"
