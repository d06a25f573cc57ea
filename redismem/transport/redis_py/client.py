"""Calls over a redis-py client: one of redismem's, one that the caller provides, or fakeredis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redismem.errors import InvalidSettings
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport import resp
from redismem.transport.base import KEEPALIVE
from redismem.transport.redis_py import given_client
from redismem.transport.redis_py.client_loop import ClientLoop
from redismem.transport.redis_py.deadline import Deadline
from redismem.transport.redis_py.replies import (
    as_transaction,
    check_replicas,
    is_refused,
    server_error,
    split_replies,
    translate_errors,
    unpack_transaction,
    with_wait,
    word_of,
)
from redismem.transport.replicas import Wanted


def _load_command(script: Script) -> Command:
    # Written as one word, redis-py's cluster client sends it to every primary.
    return ("SCRIPT LOAD", script.source)


# Errors of redis-py that leave the outcome unknown. Its cluster client raises AttributeError and TypeError while slots
# move.
_LOST = (redis.exceptions.RedisError, OSError, TimeoutError, AttributeError, TypeError)


def _options(max_connections: int, reply_timeout_s: float, retry: Any) -> dict[str, Any]:
    return {
        "max_connections": max_connections,
        "timeout": reply_timeout_s,
        "socket_timeout": reply_timeout_s,
        "socket_connect_timeout": reply_timeout_s,
        "socket_keepalive": True,
        "socket_keepalive_options": KEEPALIVE,
        # redis-py's own retry would repeat writes without an id.
        "retry": retry,
    }


class RedisPy:
    """A transport over `redis.asyncio`: standalone, Sentinel, Cluster, or fakeredis' FakeAsyncRedis."""

    blocks = False
    nodes = None
    calls_count = 0

    def __init__(self, client: Any, *, owned: bool) -> None:
        given_client.refuse_other(client, (redis.Redis, redis.RedisCluster), "one of redis.asyncio")
        self._reading = given_client.reading_options(client)
        self._client = client
        self.is_embedded = given_client.is_embedded(client)
        self._expiry = given_client.Expiry(client)
        self.place = "" if owned else given_client.place(client)
        self._owned = owned
        # A client that the caller provides retries by itself, unless its configuration turns retries off.
        self.repeats = not owned
        self._client_loop = None if owned or self.is_embedded else ClientLoop(client)

    @classmethod
    def from_url(cls, url: str, *, max_connections: int, reply_timeout_s: float) -> RedisPy:
        """Return a transport with a new client, which it closes itself.

        Raises:
            InvalidSettings: redis-py does not understand the URL.
        """
        options = _options(max_connections, reply_timeout_s, redis.asyncio.retry.Retry(NoBackoff(), 0))
        try:
            pool = redis.asyncio.BlockingConnectionPool.from_url(url, **options)
        except ValueError:  # its text quotes parts of the URL, which may contain a password
            raise InvalidSettings("the Redis URL is not usable: its scheme, port or an option is not valid") from None
        return cls(redis.asyncio.Redis(connection_pool=pool), owned=True)

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del subject  # a pool has no order
        await self._enter_loop()
        try:
            with Deadline(timeout_s):
                if self._expiry.is_due():
                    await self._client.dbsize()
                answers = await self._execute(commands)
                if script is not None and word_of(answers) == "NOSCRIPT":
                    answers = await self._load_and_run(commands, script, self._execute)
        except _LOST as error:
            raise await self._failure(error) from None
        if word_of(answers) == "READONLY":
            await self._disconnect()
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        await self._enter_loop()
        try:
            with Deadline(timeout_s):
                if self._expiry.is_due():
                    await self._client.dbsize()
                return await self._pipeline(commands, transaction=False)
        except _LOST as error:
            raise await self._failure(error) from None

    async def _enter_loop(self) -> None:
        """Raises RuntimeError if another event loop uses the caller's client."""
        loop = asyncio.get_running_loop()
        if self._client_loop is not None and self._client_loop.loop is not loop:
            await self._client_loop.enter(loop)

    async def _execute(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) > 1 and self._reading:  # redis-py reads the reply of its own EXEC without these options
            return unpack_transaction(await self._pipeline(as_transaction(commands), transaction=False))
        if len(commands) > 1:
            return await self._pipeline(commands, transaction=True)
        try:
            return [await self._client.execute_command(*commands[0], **self._reading)]
        except redis.exceptions.NoScriptError as unknown:
            return [server_error(unknown)]

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        if isinstance(self._client, redis.asyncio.RedisCluster):
            # A transaction would do this in a thread, on connections of an event loop that ends with it.
            await self._client.initialize()
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command, **self._reading)
        return translate_errors(await pipeline.execute(raise_on_error=False))

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        """Return the replies of `run`, followed by the number of replicas that have the write.

        The socket's own timeout must be longer than the WAIT.
        """
        check_replicas(self._client)
        await self._enter_loop()

        async def execute(commands: Sequence[Command]) -> list[Any]:
            return split_replies(commands, await self._pipeline(with_wait(commands, wanted), transaction=False))

        try:
            with Deadline(timeout_s + wanted.wait_s):
                answers = await execute(commands)
                if script is not None and word_of(answers) == "NOSCRIPT":
                    answers = await self._load_and_run(commands, script, execute)
        except _LOST as error:
            raise await self._failure(error) from None
        if word_of(answers) == "READONLY":
            await self._disconnect()
        return answers

    async def _load_and_run(
        self, commands: Sequence[Command], script: Script, execute: Callable[[Sequence[Command]], Awaitable[list[Any]]]
    ) -> list[Any]:
        """Load the script, and execute the commands; if it may not be loaded, execute them with its source."""
        try:
            await self._client.execute_command(*_load_command(script))
        except redis.exceptions.ResponseError as error:
            if not is_refused(error):
                raise
        else:
            return await execute(commands)
        try:
            await self._client.execute_command(*resp.EVAL_PROBE)
        except redis.exceptions.ResponseError as error:
            if is_refused(error):
                raise resp.may_not_load() from None
        return await execute(resp.with_source(commands, script))

    async def _failure(self, error: Exception) -> ServerError | ConnectionLost:
        failure = server_error(error)
        if word_of([failure]) == "READONLY":
            await self._disconnect()
        return failure

    async def _disconnect(self) -> None:
        """Close idle connections to a former primary, because new ones may lead to the new primary."""
        pool = getattr(
            self._client, "connection_pool", None
        )  # a cluster client has no pool, and updates its topology itself
        if pool is not None:
            await pool.disconnect(inuse_connections=False)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        if self._client_loop is not None:
            self._client_loop.forget_end()
        if self._owned:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()

    def drop(self) -> None:
        """Leave the connections open, because the client closes them, or the caller closes the client."""
        if self._client_loop is not None:
            self._client_loop.forget_end()


class BlockingRedisPy:
    """A transport over `redis.Redis` or fakeredis' FakeRedis, which blocks and never suspends."""

    blocks = True
    nodes = None
    calls_count = 0

    def __init__(self, client: Any, *, owned: bool) -> None:
        asynchronous = (redis.asyncio.Redis, redis.asyncio.RedisCluster)
        given_client.refuse_other(client, asynchronous, "a redis.Redis; redismem.Memory takes this one")
        self._reading = given_client.reading_options(client)
        self._client = client
        self.is_embedded = given_client.is_embedded(client)
        self._expiry = given_client.Expiry(client)
        self.place = "" if owned else given_client.place(client)
        self._owned = owned
        # A client that the caller provides retries by itself, unless its configuration turns retries off.
        self.repeats = not owned

    @classmethod
    def from_url(cls, url: str, *, max_connections: int, reply_timeout_s: float) -> BlockingRedisPy:
        """Return a transport with a new client, which it closes itself.

        Raises:
            InvalidSettings: redis-py does not understand the URL.
        """
        options = _options(max_connections, reply_timeout_s, Retry(NoBackoff(), 0))
        try:
            pool = redis.BlockingConnectionPool.from_url(url, **options)
        except ValueError:  # its text quotes parts of the URL, which may contain a password
            raise InvalidSettings("the Redis URL is not usable: its scheme, port or an option is not valid") from None
        return cls(redis.Redis(connection_pool=pool), owned=True)

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del timeout_s, subject  # the socket's own timeout, reply_timeout_s, bounds each read
        try:
            if self._expiry.is_due():
                self._client.dbsize()
            answers = self._execute(commands)
            if script is not None and word_of(answers) == "NOSCRIPT":
                answers = self._load_and_run(commands, script, self._execute)
        except _LOST as error:
            raise self._failure(error) from None
        if word_of(answers) == "READONLY":
            self._disconnect()
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        del timeout_s
        try:
            if self._expiry.is_due():
                self._client.dbsize()
            return self._pipeline(commands, transaction=False)
        except _LOST as error:
            raise self._failure(error) from None

    def _execute(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) > 1 and self._reading:
            return unpack_transaction(self._pipeline(as_transaction(commands), transaction=False))
        if len(commands) > 1:
            return self._pipeline(commands, transaction=True)
        try:
            return [self._client.execute_command(*commands[0], **self._reading)]
        except redis.exceptions.NoScriptError as unknown:
            return [server_error(unknown)]

    def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command, **self._reading)
        return translate_errors(pipeline.execute(raise_on_error=False))

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        """Run commands as `RedisPy.run_confirmed` does, but only the socket's own timeout applies."""
        del timeout_s
        check_replicas(self._client)

        def execute(commands: Sequence[Command]) -> list[Any]:
            return split_replies(commands, self._pipeline(with_wait(commands, wanted), transaction=False))

        try:
            answers = execute(commands)
            if script is not None and word_of(answers) == "NOSCRIPT":
                answers = self._load_and_run(commands, script, execute)
        except _LOST as error:
            raise self._failure(error) from None
        if word_of(answers) == "READONLY":
            self._disconnect()
        return answers

    def _load_and_run(
        self, commands: Sequence[Command], script: Script, execute: Callable[[Sequence[Command]], list[Any]]
    ) -> list[Any]:
        """Load the script, and execute the commands; if it may not be loaded, execute them with its source."""
        try:
            self._client.execute_command(*_load_command(script))
        except redis.exceptions.ResponseError as error:
            if not is_refused(error):
                raise
        else:
            return execute(commands)
        try:
            self._client.execute_command(*resp.EVAL_PROBE)
        except redis.exceptions.ResponseError as error:
            if is_refused(error):
                raise resp.may_not_load() from None
        return execute(resp.with_source(commands, script))

    def _failure(self, error: Exception) -> ServerError | ConnectionLost:
        failure = server_error(error)
        if word_of([failure]) == "READONLY":
            self._disconnect()
        return failure

    def _disconnect(self) -> None:
        """Close idle connections to a former primary, because new ones may lead to the new primary."""
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            pool.disconnect(inuse_connections=False)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def aclose(self) -> None:
        if self._owned:
            self._client.close()
            self._client.connection_pool.disconnect()

    def drop(self) -> None:
        """Do nothing, because the client closes its connections, or the caller closes the client."""
