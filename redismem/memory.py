"""The memory: a namespace of sessions in Redis, and the handle of one session. For asyncio; `blocking` is the other.

What is said to Redis stands in `calls`, what may be retried in `attempts`. Here calls are sent, again where needed.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from redismem import namespaces, transport
from redismem.attempts import Attempts
from redismem.calls import Call, Command, SessionCalls
from redismem.context import Receipt, SessionPage
from redismem.errors import ConnectionLost, CorruptSession, ServerError
from redismem.keys import Keys, new_session_id, now_ms
from redismem.messages import TokenCounter
from redismem.session import Session
from redismem.settings import Settings

log = logging.getLogger("redismem")

T = TypeVar("T")

Send = Callable[[Sequence[Command], float], Awaitable[list[Any]]]


class Companion(Protocol):
    """Workers that live with a memory: `redismem.scheduler.Scheduler`."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def appended(self, session_id: str, receipt: Receipt) -> None: ...


class Memory:
    """The sessions of one namespace. Fit for any number of tasks at once: make one a process, close it at the end."""

    def __init__(
        self,
        transport: transport.Transport,
        namespace: str,
        settings: Settings,
        count_tokens: TokenCounter | None = None,
    ) -> None:
        self.settings = settings
        self.keys = Keys(namespace, settings.shards)
        self._transport = transport
        self._count_tokens = count_tokens
        self._shards_agreed = False
        self._attempt_s = min(settings.attempt_s, settings.deadline_s)
        self.companion: Companion | None = None

    @classmethod
    def connect(
        cls,
        url: str | None = None,
        *,
        namespace: str = "default",
        settings: Settings | None = None,
        client: Any = None,
        count_tokens: TokenCounter | None = None,
        workers: bool | Callable[[Memory], Companion] = False,
    ) -> Memory:
        """A memory on the Redis at `url`; without one on `REDISMEM_URL`'s, and without that on a new embedded store.

        `client`: a redis.asyncio client to use instead, which stays yours to close. `count_tokens`: called with each
        message's dict. `workers`: True to summarise and evict in this process too, as the settings say; or what makes
        the workers, such as `partial(Scheduler, strategy=mine)`. They run while the memory is open.
        No I/O happens here; `async with` checks that Redis answers and has as many shards.
        Raises InvalidSessionId for the namespace, InvalidSettings.
        """
        settings = settings or Settings()
        memory = cls(transport.connect(url or settings.url, client, settings), namespace, settings, count_tokens)
        if workers is True:
            from redismem.scheduler import Scheduler  # the one arrow back: this is where a memory is put together

            memory.companion = Scheduler.of_settings(memory)
        elif workers is not False:
            memory.companion = workers(memory)
        return memory

    async def __aenter__(self) -> Self:
        try:
            await self._agree_on_shards()
            if self.companion is not None:
                await self.companion.start()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections; a client that the caller brought stays open."""
        if self.companion is not None:
            await self.companion.stop()
        await self._transport.aclose()

    def session(self, session_id: str) -> Session:
        """A handle, without I/O. Raises InvalidSessionId."""
        return Session(self, SessionCalls(self.keys.session(session_id), self.settings, self._count_tokens))

    @staticmethod
    def new_session_id() -> str:
        """A UUIDv7: unique, and sorted by time."""
        return new_session_id()

    async def ping(self) -> bool:
        """True where Redis answers. Raises StoreUnavailable."""
        return await self.run(namespaces.ping())

    async def count(self, now_ms: int | None = None) -> int:
        """Live sessions of the namespace: those active within the timeout. `now_ms`: instead of the server's clock."""
        return await self.run(namespaces.count(self.keys, await self._alive_since_ms(now_ms)), each=True)

    async def sessions(self, limit: int = 100, cursor: str | None = None, now_ms: int | None = None) -> SessionPage:
        """A page of the live sessions, the last active first. Raises ValueError for a cursor that no page gave."""
        since_ms = await self._alive_since_ms(now_ms)
        return await self.run(namespaces.page(self.keys, limit, cursor, since_ms), each=True)

    async def _alive_since_ms(self, now_ms: int | None) -> int:
        return (await self.server_time_ms() if now_ms is None else now_ms) - self.settings.timeout_ms

    async def run(self, call: Call[T], *, each: bool = False, heals: bool = False) -> T:
        """Sends a call until it is answered or its deadline passes. Raises StoreUnavailable, and what replies mean.

        `each`: its commands are independent of each other. `heals`: where the session cannot be read, it is set aside,
        and the call is sent again and finds a new session.
        """
        if not self._shards_agreed and call.session_id is not None:
            await self._agree_on_shards()
        send = self._transport.run_each if each else self._transport.run
        if self._transport.repeats:
            call = call.again()
        begun_s = monotonic()
        try:
            try:
                return call.finish(await send(call.commands, self._attempt_s))
            except (ServerError, ConnectionLost) as failure:
                left_s = self.settings.deadline_s - (monotonic() - begun_s)
                return await self._run_again(call, send, failure, Attempts(call.session_id, left_s, self._attempt_s))
        except CorruptSession as corrupt:
            if not heals:
                raise
            await self._quarantine(corrupt)
        return await self.run(call.again())

    async def _run_again(
        self, call: Call[T], send: Send, failure: ServerError | ConnectionLost, attempts: Attempts
    ) -> T:
        while True:
            pause_s = attempts.pause_s(failure)
            if isinstance(failure, ServerError) and failure.word == "READONLY":
                # What was the primary is a replica now; connected anew, the address may lead to its successor.
                await self._transport.reconnect()
            await self._transport.sleep(pause_s)
            try:
                if call.script is not None and call.needs_loading(failure):
                    await self._transport.load(call.script.source, attempts.timeout_s())
                else:
                    call = call.again()
                return call.finish(await send(call.commands, attempts.timeout_s()))
            except (ServerError, ConnectionLost) as another:
                failure = another

    async def _quarantine(self, corrupt: CorruptSession) -> None:
        assert corrupt.session_id is not None
        keys = self.keys.session(corrupt.session_id)
        await self.run(SessionCalls(keys, self.settings).quarantine(corrupt.epoch, now_ms()))
        log.error("set aside and started afresh: %s", corrupt)

    async def server_time_ms(self) -> int:
        """The server's clock. Raises StoreUnavailable."""
        return await self.run(namespaces.server_time_ms())

    def appended(self, session_id: str, receipt: Receipt | None) -> None:
        """Tells the workers of this process, where there are any, what an append did."""
        if self.companion is not None and receipt is not None and not receipt.duplicate:
            self.companion.appended(session_id, receipt)

    async def _agree_on_shards(self) -> None:
        # Looked at first: a store that takes no writes can still be read, and cleared where memory has run out.
        if not await self.run(namespaces.recorded_shards(self.keys)):
            await self.run(namespaces.record_shards(self.keys))
        self._shards_agreed = True
