"""The memory: a namespace of sessions in Redis, and the handle of one session. For asyncio; `blocking` is the other.

What is said to Redis stands in `calls`, what may be retried in `attempts`. Here calls are sent, again where needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from redismem import calls, listing, transport
from redismem.attempts import Attempts
from redismem.calls import Call, SessionCalls
from redismem.context import Context, Receipt, SessionInfo, SessionPage, State
from redismem.errors import ConnectionLost, CorruptSession, ServerError, SessionNotFound
from redismem.keys import Keys, new_session_id, now_ms
from redismem.messages import UNSET, Message, TokenCounter, Unset
from redismem.reading import Reading, check, narrowed
from redismem.replies import telemetry
from redismem.scripts import Script
from redismem.settings import Settings

log = logging.getLogger("redismem")

T = TypeVar("T")


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
        return await self.run(calls.ping())

    async def count(self, now_ms: int | None = None) -> int:
        """Live sessions of the namespace: those active within the timeout. `now_ms`: instead of the server's clock."""
        return await self.run(listing.count(self.keys, await self._alive_since_ms(now_ms)), each=True)

    async def sessions(self, limit: int = 100, cursor: str | None = None, now_ms: int | None = None) -> SessionPage:
        """A page of the live sessions, the last active first. Raises ValueError for a cursor that no page gave."""
        since_ms = await self._alive_since_ms(now_ms)
        return await self.run(listing.page(self.keys, limit, cursor, since_ms), each=True)

    async def _alive_since_ms(self, now_ms: int | None) -> int:
        return (await self.server_time_ms() if now_ms is None else now_ms) - self.settings.timeout_ms

    async def run(self, call: Call[T], *, each: bool = False) -> T:
        """Sends a call until it is answered or its deadline passes. Raises StoreUnavailable, and what replies mean."""
        if call.session_id is not None and not self._shards_agreed:
            await self._agree_on_shards()
        send = self._transport.run_each if each else self._transport.run
        attempts = Attempts(call.session_id, self.settings.deadline_s, self.settings.attempt_s)
        load: Script | None = None
        while True:
            try:
                if load is not None:
                    await self._transport.load(load.source, attempts.timeout_s())
                return call.finish(await send(call.commands, attempts.timeout_s()))
            except (ServerError, ConnectionLost) as failure:
                pause_s = attempts.pause_s(failure)
                load = call.script if call.needs_loading(failure) else None
            await self._transport.sleep(pause_s)

    async def run_healing(self, session_id: str, call: Call[T]) -> T:
        """Sends a call; sets a session that cannot be read aside, and sends the call again: it finds a new session."""
        try:
            return await self.run(call)
        except CorruptSession as corrupt:
            aside = SessionCalls(self.keys.session(session_id), self.settings).set_aside(corrupt.epoch, now_ms())
            await self.run(aside)
            log.error("set aside and started afresh: %s", corrupt)
        return await self.run(call)

    async def server_time_ms(self) -> int:
        """The server's clock. Raises StoreUnavailable."""
        return await self.run(calls.server_time_ms())

    def appended(self, session_id: str, receipt: Receipt | None) -> None:
        """Tells the workers of this process, where there are any, what an append did."""
        if self.companion is not None and receipt is not None and not receipt.duplicate:
            self.companion.appended(session_id, receipt)

    async def _agree_on_shards(self) -> None:
        # Looked at first: a store that takes no writes can still be read, and cleared where memory has run out.
        if not await self.run(calls.recorded_shards(self.keys)):
            await self.run(calls.record_shards(self.keys))
        self._shards_agreed = True


class Session:
    """One conversation. A handle without state of its own: make one a turn or keep it, from any number of pods.

    Every method that talks to Redis may raise StoreUnavailable. A session whose stored bytes cannot be read is set
    aside under `…:corrupt:<session>:<ms>`, which is logged, and starts afresh.
    """

    __slots__ = ("_calls", "_memory")

    def __init__(self, memory: Memory, session_calls: SessionCalls) -> None:
        self._memory = memory
        self._calls = session_calls

    @property
    def id(self) -> str:
        return self._calls.keys.session_id

    async def append(
        self,
        *messages: Message | dict[str, Any],
        id: str | None = None,
        expect: int | None = None,
        merge: Mapping[str, Any] | None = None,
        waiting: str | Unset | None = UNSET,
        last_intent: Any = UNSET,
        last_result: Any = UNSET,
        plan: Any = UNSET,
        now_ms: int | None = None,
    ) -> Receipt:
        """Adds messages behind the others, and changes the state with them: all or nothing.

        `id` names this append: given again, nothing is written and the first receipt comes back with `duplicate=True`,
        for the session's last 16 appends. `expect`: the last seq the caller has seen (0: no session). `merge`,
        `waiting`, `last_intent`, `last_result`, `plan`: as `merge()`, `set_waiting()` and the other setters.
        `now_ms`: the time, instead of the server's. Raises InvalidMessage, InvalidState, TooLarge, Conflict.
        """
        change = self._calls.change(
            merge=merge, waiting=waiting, last_intent=last_intent, last_result=last_result, plan=plan
        )
        receipt = await self._run(self._calls.append(messages, id, expect, change, now_ms))
        self._memory.appended(self.id, receipt)
        return receipt

    async def append_and_read(
        self,
        *messages: Message | dict[str, Any],
        id: str | None = None,
        expect: int | None = None,
        merge: Mapping[str, Any] | None = None,
        waiting: str | Unset | None = UNSET,
        last_intent: Any = UNSET,
        last_result: Any = UNSET,
        plan: Any = UNSET,
        now_ms: int | None = None,
    ) -> Context:
        """As `append`, and the context after it, in the same round trip and transaction. `Context.receipt` is there."""
        change = self._calls.change(
            merge=merge, waiting=waiting, last_intent=last_intent, last_result=last_result, plan=plan
        )
        context = await self._run(self._calls.append_and_read(messages, id, expect, change, now_ms))
        self._memory.appended(self.id, context.receipt)
        return context

    async def read(
        self, limit: int | None = None, before: int | datetime | None = None, max_tokens: int | None = None
    ) -> Context:
        """The context: empty for an unknown session. A part of it with `limit`, `before` or `max_tokens`.

        `limit` counts messages, `max_tokens` messages and summaries; `before` is a seq or a datetime. A part never
        holds a tool result without its call, nor a call without the result it has: rather it is smaller.
        """
        check(limit, before, max_tokens)
        context = await self._run(self._calls.read(limit if before is None else None))
        return narrowed(context, limit, before, max_tokens)

    async def messages(
        self, limit: int | None = None, before: int | datetime | None = None, include_originals: bool = False
    ) -> list[Message]:
        """The newest `limit` messages before a seq or a datetime, oldest first: those no summary covers.

        `include_originals`: those that a summary covers too, where they are kept. Read page by page: what is summarised
        meanwhile may be missing. Raises SessionNotFound.
        """
        check(limit, before)
        reading = Reading(self._calls, limit, before, include_originals)
        while (call := reading.next()) is not None:
            reading.take(await self._run(call))
        return reading.messages()

    async def clear(self, missing_ok: bool = True) -> bool:
        """Removes everything of the session. False where there was none; raises SessionNotFound unless `missing_ok`."""
        epoch = await self._run(self._calls.epoch())
        # A session that was seen and is gone counts as cleared: the first reply may have been lost.
        cleared = await self._run(self._calls.clear(epoch)) or epoch != ""
        if not cleared and not missing_ok:
            raise SessionNotFound("there is no such session to clear", self.id)
        return cleared

    async def prune(self, max_messages: int) -> int:
        """Drops the oldest messages for good, but for the newest `max_messages`. Gives how many were dropped.

        More are kept where a tool call would lose its result. Summaries and state stay. Raises SessionNotFound.
        """
        check(max_messages)
        while True:
            found = await self._run(self._calls.window())
            if found is None:
                raise SessionNotFound("there is no such session to prune", self.id)
            call = self._calls.prune(*found, max_messages)
            if call is None:
                return 0
            dropped = await self._run(call)
            if dropped:
                return dropped

    async def exists(self) -> bool:
        return await self._run(self._calls.exists())

    async def touch(self, now_ms: int | None = None) -> bool:
        """Makes the session active now, as an append does. False where there is none."""
        return await self._run(self._calls.touch(now_ms))

    async def info(self) -> SessionInfo:
        """Its numbers. Raises SessionNotFound."""
        known = await self._run(self._calls.info())
        if known is None:
            raise SessionNotFound("there is no such session", self.id)
        return known

    async def telemetry(self) -> dict[str, Any]:
        """`history_count`, `params_keys`, `waiting_for_param`: numbers and names, never values. Fit for a log."""
        return telemetry(await self._run(self._calls.info()))

    async def state(self) -> State:
        """All of the state: empty for an unknown session."""
        return await self._run(self._calls.state())

    async def params(self) -> dict[str, Any]:
        return (await self.state()).params

    async def waiting(self) -> str | None:
        """The name of the param that the agent waits for."""
        return (await self.state()).waiting_for_param

    async def last_intent(self) -> Any:
        return (await self.state()).last_intent

    async def last_result(self) -> Any:
        return (await self.state()).last_result

    async def plan(self) -> Any:
        return (await self.state()).plan

    async def update(
        self,
        *,
        merge: Mapping[str, Any] | None = None,
        waiting: str | Unset | None = UNSET,
        last_intent: Any = UNSET,
        last_result: Any = UNSET,
        plan: Any = UNSET,
        now_ms: int | None = None,
    ) -> None:
        """Several changes of the state at once. Creates a missing session. Raises InvalidState, TooLarge."""
        change = self._calls.change(
            merge=merge, waiting=waiting, last_intent=last_intent, last_result=last_result, plan=plan
        )
        await self._run(self._calls.update(change, now_ms))

    async def merge(self, params: Mapping[str, Any]) -> None:
        """Sets these params and leaves the others; a param set to UNSET is removed."""
        await self.update(merge=params)

    async def set_waiting(self, name: str | None) -> None:
        await self.update(waiting=name)

    async def set_last_intent(self, value: Any) -> None:
        await self.update(last_intent=value)

    async def set_last_result(self, value: Any) -> None:
        await self.update(last_result=value)

    async def set_plan(self, value: Any) -> None:
        await self.update(plan=value)

    async def _run(self, call: Call[T]) -> T:
        return await self._memory.run_healing(self.id, call)
