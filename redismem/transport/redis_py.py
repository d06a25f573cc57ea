"""Calls over a redis-py client: one of ours, one that the caller brings, or fakeredis'."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redismem.errors import ConnectionLost, InvalidSettings, ServerError
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script

# redis-py turns these replies into classes and drops their first word.
_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.NoScriptError, "NOSCRIPT"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.ClusterDownError, "CLUSTERDOWN"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.ExecAbortError, "EXECABORT"),
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (redis.exceptions.AuthenticationWrongNumberOfArgsError, "WRONGPASS"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
)


def _server_error(error: Exception) -> ServerError | ConnectionLost:
    """The reply behind a redis-py exception. Drops the text of errors that redis-py annotates with the arguments."""
    for kind, word in _WORDS:
        if isinstance(error, kind):
            if word == "NOAUTH" and "username-password" in str(error):
                word = "WRONGPASS"  # the same class
            return ServerError(word, f"{word} {_reason(error)}" if word == "NOPERM" else word)
    if isinstance(error, redis.exceptions.DataError):
        raise error
    if isinstance(error, redis.exceptions.ResponseError):
        text = _reason(error)
        if text == "EXEC without MULTI":
            # Nobody refuses MULTI but the ACL, and redis-py raises what came of it.
            return ServerError("NOPERM", "NOPERM no permissions to run the 'multi' command")
        word = text.partition(" ")[0]
        return ServerError(word if word.isupper() else "ERR", text)  # redis-py drops ERR
    return ConnectionLost(type(error).__name__)


def _reason(error: Exception) -> str:
    """What the server said, without the arguments that a pipeline puts before it."""
    text = str(error)
    if text.startswith("Command #"):
        # redis.asyncio writes the repr of a tuple there.
        text = text.rpartition("caused error: ")[2].lstrip("('\"")
    return text


def _answers(answers: Sequence[Any]) -> list[Any]:
    return [_server_error(answer) if isinstance(answer, Exception) else answer for answer in answers]


def _word(answers: Sequence[Any]) -> str:
    """The word of the error that the first command was answered with; "" for any other answer."""
    return answers[0].word if isinstance(answers[0], ServerError) else ""


def _loading(script: Script) -> Command:
    # "SCRIPT LOAD" as one word: so redis-py's cluster client sends it to every primary.
    return ("SCRIPT LOAD", script.source)


# What redis-py raises when the outcome is unknown. AttributeError and TypeError come out of its cluster client while
# slots move.
_LOST = (redis.exceptions.RedisError, OSError, TimeoutError, AttributeError, TypeError)


def _options(max_connections: int, reply_timeout_s: float, retry: Any) -> dict[str, Any]:
    return {
        "max_connections": max_connections,
        "timeout": reply_timeout_s,
        "socket_timeout": reply_timeout_s,
        "socket_connect_timeout": reply_timeout_s,
        "socket_keepalive": True,
        # redis-py would repeat writes whose reply was lost, without an id.
        "retry": retry,
    }


def refuse_decoding_client(client: Any) -> None:
    """Raises InvalidSettings for a client that turns replies into text."""
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None) or getattr(client, "connection_kwargs", None) or {}
    if options.get("decode_responses"):
        raise InvalidSettings("the client must be made with decode_responses=False: messages are bytes")


def _refuse_other_client(client: Any, foreign: tuple[type, ...], wanted: str) -> None:
    """Raises InvalidSettings for a client of the other memory: each of its calls would fail in its own odd way."""
    if isinstance(client, foreign):
        raise InvalidSettings(f"the client is a {type(client).__name__} of the wrong kind: this memory needs {wanted}")


def _place(client: Any) -> str:
    pool = getattr(client, "connection_pool", None)
    options = getattr(pool, "connection_kwargs", None) or {}
    host = options.get("host")
    return str(options.get("path") or (f"{host}:{options.get('port', 6379)}" if host else ""))


class RedisPy:
    """Over `redis.asyncio`: standalone, Sentinel, Cluster, or fakeredis' FakeAsyncRedis."""

    def __init__(self, client: Any, *, owned: bool) -> None:
        _refuse_other_client(client, (redis.Redis, redis.RedisCluster), "one of redis.asyncio")
        refuse_decoding_client(client)
        self._client = client
        self.place = "" if owned else _place(client)
        self._owned = owned
        # A client of the caller's repeats by itself what was not answered, unless he forbade it.
        self.repeats = not owned

    @classmethod
    def from_url(cls, url: str, *, max_connections: int, reply_timeout_s: float) -> RedisPy:
        """A client of our own. Raises InvalidSettings for a URL that redis-py does not understand."""
        options = _options(max_connections, reply_timeout_s, redis.asyncio.retry.Retry(NoBackoff(), 0))
        try:
            pool = redis.asyncio.BlockingConnectionPool.from_url(url, **options)
        except ValueError:  # its text repeats parts of the URL, which may hold a password
            raise InvalidSettings("the Redis URL is not usable: its scheme, port or an option is not one") from None
        return cls(redis.asyncio.Redis(connection_pool=pool), owned=True)

    async def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> list[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                answers = await self._sent(commands)
                if script is not None and _word(answers) == "NOSCRIPT":
                    await self._client.execute_command(*_loading(script))
                    answers = await self._sent(commands)
        except _LOST as error:
            raise await self._failure(error) from None
        if _word(answers) == "READONLY":
            await self._disconnect()
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._pipeline(commands, transaction=False)
        except _LOST as error:
            raise await self._failure(error) from None

    async def _sent(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) > 1:
            return await self._pipeline(commands, transaction=True)
        try:
            return [await self._client.execute_command(*commands[0])]
        except redis.exceptions.NoScriptError as unknown:
            return [_server_error(unknown)]

    async def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        if isinstance(self._client, redis.asyncio.RedisCluster):
            # A transaction of its own would do this in a thread, on connections of an event loop that ends there.
            await self._client.initialize()
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command)
        return _answers(await pipeline.execute(raise_on_error=False))

    async def _failure(self, error: Exception) -> ServerError | ConnectionLost:
        failure = _server_error(error)
        if _word([failure]) == "READONLY":
            await self._disconnect()
        return failure

    async def _disconnect(self) -> None:
        """What was the primary is a replica now. Connected anew, the address may lead to its successor."""
        pool = getattr(self._client, "connection_pool", None)  # a cluster's client has none, and looks around itself
        if pool is not None:
            await pool.disconnect(inuse_connections=False)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        if self._owned:
            await self._client.aclose()
            await self._client.connection_pool.disconnect()


class BlockingRedisPy:
    """Over `redis.Redis` or fakeredis' FakeRedis: blocks, and never suspends."""

    blocks = True

    def __init__(self, client: Any, *, owned: bool) -> None:
        asynchronous = (redis.asyncio.Redis, redis.asyncio.RedisCluster)
        _refuse_other_client(client, asynchronous, "a redis.Redis; redismem.Memory takes this one")
        refuse_decoding_client(client)
        self._client = client
        self.place = "" if owned else _place(client)
        self._owned = owned
        # A client of the caller's repeats by itself what was not answered, unless he forbade it.
        self.repeats = not owned

    @classmethod
    def from_url(cls, url: str, *, max_connections: int, reply_timeout_s: float) -> BlockingRedisPy:
        """The same as RedisPy.from_url."""
        options = _options(max_connections, reply_timeout_s, Retry(NoBackoff(), 0))
        try:
            pool = redis.BlockingConnectionPool.from_url(url, **options)
        except ValueError:  # its text repeats parts of the URL, which may hold a password
            raise InvalidSettings("the Redis URL is not usable: its scheme, port or an option is not one") from None
        return cls(redis.Redis(connection_pool=pool), owned=True)

    async def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> list[Any]:
        del timeout_s  # the socket's own timeout, reply_timeout_s, bounds each read
        try:
            answers = self._sent(commands)
            if script is not None and _word(answers) == "NOSCRIPT":
                self._client.execute_command(*_loading(script))
                answers = self._sent(commands)
        except _LOST as error:
            raise self._failure(error) from None
        if _word(answers) == "READONLY":
            self._disconnect()
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        del timeout_s
        try:
            return self._pipeline(commands, transaction=False)
        except _LOST as error:
            raise self._failure(error) from None

    def _sent(self, commands: Sequence[Command]) -> list[Any]:
        if len(commands) > 1:
            return self._pipeline(commands, transaction=True)
        try:
            return [self._client.execute_command(*commands[0])]
        except redis.exceptions.NoScriptError as unknown:
            return [_server_error(unknown)]

    def _pipeline(self, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        pipeline = self._client.pipeline(transaction=transaction)
        for command in commands:
            pipeline.execute_command(*command)
        return _answers(pipeline.execute(raise_on_error=False))

    def _failure(self, error: Exception) -> ServerError | ConnectionLost:
        failure = _server_error(error)
        if _word([failure]) == "READONLY":
            self._disconnect()
        return failure

    def _disconnect(self) -> None:
        """The same as RedisPy does."""
        pool = getattr(self._client, "connection_pool", None)
        if pool is not None:
            pool.disconnect(inuse_connections=False)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (there is no event loop)

    async def aclose(self) -> None:
        if self._owned:
            self._client.close()
            self._client.connection_pool.disconnect()
