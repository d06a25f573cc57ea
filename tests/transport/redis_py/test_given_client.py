"""Clients that the caller provides: which are refused, and which cause a warning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from redis.sentinel import Sentinel
from support.cluster_servers import ClusterServers
from support.redis_server import RedisServer, free_port

import redismem.blocking
from redismem import InvalidSettings, Memory, Settings, Unconfirmed


def warnings(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == "redismem" and "socket_timeout" in record.message]


SETTINGS = Settings(shards=2, deadline_s=60, reply_timeout_s=20, confirm_timeout_s=0.001)
CODED = {"role": "user", "content": "h\u00e9", "metadata": {"a": 1}}


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_client_that_decodes_gives_bytes(redis_server: RedisServer, namespace: str, protocol: int) -> None:
    """A stored message is msgpack, which is no text in any encoding."""
    options: dict[str, Any] = {"decode_responses": True, "protocol": protocol, "socket_timeout": 20}
    async with redis.asyncio.Redis(port=redis_server.port, **options) as client:
        client_memory = Memory.connect(client=client, namespace=namespace, settings=SETTINGS)
        await client.script_flush()
        session = client_memory.session("a")
        context = await session.append_and_read(CODED)  # a transaction, with a script that must be loaded
        assert [message.to_openai() for message in context.messages] == [CODED]
        assert (await session.pop(1))[0].to_openai() == CODED
        with pytest.raises(Unconfirmed):
            await session.append(CODED, confirm=1)
        await client.set(f"{namespace}:text", "h\u00e9")
        assert await client.get(f"{namespace}:text") == "h\u00e9"
        await client_memory.aclose()
    with redis.Redis(port=redis_server.port, **options) as blocking_client:
        memory = redismem.blocking.Memory.connect(client=blocking_client, namespace=namespace, settings=SETTINGS)
        assert memory.session("a").append_and_read(CODED).messages[-1].to_openai() == CODED
        assert memory.session("a").tail(1)[0].to_openai() == CODED
        memory.close()


async def test_a_cluster_client_that_decodes_is_refused(cluster_servers: ClusterServers) -> None:
    node = cluster_servers.nodes[0]
    async with redis.asyncio.RedisCluster("127.0.0.1", node.port, decode_responses=True) as client:
        with pytest.raises(InvalidSettings, match="decode_responses"):
            Memory.connect(client=client)


def test_a_blocking_cluster_client_that_decodes_is_refused(cluster_servers: ClusterServers) -> None:
    node = cluster_servers.nodes[0]
    with redis.RedisCluster("127.0.0.1", node.port, decode_responses=True) as client:
        with pytest.raises(InvalidSettings, match="decode_responses"):
            redismem.blocking.Memory.connect(client=client)
        client.disconnect_connection_pools()  # `close` leaves them to the garbage collector


NEVER_IN_TIME: dict[str, Callable[[], Any]] = {
    "Redis": lambda: redis.Redis(port=free_port(), socket_timeout=None),
    "by URL": lambda: redis.Redis.from_url(f"redis://127.0.0.1:{free_port()}", socket_timeout=None),
    "unix": lambda: redis.Redis(unix_socket_path="/nowhere", socket_timeout=None),
    "Sentinel": lambda: Sentinel([]).master_for("chats", socket_timeout=None),
}


@pytest.mark.parametrize("name", NEVER_IN_TIME)
def test_a_blocking_client_without_a_timeout_is_warned_of_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with NEVER_IN_TIME[name]() as client:
        redismem.blocking.Memory.connect(client=client).close()
    (warning,) = warnings(caplog)
    assert (warning.levelname, warning.op) == ("WARNING", "connect")


def test_a_blocking_cluster_client_without_a_timeout_is_warned_of(
    cluster_servers: ClusterServers, caplog: pytest.LogCaptureFixture
) -> None:
    with redis.RedisCluster("127.0.0.1", cluster_servers.nodes[0].port, socket_timeout=None) as client:
        redismem.blocking.Memory.connect(client=client).close()
        client.disconnect_connection_pools()
    assert len(warnings(caplog)) == 1


def test_a_client_with_a_timeout_is_not_warned_of(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A client of an asyncio memory needs no timeout: the event loop ends its calls."""
    for timeout_s in (1, 0.5):
        with redis.Redis(port=redis_server.port, socket_timeout=timeout_s) as client:
            redismem.blocking.Memory.connect(client=client).close()
    with fakeredis.FakeRedis(socket_timeout=None) as client:
        redismem.blocking.Memory.connect(client=client).close()
    Memory.connect(client=redis.asyncio.Redis(port=redis_server.port, socket_timeout=None))
    assert warnings(caplog) == []
