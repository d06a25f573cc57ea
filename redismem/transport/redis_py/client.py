"""Calls over a redis-py client: one that the caller provides, or fakeredis."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis
import redis.asyncio

from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.loading import load_and_repeat
from redismem.transport.redis_py import given_client
from redismem.transport.redis_py.client_loop import ClientLoop
from redismem.transport.redis_py.deadline import Deadline
from redismem.transport.redis_py.replies import (
    as_transaction,
    check_replicas,
    server_error,
    split_replies,
    translate_errors,
    unpack_transaction,
    with_wait,
    word_of,
)
from redismem.transport.replicas import Wanted

_Execute = Callable[[Sequence[Command]], Awaitable[list[Any]]]
# Errors of redis-py that leave the outcome unknown. Its cluster client raises AttributeError and TypeError while slots
# move.
_LOST = (redis.exceptions.RedisError, OSError, TimeoutError, AttributeError, TypeError)


async def _result(value: Any) -> Any:
    """Return the result of a client's method: the methods of asyncio's clients return an awaitable."""
    return await value if inspect.isawaitable(value) else value


class RedisPy:
    """A transport over a client: of `redis.asyncio`, or with `blocks` of `redis`, which never suspends.

    The client is standalone, one of Sentinel or of a cluster, or one of fakeredis.
    """

    nodes = None
    calls_count = 0

    def __init__(self, client: Any, *, owned: bool, blocks: bool = False) -> None:
        given_client.refuse_other(client, blocks=blocks)
        self.blocks = blocks
        self._reading = given_client.reading_options(client)
        self._client = client
        self.is_embedded = given_client.is_embedded(client)
        self._expiry = given_client.Expiry(client)
        self.place = "" if owned else given_client.place(client)
        self._owned = owned
        # A client that the caller provides retries by itself, unless its configuration turns retries off.
        self.repeats = not owned
        self._client_loop = None if blocks or owned or self.is_embedded else ClientLoop(client)

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del subject  # a pool has no order
        return await self._run(commands, self._execute, timeout_s, script)

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        return await self._run(commands, self._pipeline, timeout_s)

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        """Return the replies of `run`, followed by the number of replicas that have the write.

        The socket's own timeout must be longer than the WAIT.
        """
        check_replicas(self._client)

        async def execute(commands: Sequence[Command]) -> list[Any]:
            return split_replies(commands, await self._pipeline(with_wait(commands, wanted)))

        return await self._run(commands, execute, timeout_s + wanted.wait_s, script)

    async def _run(
        self, commands: Sequence[Command], execute: _Execute, timeout_s: float, script: Script | None = None
    ) -> list[Any]:
        """Execute the commands within the timeout. A blocking call has the socket's own timeout instead.

        Raises:
            ServerError, ConnectionLost: There are no replies.
            RuntimeError: Another event loop uses the caller's client.
        """
        if self._client_loop is not None and self._client_loop.loop is not (loop := asyncio.get_running_loop()):
            await self._client_loop.enter(loop)
        try:
            with contextlib.nullcontext() if self.blocks else Deadline(timeout_s):
                if self._expiry.is_due():
                    await _result(self._client.dbsize())
                answers = await execute(commands)
                if script is not None and word_of(answers) == "NOSCRIPT":
                    answers = await load_and_repeat(commands, script, self._ask, execute)
        except _LOST as error:
            failure = server_error(error)
            await self._disconnect_replica([failure])
            raise failure from None
        await self._disconnect_replica(answers)
        return answers

    async def _execute(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) > 1 and self._reading:  # redis-py reads the reply of its own EXEC without these options
            return unpack_transaction(await self._pipeline(as_transaction(commands)))
        if len(commands) > 1:
            return await self._pipeline(commands, transaction=True)
        try:
            return [await _result(self._client.execute_command(*commands[0], **self._reading))]
        except redis.exceptions.NoScriptError as unknown:
            return [server_error(unknown)]

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool = False) -> list[Any]:
        if isinstance(self._client, redis.asyncio.RedisCluster):
            # A transaction would do this in a thread, on connections of an event loop that ends with it.
            await self._client.initialize()
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command, **self._reading)
        return translate_errors(await _result(pipeline.execute(raise_on_error=False)))

    async def _ask(self, command: Command) -> ServerError | ConnectionLost | None:
        # Written as one word, redis-py's cluster client sends it to every primary.
        words = ("SCRIPT LOAD", *command[2:]) if command[0] == "SCRIPT" else command
        try:
            await _result(self._client.execute_command(*words))
        except redis.exceptions.ResponseError as error:
            return server_error(error)
        return None

    async def _disconnect_replica(self, answers: Sequence[Any]) -> None:
        """Close idle connections if a replica answered: new ones may lead to the new primary."""
        # A cluster client has no pool, and updates its topology itself.
        if word_of(answers) == "READONLY" and (pool := getattr(self._client, "connection_pool", None)) is not None:
            await _result(pool.disconnect(inuse_connections=False))

    async def sleep(self, seconds: float) -> None:
        await _result((time.sleep if self.blocks else asyncio.sleep)(seconds))

    async def aclose(self) -> None:
        self.drop()
        if self._owned:
            await _result(self._client.close() if self.blocks else self._client.aclose())
            await _result(self._client.connection_pool.disconnect())

    def drop(self) -> None:
        """Leave the connections open, because the client closes them, or the caller closes the client."""
        if self._client_loop is not None:
            self._client_loop.forget_end()
