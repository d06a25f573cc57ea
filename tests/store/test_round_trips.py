"""Round trips per call, counted at a proxy; and atomicity of what travels in one transaction."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import redis.asyncio
from support.checks import user
from support.operations import OPERATIONS
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.transports import over_redis_py

import redismem.blocking
from redismem import Context, Memory, SessionNotFound, Settings
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost

# A long timeout: a retry of a slow call would be counted too.
PATIENT = Settings(deadline_s=60, reply_timeout_s=20)


@pytest.mark.parametrize("name", [name for name, row in OPERATIONS.items() if row.trips_count is not None])
async def test_one_write_and_one_read_per_round_trip(name: str, proxy: Proxy, namespace: str) -> None:
    operation, trips_count = OPERATIONS[name].call, OPERATIONS[name].trips_count
    async with Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory:
        session = memory.session("user-42")
        for _ in range(12):
            await session.append(user("x" * 300))
        await operation(session)  # its script is loaded now
        await session.append(user(), user(), user())
        proxy.forget()
        await operation(session)
    assert (len(proxy.sent), len(proxy.received), proxy.connections_count) == (trips_count, trips_count, 0)


async def test_append_and_read_is_one_transaction(proxy: Proxy, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory:
        await memory.session("a").append_and_read(user())
        proxy.forget()
        await memory.session("a").append_and_read(user())
    (written,) = proxy.sent
    words = [b"MULTI", b"EVALSHA", b"HGETALL", b"LRANGE", b"EXEC"]
    assert [written.count(word) for word in words] == [1] * 5
    assert sorted(words, key=written.index) == words


async def test_blocking_append_and_read_is_one_write_and_one_read(proxy: Proxy, namespace: str) -> None:
    def turns() -> list[int]:
        with redismem.blocking.Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory:
            session = memory.session("user-42")
            session.append_and_read(user())
            proxy.forget()
            return [session.append_and_read(user()).last_seq for _ in range(5)]

    assert await asyncio.to_thread(turns) == [2, 3, 4, 5, 6]
    assert (len(proxy.sent), len(proxy.received), proxy.connections_count) == (5, 5, 0)


COMMANDS = [(("INCR", "retries:a"),), (("INCR", "retries:a"), ("INCR", "retries:b"))]


@pytest.mark.parametrize("commands", COMMANDS, ids=["one", "several"])
@pytest.mark.parametrize("way", ["run", "run_independent"])
async def test_redis_py_sends_each_call_once(way: str, commands: Any, proxy: Proxy) -> None:
    carrier = over_redis_py(proxy.url, 60)
    blocking = over_redis_py(proxy.url, 60, blocks=True)
    proxy.break_next("reset", 100, to=b"INCR")
    with pytest.raises(ConnectionLost):
        await getattr(carrier, way)(commands, 60)
    assert (proxy.count(b"INCR"), proxy.connections_count) == (1, 1)

    def blocking_run() -> None:
        with pytest.raises(ConnectionLost):
            getattr(blocking, way)(commands, 60).send(None)

    await asyncio.to_thread(blocking_run)
    assert (proxy.count(b"INCR"), proxy.connections_count) == (2, 2)
    await carrier.aclose()
    await blocking.aclose()


async def test_redis_py_loads_each_script_once(proxy: Proxy) -> None:
    script = Script("one", b"return 1", b"e" * 40)
    carrier = over_redis_py(proxy.url, 60)
    proxy.break_next("reset", 100, to=b"LOAD")
    with pytest.raises(ConnectionLost):
        await carrier.run([("EVALSHA", script.sha, 0)], 60, script)
    assert proxy.count(b"LOAD") == 1
    await carrier.aclose()


class Race:
    """Writers, pruners and clearers on one session, each over its own connections."""

    def __init__(self, server: RedisServer, namespace: str) -> None:
        self._server = server
        self._namespace = namespace
        self.contexts: dict[str, Context] = {}
        """The contexts, by the text of the message that each followed."""
        self.pruned_count = 0
        self.cleared_count = 0
        self._writing = asyncio.Event()

    def _memory(self) -> Memory:
        return Memory.connect(
            self._server.url,
            namespace=self._namespace,
            settings=Settings(threshold=5, recent_limit=3, deadline_s=60, reply_timeout_s=20),
        )

    async def write(self, writer: int, count: int) -> None:
        async with self._memory() as memory:
            for number in range(20 * count):
                if number >= count and self.cleared_count > 3 and self.pruned_count > 3:
                    return  # the machine decides how often the others come in between
                message = user(f"{writer}-{number}")
                self.contexts[message["content"]] = await memory.session("a").append_and_read(message)

    async def prune(self, random_: random.Random) -> None:
        async with self._memory() as memory:
            while not self._writing.is_set():
                try:
                    self.pruned_count += await memory.session("a").prune(random_.randrange(6))
                except SessionNotFound:
                    await asyncio.sleep(0)

    async def clear(self, random_: random.Random) -> None:
        async with self._memory() as memory:
            while not self._writing.is_set():
                self.cleared_count += await memory.session("a").clear()
                for _ in range(random_.randrange(12)):
                    await memory.session("a").exists()

    async def run(self, random_: random.Random) -> None:
        async with asyncio.TaskGroup() as group:
            for other in (self.prune, self.prune, self.clear):
                group.create_task(other(random_))
            await asyncio.gather(*(self.write(writer, 60) for writer in range(5)))
            self._writing.set()


async def test_append_and_read_is_atomic(redis_server: RedisServer, namespace: str) -> None:
    race = Race(redis_server, namespace)
    await race.run(random.Random(7))
    assert race.cleared_count > 3
    assert race.pruned_count > 3
    epochs: dict[str, list[int]] = {}
    for text, context in race.contexts.items():
        receipt = context.receipt
        assert receipt is not None
        assert not receipt.duplicate
        assert receipt.first_seq == receipt.last_seq == receipt.total == context.last_seq == context.total_messages
        assert [message.seq for message in context.messages] == list(range(context.first_seq, context.last_seq + 1))
        assert context.messages[-1].content == text
        for message in context.messages:
            own = race.contexts[message.content]
            assert (own.epoch, own.last_seq) == (context.epoch, message.seq), "an older epoch's, or another place"
        epochs.setdefault(context.epoch, []).append(context.last_seq)
    assert len(epochs) > 3
    for seqs in epochs.values():
        assert sorted(seqs) == list(range(1, len(seqs) + 1))
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        assert not [key async for key in raw.scan_iter(f"*{namespace}*corrupt*")]
