"""A session of a hundred thousand messages: no script of a turn or page blocks the server for long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from support.checks import user
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.protocol import scripts

COUNT = 100_000
LONGEST_US = 5_000
ROUNDS = 4
SETTINGS = Settings(shards=1, strategy="none", max_window_count=2 * COUNT, deadline_s=60, reply_timeout_s=20)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.stop()


async def test_no_script_takes_long(server: RedisServer) -> None:
    async with Memory.connect(server.url, settings=SETTINGS) as memory:
        session = memory.session("s")
        for first in range(0, COUNT, 1_000):
            await session.append(*(user(at) for at in range(first, first + 1_000)))
        await session.touch()
        assert len(await session.messages(limit=50)) == 50  # from now on no script is unknown
        with redis.Redis(port=server.port) as admin:
            admin.config_set("slowlog-max-len", 10_000)
            admin.config_set("slowlog-log-slower-than", 0)
            for at in range(ROUNDS):
                await session.append(user(at))
                await session.touch()
                assert len((await session.read(limit=10)).messages) == 10
                assert len(await session.messages(limit=50, before=COUNT // 2)) == 50
            slow = [(entry["command"].split(), entry["duration"]) for entry in admin.slowlog_get(10_000)]
    names = {scripts.load(name).sha: name for name in scripts.names()}
    shortest_us: dict[str, int] = {}
    for (word, *rest), duration_us in slow:
        if word == b"EVALSHA":
            name = names[rest[0]]
            shortest_us[name] = min(duration_us, shortest_us.get(name, duration_us))
    assert shortest_us.keys() == {"append", "touch"}
    # The shortest run of each script: the others include delays of this machine.
    assert {name: took for name, took in shortest_us.items() if took > LONGEST_US} == {}
