"""Recall by meaning with vector sets: the server compares the vectors of long sessions, and the set ends with them."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from recall.test_recall import create_summarised_session, trips_of
from recall.test_semantic import FACTS, QUESTION, first
from support.damage import put_block_aside
from support.embedders import Words, vector
from support.redis_server import REDIS_8, RedisServer, binary_of
from support.stores import PATIENCE
from support.writers import Echo, fill

from redismem import Memory, Session, Settings
from redismem.inspection import quarantine
from redismem.inspection.check import check_session
from redismem.inspection.weight import stored_bytes
from redismem.originals.blocks import block_number
from redismem.protocol import permissions, scripts
from redismem.recall.semantic import Meaning
from redismem.workers import vectors
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

MOVE = scripts.load("move_vectors").sha


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis8"))
    server.binary = binary_of(REDIS_8)
    yield server.start()
    server.stop()


@pytest.fixture
async def raw(server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=server.port) as client:
        yield client


@pytest.fixture(autouse=True)
def soon_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session of four blocks counts as long."""
    monkeypatch.setattr(vectors, "SET_COUNT", 4)


@contextlib.asynccontextmanager
async def open_memory(
    server: RedisServer | None, namespace: str, embed: Any = None, way: str = ""
) -> AsyncIterator[Memory]:
    settings = Settings(shards=2, embed_timeout_s=20, **PATIENCE)
    url = way or (server.url if server else "")
    async with Memory.connect(url, namespace=namespace, settings=settings, embed=embed or Words()) as memory:
        yield memory


async def is_asked(memory: Memory, session: Session, query: str = QUESTION) -> bool:
    """Find the message, and return True if the search asked the vector set."""
    with trips_of(memory) as sent:
        assert await first(session, query) == [2, 3, 4]
    return any(command[0] == "VSIM" for commands in sent for command in commands)


async def fill_and_drain(memory: Memory, session: Session, count: int = 11) -> None:
    await fill(session, count)
    await Worker(memory.store, Echo()).drain()


async def blocks_in_set(raw: Any, key: bytes) -> list[int]:
    """Return the blocks whose messages are in the vector set."""
    found = await raw.execute_command("VSIM", key, "FP32", b"\0\0\x80?" * 256, "COUNT", 1_000, "TRUTH")
    return sorted({block_number(int(name[8:])) for name in found})


@pytest.mark.parametrize("protocol", [2, 3])
async def test_the_set_finds_what_numpy_finds(server: RedisServer, namespace: str, raw: Any, protocol: int) -> None:
    async def embed(texts: list[str]) -> list[list[float]]:
        chosen = [random.Random(text) for text in texts]
        return [[each.gauss() for _ in range(256)] for each in chosen]

    async with open_memory(server, namespace, embed, f"{server.url}?protocol={protocol}") as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        assert await blocks_in_set(raw, keys.vectors) == list(range(7))
        fields = await raw.hkeys(keys.originals)
        assert {field for field in fields if field[:1] == b"v"} == {b"v7", b"vectors"}, "the last block grows"
        embedder: Any = memory.store.embedder
        assert embedder is not None
        rankings, read = [], []
        for _ in range(2):
            await session.recall(QUESTION)
            hot = memory.recall_cache.get("a")
            assert hot is not None
            read.append(sorted(hot.vectors))
            questions = [Meaning(memory.store, keys, str(number), embedder) for number in range(10)]
            for meaning in questions:
                meaning.add_vectors(hot, {}, 8, hot.set_model)
            rankings.append([list(await meaning.scores(hot, 115, 12)) for meaning in questions])
            await raw.delete(keys.vectors)
            memory.recall_cache.forget("a")
        assert rankings[0] == rankings[1]
        assert all(len(each) == 12 for each in rankings[0])
        assert read == [[7], list(range(8))], "what the server compares is not read"


async def test_a_short_session_has_none(server: RedisServer, namespace: str, raw: Any) -> None:
    async with open_memory(server, namespace) as memory:
        session, keys = await create_summarised_session(memory, FACTS, 70), memory.store.keys.session("a")
        assert not await is_asked(memory, session)
        assert not await raw.exists(keys.vectors)


async def end(memory: Memory, how: str, server: RedisServer, raw: Any) -> None:
    session, keys = memory.session("a"), memory.store.keys.session("a")
    if how == "clear":
        assert await session.clear()
    elif how == "evict":
        limited = Settings(shards=2, max_sessions=1, **PATIENCE)
        async with Memory.connect(server.url, namespace=memory.store.keys.namespace, settings=limited) as another:
            await another.session("b").append({"role": "user", "content": "later"})
            assert await Eviction(another.store).enforce() == 1
    elif how == "prune":
        assert await session.prune(3)
    elif how == "replace":
        await session.replace(1, {"role": "user", "content": "The car stands in the garage."})
        assert await raw.hexists(keys.originals, "v1")
        assert not await raw.hexists(keys.originals, "v0"), "what it meant is forgotten"
    elif how == "quarantine":
        await raw.hset(keys.state, "counters", "none")
        await session.append({"role": "user", "content": "anew"})
    elif how == "a block":
        await raw.hset(keys.originals, "4", "foreign")
        await put_block_aside(memory, "a", 4)
        assert await raw.hexists(keys.originals, "v1")
    else:
        settings = Settings(shards=2, keep_originals=False)
        async with Memory.connect(server.url, namespace=memory.store.keys.namespace, settings=settings) as another:
            await another.store.agreement.override_record()
            await fill_and_drain(another, another.session("a"))


@pytest.mark.parametrize("how", ["clear", "evict", "prune", "replace", "quarantine", "a block", "no originals"])
async def test_it_ends_with_what_it_is_of(server: RedisServer, namespace: str, raw: Any, how: str) -> None:
    async with open_memory(server, namespace) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await session.append({"role": "user", "content": "The dog sleeps in the kitchen."}, pin=True)
        await fill(session, 119)
        await Worker(memory.store, Echo()).drain()
        assert await raw.exists(keys.vectors)
        assert (await stored_bytes(memory.store, ["a"]) or 0) > await raw.memory_usage(keys.vectors)
        await end(memory, how, server, raw)
        assert not await raw.exists(keys.vectors)
        if how in ("clear", "evict"):
            assert [key for key in await raw.keys(f"rm:{{{namespace}*") if key.endswith(b":a")] == []
        if how == "quarantine":
            await session.clear()
            found = await quarantine.find(memory.store, "a", None)
            await raw.execute_command("VADD", keys.vectors, "VALUES", 1, 1, "of an earlier life")
            await quarantine.restore(memory.store, found, salvage=True)
            assert not await raw.exists(keys.vectors)
        if how in ("replace", "prune", "quarantine"):
            assert await check_session(memory.store, "a") == []
            await fill_and_drain(memory, session, 120 if how == "prune" else 11)
            assert bool(await raw.exists(keys.vectors)) == (how != "quarantine"), "it is made again"


async def test_it_expires_with_its_session(server: RedisServer, namespace: str, raw: Any) -> None:
    async with open_memory(server, namespace) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        said = {"role": "user", "content": "message"}
        later = Settings(shards=2, idle_timeout_s=900_000, **PATIENCE)
        async with Memory.connect(server.url, namespace=namespace, settings=later) as another:
            for write in ("append", "touch", "replace", "pop"):
                for key in (keys.state, keys.messages, keys.originals):
                    await raw.pexpire(key, 10_000_000)
                await raw.pexpire(keys.vectors, 5_000_000)
                fields = (await raw.hget(keys.state, "counters")).split()
                fields[4:6] = [b"1", b"%d" % await raw.pexpiretime(keys.state)]
                await raw.hset(keys.state, "counters", b" ".join(fields))
                given: list[Any] = [said] if write == "append" else [120, said] if write == "replace" else []
                await getattr(another.session("a"), write)(*given)
                assert await raw.pexpiretime(keys.vectors) == (await session.info()).expires_ms, write
                assert await raw.pttl(keys.vectors) > 800_000_000, write
        assert await check_session(memory.store, "a") == []
        await raw.persist(keys.vectors)
        assert "I8" in str(await check_session(memory.store, "a"))


async def test_another_models_are_never_compared(server: RedisServer, namespace: str, raw: Any) -> None:
    async with open_memory(server, namespace, Words(name="one")) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        same = struct.pack("<256f", *vector(QUESTION, 256))
        await raw.execute_command("VADD", keys.vectors, "FP32", same, b"a model!77", "M", 4)
        assert await is_asked(memory, session), "what has another mark is passed over"
    words = Words(name="another")
    async with open_memory(server, namespace, words) as memory:
        await memory.store.agreement.override_record("another")
        session = memory.session("a")
        assert await first(session) == []
        assert words.asked == [], "there is nothing to compare it with"
        await fill_and_drain(memory, session, 40)
        assert min(await blocks_in_set(raw, keys.vectors)) >= 7
        assert await first(session) == [], "those of the first model stand beside their blocks again"
        assert await check_session(memory.store, "a") == []
    async with open_memory(server, namespace, Words(name="one")) as memory:
        assert not await is_asked(memory, memory.session("a")), "by numpy"


async def test_one_that_is_lost_is_made_again(server: RedisServer, namespace: str, raw: Any) -> None:
    async with open_memory(server, namespace) as memory:
        session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
        await raw.delete(keys.vectors)
        for _ in range(2):
            assert await is_asked(memory, session), "in vain"
        memory.recall_cache.forget("a")
        assert await is_asked(memory, session)
        await fill_and_drain(memory, session, 30)
        await fill_and_drain(memory, session, 10)
        assert await blocks_in_set(raw, keys.vectors) == list(range(9))
        await raw.delete(keys.vectors)
        await raw.set(keys.vectors, "foreign")
        memory.recall_cache.forget("a")
        assert await is_asked(memory, session)
        await raw.delete(keys.vectors)
        # A set that an earlier life of the session has left behind.
        await raw.execute_command("VADD", keys.vectors, "VALUES", 3, 1, 1, 1, "old")
        await raw.hdel(keys.originals, "vectors")
        for field in await raw.hkeys(keys.originals):
            if field[:1] == b"w":
                await raw.hset(keys.originals, b"v" + field[1:], await raw.hget(keys.originals, field))
                await raw.hdel(keys.originals, field)
        await fill_and_drain(memory, session, 20)
        assert await blocks_in_set(raw, keys.vectors) == list(range(10))
        await fill_and_drain(memory, session, 10)
        assert await blocks_in_set(raw, keys.vectors) == list(range(11))


async def test_who_may_not_use_them_goes_by_numpy(server: RedisServer, namespace: str, raw: Any) -> None:
    words = permissions.acl(namespace).split()
    await raw.execute_command("ACL", "SETUSER", namespace, "on", ">p", "resetchannels", "resetkeys", "-@all", *words)
    way = f"redis://{namespace}:p@127.0.0.1:{server.port}/0"
    try:
        async with open_memory(server, namespace, way=way) as memory:
            session, keys = await create_summarised_session(memory, FACTS), memory.store.keys.session("a")
            assert not await raw.exists(keys.vectors)
            assert not await is_asked(memory, session)
            async with open_memory(server, namespace) as another:
                await fill_and_drain(another, another.session("a"))
            assert await raw.exists(keys.vectors)
            assert await is_asked(memory, session), "in vain"
            await raw.execute_command("ACL", "SETUSER", namespace, "+vadd", "+vsim")
            memory.recall_cache.forget("a")
            assert await is_asked(memory, session)
            assert memory.recall_cache.get("a").vectors.keys() <= {7, 8}  # type: ignore[union-attr]
            assert await session.clear()
            assert not await raw.exists(keys.vectors)
    finally:
        await raw.execute_command("ACL", "DELUSER", namespace)


async def test_a_store_without_any_is_asked_once(namespace: str) -> None:
    async with open_memory(None, namespace, way="memory://") as memory:
        session = await create_summarised_session(memory, FACTS)
        worker = Worker(memory.store, Echo())
        asked = []
        for _ in range(2):
            with trips_of(memory) as sent:
                await fill(session, 20)
                await worker.drain()
            asked.append(sum(MOVE in command for commands in sent for command in commands))
        assert asked == [1, 0]
        assert not await is_asked(memory, session)
