"""Windows larger than the server's output buffer: it closes the connection on a reply that holds one whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from support.callers import Caller, open_caller
from support.conversations import contents, user_message
from support.edited import summarize
from support.redis_server import RedisServer
from support.stores import Store

from redismem import Memory, Settings
from redismem.protocol.server_errors import ConnectionLost

COUNT = 18
TEXT = "x" * 1_000_000
SETTINGS = Settings(deadline_s=60, reply_timeout_s=20, max_window_bytes=64 * 1024 * 1024)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that closes a connection on a reply over 12 MB."""
    options = ("--client-output-buffer-limit", "normal 12mb 0 0")
    server = RedisServer(tmp_path_factory.mktemp("limited"), options=options).start()
    yield server
    server.stop()


@pytest.fixture
def connections(limited: RedisServer) -> Iterator[Callable[[], int]]:
    """A function that returns the number of connections so far."""
    with redis.Redis(port=limited.port) as client:
        yield lambda: int(client.info("stats")["total_connections_received"])


async def fill(caller: Caller | Memory, session_id: str) -> None:
    session = (caller.memory if isinstance(caller, Caller) else caller).session(session_id)
    for number in range(COUNT):
        await session.append(user_message(f"{number} {TEXT}"))


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
async def test_a_read_that_the_server_closes_is_repeated_in_parts(
    limited: RedisServer, connections: Callable[[], int], namespace: str, kind: str
) -> None:
    async with open_caller(kind, limited.url, namespace, SETTINGS) as caller:
        await fill(caller, "large")
        large, small = (caller.memory.session(name) for name in ("large", "small"))
        await small.append(user_message("hello"))
        before = connections()
        context, *others = await asyncio.gather(large.read(), *(small.read() for _ in range(20)))
        assert [message.content[:2].strip() for message in context.messages] == [str(at) for at in range(COUNT)]
        assert [len(other.messages) for other in others] == [1] * 20
        once = connections() - before
        # A blocking memory has a connection for each thread.
        assert once == 1 if kind == "asyncio" else once >= 1
        before = connections()
        context = await large.append_and_read(user_message("more"))
        assert [context.receipt.last_seq, len(context.messages)] == [COUNT + 1, COUNT + 1]
        assert [len((await large.read()).messages), await large.prune(6)] == [COUNT + 1, COUNT - 5]
        assert connections() == before
        assert len((await large.read()).messages) == 6
        assert not caller.store._apart.ranges, "small again, so the next read is whole"


async def test_pages_and_parts_of_it_are_divided_too(limited: RedisServer, namespace: str) -> None:
    async with Memory.connect(limited.url, namespace=namespace, settings=SETTINGS) as memory:
        await fill(memory, "large")
        session = memory.session("large")
        for read in (session.messages(), session.messages(limit=COUNT - 1), session.tail(COUNT - 1)):
            assert [message.seq for message in await read][-1] == COUNT
        context = await session.read(limit=COUNT - 2)
        assert [message.seq for message in context.messages] == list(range(3, COUNT + 1))


async def test_a_worker_claims_it_in_parts(
    limited: RedisServer, connections: Callable[[], int], namespace: str
) -> None:
    async with Memory.connect(limited.url, namespace=namespace, settings=SETTINGS) as memory:
        await fill(memory, "large")
        before = connections()
        assert await summarize(memory) == 1
        assert len((await memory.session("large").read()).messages) == SETTINGS.recent_limit
        assert connections() - before <= 1


async def test_a_range_that_is_too_large_is_halved(
    limited: RedisServer, connections: Callable[[], int], namespace: str
) -> None:
    async with Memory.connect(limited.url, namespace=namespace, settings=SETTINGS) as memory:
        session = memory.session("uneven")
        await session.append(*(user_message("small") for _ in range(100)))
        await fill(memory, "uneven")
        before = connections()
        assert len((await session.read()).messages) == 100 + COUNT
        assert connections() - before == 2, "an eighth of the messages is still too large"
        assert len((await session.read()).messages) == 100 + COUNT
        assert connections() - before == 2


@pytest.mark.parametrize("id", [None, "turn-1"])
async def test_an_append_in_parts_tells_its_own_seqs(store: Store, namespace: str, id: str | None) -> None:
    """Another writer appends between the append and the reads, which are no longer one transaction."""
    async with store.memory(namespace) as memory, store.memory(namespace) as other:
        session = memory.session("a")
        await session.append(user_message("first"))
        memory.store._apart.divide(session._calls.read(), ConnectionLost("ConnectionClosed"))
        run, sent_count = memory.store.transport.run, 0

        async def interrupted(*arguments: Any) -> list[Any]:
            nonlocal sent_count
            replies, sent_count = await run(*arguments), sent_count + 1
            if sent_count == 1:
                await other.session("a").append(user_message("of another"))
            return replies

        memory.store.transport.run = interrupted  # type: ignore[method-assign, assignment]
        context = await session.append_and_read(user_message("own"), id=id)
        assert contents(context.messages) == ["first", "own", "of another"]
        receipt = context.receipt
        assert receipt is not None
        assert (receipt.first_seq, receipt.last_seq, receipt.duplicate, sent_count) == (2, 2, False, 8)
        assert not memory.store._apart.ranges
