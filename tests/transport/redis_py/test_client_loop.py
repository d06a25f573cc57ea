"""A client of the caller in several event loops: one after the other it works, at once it is refused."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel
from support.checks import until
from support.cluster_servers import ClusterServers
from support.redis_server import RedisServer
from support.sentinel_servers import SentinelServers

from redismem import Memory, Settings

SETTINGS = Settings(shards=2, deadline_s=60, reply_timeout_s=20)


@pytest.fixture(params=["standalone", "blocking pool", "sentinel"])
def client(request: pytest.FixtureRequest, redis_server: RedisServer, namespace: str) -> Any:
    match request.param:
        case "standalone":
            return redis.asyncio.Redis(port=redis_server.port, client_name=namespace)
        case "blocking pool":
            pool: Any = redis.asyncio.BlockingConnectionPool.from_url(redis_server.url)
            return redis.asyncio.Redis(connection_pool=pool)
    sentinels: SentinelServers = request.getfixturevalue("sentinel_servers")
    places = [("127.0.0.1", sentinel.port) for sentinel in sentinels.sentinels]
    return Sentinel(places).master_for("chats")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_event_loops_use_a_client_one_after_the_other(client: Any, namespace: str) -> None:
    memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)

    async def turn(number: int) -> None:
        await asyncio.gather(*(memory.session("a").append(user(f"{number} {part}")) for part in range(4)))

    for number in range(6):
        asyncio.run(turn(number))
    assert len(asyncio.run(memory.session("a").read()).messages) == 24

    async def close() -> None:
        await memory.aclose()
        await client.aclose()

    asyncio.run(close())
    gc.collect()


def test_the_connections_of_a_client_are_closed_with_their_loop(redis_server: RedisServer, namespace: str) -> None:
    client = redis.asyncio.Redis(port=redis_server.port, client_name=namespace)
    memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)

    def is_gone() -> bool:
        with redis.Redis(port=redis_server.port) as raw:
            clients: Any = raw.client_list()
            return all(each["name"] != namespace for each in clients)

    gc.disable()
    try:
        for number in range(3):
            asyncio.run(memory.session("a").append(user(str(number))))
            asyncio.run(until(lambda: asyncio.sleep(0, is_gone())))
    finally:
        gc.enable()


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def test_a_second_loop_at_the_same_time_is_refused_before_anything_is_sent(
    redis_server: RedisServer, namespace: str, elsewhere: asyncio.AbstractEventLoop
) -> None:
    client = redis.asyncio.Redis(port=redis_server.port)
    memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)
    asyncio.run_coroutine_threadsafe(memory.session("a").append(user("first")), elsewhere).result(60)
    for call in (memory.session("a").append(user("second")), memory.ping(), memory.count()):
        with pytest.raises(RuntimeError, match="belongs to another event loop: give the memory a URL"):
            asyncio.run(call)
    reading = asyncio.run_coroutine_threadsafe(memory.session("a").read(), elsewhere)
    assert [message.content for message in reading.result(60).messages] == ["first"]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the client leaves it to the collector
def test_a_client_goes_on_after_a_loop_that_was_closed_without_a_shutdown(
    redis_server: RedisServer, namespace: str
) -> None:
    client = redis.asyncio.Redis(port=redis_server.port)
    memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)
    for number in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(memory.session("a").append(user(str(number))))
        loop.close()
    assert len(asyncio.run(memory.session("a").read()).messages) == 3
    gc.collect()


def test_a_cluster_client_serves_only_its_first_loop(cluster_servers: ClusterServers, namespace: str) -> None:
    client = redis.asyncio.RedisCluster("127.0.0.1", cluster_servers.nodes[0].port)
    memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)

    async def append_and_close() -> None:
        await memory.session("a").append(user("first"))
        await client.aclose()

    asyncio.run(append_and_close())
    with pytest.raises(RuntimeError, match="belongs to another event loop: give the memory a URL"):
        asyncio.run(memory.session("a").append(user("second")))
    asyncio.run(memory.aclose())
