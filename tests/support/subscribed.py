"""Subscriptions of a test, and a listener that remembers what it hears."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from redismem import Settings
from redismem.transport.base import Transport
from redismem.transport.connect import connect
from redismem.transport.subscriptions.subscriptions import Subscriptions
from support.redis_server import RedisServer
from support.waiting import START_S

SETTINGS = Settings(deadline_s=60, reply_timeout_s=20)


class Hearer:
    """A listener that remembers the messages, and counts the gaps."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.gaps_count = 0

    def on_message(self, payload: bytes) -> None:
        self.payloads.append(payload)

    def on_gap(self) -> None:
        self.gaps_count += 1


@contextlib.asynccontextmanager
async def subscribed(url: str, timeout_s: float = START_S) -> AsyncIterator[tuple[Subscriptions, Transport]]:
    """Subscriptions over a transport to this URL, and the transport itself."""
    transport = connect(url, None, SETTINGS)
    subscriptions = Subscriptions(transport, timeout_s)
    try:
        yield subscriptions, transport
    finally:
        await subscriptions.aclose()
        await transport.aclose()


async def publish(transport: Transport, channel: bytes, *payloads: bytes) -> None:
    """Publish messages to a channel, each as a script does."""
    for payload in payloads:
        script = "return redis.call('SPUBLISH', KEYS[1], ARGV[1])"
        (count,) = await transport.run([("EVAL", script, 1, channel, payload)], START_S)
        assert isinstance(count, int), count


def subscribers_count(server: RedisServer, channel: bytes) -> int:
    """Return the number of connections that the server has subscribed to the channel."""
    return int(server.say("PUBSUB", "SHARDNUMSUB", channel)[1])


def links_count(server: RedisServer) -> int:
    """Return the number of connections to the server that carry subscriptions."""
    lines = server.say("CLIENT", "LIST").decode().splitlines()
    return sum(" ssub=0 " not in line for line in lines)
