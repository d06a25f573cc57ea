"""A Redis whose memory is full serves every read, although it refuses transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from support.checks import answers_transactions
from support.damage import put_block_aside
from support.redis_server import RedisServer
from support.stores import LONG_DEADLINES
from support.writers import Echo, chat_message

from redismem import Memory, Settings, StoreUnavailable
from redismem.blocking import memory as blocking
from redismem.inspection import record_view, sessions
from redismem.inspection.check import check
from redismem.inspection.records import check_records
from redismem.protocol.namespace.holds import ticking
from redismem.protocol.queue.calls import Job
from redismem.record import Change
from redismem.workers.summaries import Worker


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server whose memory these tests limit."""
    server = RedisServer(tmp_path_factory.mktemp("full")).start()
    yield server
    server.stop()


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=server.port) as client:
        yield client
        await client.config_set("maxmemory", 0)


async def fill(url: str, namespace: str) -> None:
    async with Memory.connect(url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        await memory.session("a", owner="ann").append(*(chat_message(seq, f"walrus {seq}") for seq in range(1, 80)))
        await Worker(memory.store, Echo()).drain()
        decision = await memory.project("p").decisions.create(title="Use Redis", tags=["db"])
        await memory.project("p").tasks.create(title="Install Redis")
        await memory.project("p").decisions.accept(decision.id, "all agree")
        await memory.record("r", ttl_s=600).write(Change(sets={b"a": b"1"}))


async def read_all(memory: Memory) -> dict[str, Any]:
    session, project = memory.session("a", owner="ann"), memory.project("p")
    (decision,) = await project.decisions.active()
    return {
        "read": (await session.read()).messages,
        "messages": await session.messages(include_originals=True),
        "recall": [message.seq for message in await session.recall("walrus 7")],
        "recall of the owner": [message.seq for message in await session.recall("walrus 7", scope="owner")],
        "decision": decision,
        "decisions": [*await project.decisions.list(tags=["db"], text="redis")],
        "counts": (await project.decisions.count(), await project.tasks.count(), await project.statistics()),
        "context": await project.context(["redis"]),
        "background": await project.background([chat_message(1, "Which database?")]),
        "export": await project.export_files(),
        "session": await sessions.look(memory.store, "a"),
        "fields": [view.fields for view in await record_view.look(memory.store, "r", 10)],
        "violations": (
            [each async for each in check(memory.store)],
            [each async for each in check_records(memory.store)],
        ),
        "processes": await memory.store.run(ticking(memory.store.keys)),
        "record": await memory.record("r", ttl_s=600).get(b"a", renew=True),
    }


@pytest.mark.parametrize("is_lane", [True, False])
async def test_it_answers_as_before(server: RedisServer, client: Any, namespace: str, is_lane: bool) -> None:
    await fill(server.url, namespace)
    options: dict[str, Any] = {"url": server.url} if is_lane else {"client": client}
    async with Memory.connect(**options, namespace=namespace, settings=LONG_DEADLINES) as memory:
        before = await read_all(memory)
        await client.config_set("maxmemory", 1)
        assert await read_all(memory) == before
        assert all(before.values())
        with pytest.raises(StoreUnavailable, match="OOM"):
            await memory.project("p").tasks.create(title="More memory")


async def test_a_blocking_memory_is_answered_too(server: RedisServer, client: Any, namespace: str) -> None:
    await fill(server.url, namespace)

    def recall() -> list[int]:
        with blocking.Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
            return [message.seq for message in memory.session("a").recall("walrus 7")]

    before = await asyncio.to_thread(recall)
    await client.config_set("maxmemory", 1)
    assert await asyncio.to_thread(recall) == before != []


async def test_an_unreadable_block_hides_no_other_message(
    server: RedisServer, client: Any, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(server.url, namespace)
    async with Memory.connect(server.url, namespace=namespace, settings=LONG_DEADLINES) as memory:
        session, keys = memory.session("a", owner="ann"), memory.store.keys.session("a")
        newest = max([field for field in await client.hkeys(keys.originals) if field.isdigit()], key=int)
        await client.hset(keys.originals, newest, b"broken")
        await client.config_set("maxmemory", 1)
        messages = await session.messages(include_originals=True)
        assert 0 < len(messages) < 79
        assert await session.recall("walrus 3") != []
        assert caplog.text.count("reads leave it out") == 1
        await put_block_aside(memory, "a", int(newest))
        assert "could not be moved to quarantine" in caplog.text
        assert await client.hget(keys.originals, newest) == b"broken"
        await client.config_set("maxmemory", 0)
        assert await session.messages(include_originals=True) == messages
        await put_block_aside(memory, "a", int(newest))
        assert not await client.hexists(keys.originals, newest)


@pytest.mark.parametrize("kind", ["read", "messages", "edit", "claim"])
async def test_what_is_read_is_of_one_moment(server: RedisServer, client: Any, namespace: str, kind: str) -> None:
    """Two prunes, which work on a full server, come between the state and the window."""
    settings, lengths = Settings(recent_limit=4, threshold=8), [10, 9]
    url = server.url
    async with (
        Memory.connect(url, namespace=namespace, settings=settings) as memory,
        Memory.connect(url, namespace=namespace, settings=settings) as other,
    ):
        session = memory.session("a")
        await session.append(*(chat_message(seq, f"{seq}") for seq in range(1, 13)))
        assert await session.prune(11) == 1  # from now on the server knows the script
        await client.config_set("maxmemory", 1)
        if await answers_transactions(client):
            pytest.skip("this server reads both in one transaction")
        run = memory.store.transport.run

        async def interrupted(commands: Any, *arguments: Any) -> list[Any]:
            replies = await run(commands, *arguments)
            if lengths and [command[0] for command in commands] in (["HGETALL"], ["HMGET"]):
                assert await other.session("a").prune(lengths.pop(0)) == 1
            return replies

        memory.store.transport.run = interrupted  # type: ignore[method-assign, assignment]
        if kind == "edit":
            assert await session.prune(8) == 1
        elif kind == "claim":
            job = await memory.store.run(memory.store.queue_calls("a").claim())
            assert isinstance(job, Job)
            assert [message.seq for message in job.context.messages] == list(range(4, 13))
        else:
            messages = (await session.read()).messages if kind == "read" else await session.messages()
            assert [message.seq for message in messages] == list(range(4, 13))
        assert lengths == []
