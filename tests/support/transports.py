"""Every kind of transport by name, for the contract test of transports."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redismem import Settings
from redismem.transport.base import Transport
from redismem.transport.connect import connect
from redismem.transport.redis_py import embedded
from redismem.transport.redis_py.client import RedisPy

Make = Callable[[str, float], Transport]


def _make_by_url(make: Callable[[str | None, Any, Settings], Transport], options: str = "") -> Make:
    def made(url: str, reply_timeout_s: float) -> Transport:
        settings = Settings(reply_timeout_s=reply_timeout_s, deadline_s=60, max_connections=16)
        return make(url + options, None, settings)

    return made


def _cluster_client(url: str, reply_timeout_s: float) -> Transport:
    client = redis.asyncio.RedisCluster.from_url(_first_place(url), socket_timeout=reply_timeout_s)
    return _Owned(RedisPy(client, owned=False), client)


def _blocking_cluster_client(url: str, reply_timeout_s: float) -> Transport:
    client = redis.RedisCluster.from_url(_first_place(url), socket_timeout=reply_timeout_s)
    return _Owned(RedisPy(client, owned=False, blocks=True), client)


def over_redis_py(url: str, reply_timeout_s: float, *, blocks: bool = False, max_connections: int = 16) -> Transport:
    """Return a transport over a client of its own. The client does not retry, because that would repeat writes."""
    kind: Any = redis if blocks else redis.asyncio
    retry = (Retry if blocks else redis.asyncio.retry.Retry)(NoBackoff(), 0)
    timeouts = dict.fromkeys(("timeout", "socket_timeout", "socket_connect_timeout"), reply_timeout_s)
    pool = kind.BlockingConnectionPool.from_url(url, max_connections=max_connections, retry=retry, **timeouts)
    return RedisPy(kind.Redis(connection_pool=pool), owned=True, blocks=blocks)


def _first_place(url: str) -> str:
    return url.replace("+cluster", "").partition(",")[0]


class _Owned:
    """A transport over a caller's client, which it closes as the caller would."""

    def __init__(self, transport: Transport, client: Any) -> None:
        self._client = client
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def aclose(self) -> None:
        await self._transport.aclose()
        if isinstance(self._client, redis.RedisCluster):
            self._client.disconnect_connection_pools()  # `close` leaves them to the garbage collector
        closed = self._client.aclose() if hasattr(self._client, "aclose") else self._client.close()
        if closed is not None:
            await closed


NODE: dict[str, Make] = {
    "redis-py": over_redis_py,
    "redis-py blocking": lambda url, reply_timeout_s: over_redis_py(url, reply_timeout_s, blocks=True),
    "lane": _make_by_url(connect),
    "lane RESP3": _make_by_url(connect, "?protocol=3"),
    "lane blocking": _make_by_url(partial(connect, blocks=True)),
    "lane blocking RESP3": _make_by_url(partial(connect, blocks=True), "?protocol=3"),
}
CLUSTER: dict[str, Make] = {
    "cluster": _make_by_url(connect),
    "cluster RESP3": _make_by_url(connect, "?protocol=3"),
    "cluster blocking": _make_by_url(partial(connect, blocks=True)),
    "redis-py cluster": _cluster_client,
    "redis-py cluster blocking": _blocking_cluster_client,
}
SENTINEL: dict[str, Make] = {
    "sentinel": _make_by_url(connect),
    "sentinel RESP3": _make_by_url(connect, "?protocol=3"),
    "sentinel blocking": _make_by_url(partial(connect, blocks=True)),
}
OVER_A_SOCKET = NODE | CLUSTER | SENTINEL
EMBEDDED: dict[str, Callable[[], Transport]] = {
    "embedded": embedded.embedded,
    "embedded blocking": partial(embedded.embedded, blocks=True),
}
ALL = [*OVER_A_SOCKET, *EMBEDDED]
# redis-py's cluster client connects at once, retries for long, and sends commands without a key to any node.
OURS = [name for name in OVER_A_SOCKET if "redis-py cluster" not in name]


@contextlib.asynccontextmanager
async def open_transport(name: str, url: str, reply_timeout_s: float = 60) -> AsyncIterator[Transport]:
    transport = OVER_A_SOCKET[name](url, reply_timeout_s) if name in OVER_A_SOCKET else EMBEDDED[name]()
    try:
        yield transport
    finally:
        await transport.aclose()


def url_of_one(name: str, port: int) -> str:
    """Return a URL for this kind of transport with this port only."""
    if name in SENTINEL:
        return f"redis+sentinel://127.0.0.1:{port}/chats"
    return f"redis{'+cluster' if name in CLUSTER else ''}://127.0.0.1:{port}"


def url_of(name: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of the servers for this kind of transport; it is empty for the embedded store."""
    if name in EMBEDDED:
        return ""
    kind = "cluster_servers" if name in CLUSTER else "sentinel_servers" if name in SENTINEL else "redis_server"
    url: str = request.getfixturevalue(kind).url
    return url
