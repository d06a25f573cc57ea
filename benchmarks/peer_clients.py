"""Two other clients as transports, so that they carry the same calls as the lane."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import urlsplit

from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ServerError
from redismem.transport.replicas import Wanted


class _ClientTransport(ABC):
    """The common part of both transports. The client sets the timeout of a call."""

    repeats = False
    blocks = False
    place = ""
    nodes = None
    calls_count = 0

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del timeout_s, subject
        answers = await self._sent(commands, is_atomic=True)
        if script is not None and isinstance(answers[0], ServerError) and answers[0].word == "NOSCRIPT":
            await self._sent([("SCRIPT", "LOAD", script.source)], is_atomic=True)
            answers = await self._sent(commands, is_atomic=True)
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        del timeout_s
        return await self._sent(commands, is_atomic=False)

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        raise NotImplementedError("no benchmark asks replicas")

    def drop(self) -> None:  # noqa: B027 (not every client has something to drop)
        """Do nothing: each benchmark closes its client."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @abstractmethod
    async def _sent(self, commands: Sequence[Command], *, is_atomic: bool) -> list[Any]:
        """Return one reply per command; an error reply becomes a ServerError in its place."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections."""


class GlideTransport(_ClientTransport):
    """valkey-glide: one connection, driven by its Rust core."""

    def __init__(self, client: Any) -> None:
        from glide import Batch, RequestError

        self._client, self._batch, self._refused = client, Batch, RequestError

    @classmethod
    async def open(cls, url: str) -> Self:
        """Connect to the Redis at this URL."""
        from glide import GlideClient, GlideClientConfiguration, NodeAddress

        at = urlsplit(url)
        address = NodeAddress(at.hostname or "127.0.0.1", at.port or 6379)
        return cls(await GlideClient.create(GlideClientConfiguration([address], request_timeout=10_000)))

    async def _sent(self, commands: Sequence[Command], *, is_atomic: bool) -> list[Any]:
        if len(commands) == 1:
            try:
                return [await self._client.custom_command(_texts(commands[0]))]
            except self._refused as error:
                return [_server_error(error)]
        batch = self._batch(is_atomic=is_atomic)
        for command in commands:
            batch.custom_command(_texts(command))
        answers = await self._client.exec(batch, raise_on_error=False)
        return [_server_error(answer) if isinstance(answer, self._refused) else answer for answer in answers]

    async def aclose(self) -> None:
        await self._client.close()


class CoredisTransport(_ClientTransport):
    """coredis: a pool, in which a transaction holds its connection until its reply."""

    def __init__(self, client: Any, opened: contextlib.AsyncExitStack) -> None:
        from coredis.exceptions import ResponseError

        self._client, self._opened, self._refused = client, opened, ResponseError

    @classmethod
    async def open(cls, url: str, connections_count: int) -> Self:
        """Create a pool of connections to the Redis at this URL."""
        import coredis

        opened = contextlib.AsyncExitStack()
        client = coredis.Redis.from_url(url, max_connections=connections_count)
        return cls(await opened.enter_async_context(client), opened)

    async def _sent(self, commands: Sequence[Command], *, is_atomic: bool) -> list[Any]:
        if len(commands) == 1:
            try:
                return [await _request(self._client, commands[0])]
            except self._refused as error:
                return [_server_error(error)]
        async with self._client.pipeline(transaction=is_atomic, raise_on_error=False) as pipeline:
            for command in commands:
                _request(pipeline, command)
        return [_server_error(answer) if isinstance(answer, Exception) else answer for answer in pipeline.results]

    async def aclose(self) -> None:
        await self._opened.aclose()


def _texts(command: Command) -> list[str | bytes]:
    return [str(part) if isinstance(part, int) else part for part in command]


def _request(client: Any, command: Command) -> Any:
    name, *arguments = command
    return client.create_request(str(name).encode(), *arguments, callback=lambda answer, **_: answer)


def _server_error(error: Exception) -> ServerError:
    """Convert a client's error; a measured call accepts no error except NOSCRIPT."""
    word = "NOSCRIPT" if "noscript" in f"{type(error).__name__} {error}".lower() else "ERR"
    return ServerError(word, str(error))
