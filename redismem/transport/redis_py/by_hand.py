"""The turn that people write by hand with redis-py, for comparison: a list and a counter per session."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

_WINDOW_COUNT = 20

Message = Mapping[str, Any]


class ByHand:
    """Two MULTI pipelines per turn, each RPUSH, LTRIM, EXPIRE, HINCRBY and LRANGE. Messages are JSON.

    It has no retries, ids or summaries.
    """

    def __init__(self, url: str, prefix: str, connections: int, kept_s: int) -> None:
        """Prepare the client, without I/O. Each key begins with `prefix` and expires `kept_s` after its last use.

        Raises:
            ValueError: redis-py does not accept the URL.
        """
        secure = url.replace("valkeys://", "rediss://", 1).replace("valkey://", "redis://", 1)
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            secure, max_connections=connections, timeout=10, socket_timeout=10, retry=Retry(NoBackoff(), 0)
        )
        self._client = redis.asyncio.Redis.from_pool(pool)
        self._prefix, self._kept_s = prefix, kept_s

    async def turn(self, session_id: str, request: Sequence[Message], reply: Sequence[Message]) -> None:
        """Append the request, decode the window, append the reply. Either may be empty.

        Raises:
            OSError: Redis does not answer, or refuses a command.
        """
        try:
            if request:
                [json.loads(message) for message in await self._append(session_id, request)]
            if reply:
                await self._append(session_id, reply)
        except redis.exceptions.RedisError as error:
            raise OSError(f"{type(error).__name__}: {error}") from None

    async def remove(self, session_ids: Sequence[str]) -> None:
        """Remove the keys of these sessions. If that fails, they expire."""
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            for at in range(0, len(session_ids), 500):
                async with self._client.pipeline(transaction=False) as pipeline:
                    for each in session_ids[at : at + 500]:
                        pipeline.unlink(*self._keys(each))
                    await pipeline.execute()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _append(self, session_id: str, said: Sequence[Message]) -> list[Any]:
        messages, state = self._keys(session_id)
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.rpush(messages, *map(json.dumps, said))
            pipeline.ltrim(messages, -_WINDOW_COUNT, -1)
            pipeline.expire(messages, self._kept_s)
            pipeline.hincrby(state, "message_count", len(said))
            pipeline.expire(state, self._kept_s)
            pipeline.lrange(messages, 0, -1)
            window: list[Any] = (await pipeline.execute())[-1]
            return window

    def _keys(self, session_id: str) -> tuple[str, str]:
        """Return both keys of a session. They share a slot, in case that the Redis is a node of a cluster."""
        return f"{self._prefix}:messages:{{{session_id}}}", f"{self._prefix}:state:{{{session_id}}}"
