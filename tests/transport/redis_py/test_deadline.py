"""A call over a redis-py client ends at its deadline, wherever a busy event loop is by then."""

from __future__ import annotations

import asyncio

import pytest
import redis.asyncio
from support.redis_server import RedisServer

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.redis_py.client import RedisPy


async def test_a_call_ends_at_its_deadline_in_a_busy_event_loop(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline passes at each step of the call: in two of them, redis-py drops a cancellation."""
    loop, ahead_s = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead_s)
    async with redis.asyncio.Redis(port=redis_server.port, socket_timeout=60) as client:
        transport = RedisPy(client, owned=False)
        for steps_count in range(1, 10):
            await transport.run([("PING",)], 60)
            call = asyncio.ensure_future(transport.run([("BLPOP", namespace, 0)], 10))
            for _ in range(steps_count):
                await asyncio.sleep(0)
            ahead_s += 11
            await asyncio.wait([call], timeout=30)
            assert call.done(), f"it goes on if its deadline passes at step {steps_count}"
            assert isinstance(call.exception(), ConnectionLost)


async def test_a_caller_that_is_cancelled_at_the_deadline_stays_cancelled(
    redis_server: RedisServer, namespace: str
) -> None:
    async with redis.asyncio.Redis(port=redis_server.port) as client:
        call = asyncio.ensure_future(RedisPy(client, owned=False).run([("BLPOP", namespace, 0)], 0))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
