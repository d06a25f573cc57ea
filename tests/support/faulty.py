"""A transport to the embedded store that fails or loses calls on demand, and memories with the fallback on it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import fakeredis

from redismem import CorruptSession, Memory, Settings, StoreUnavailable, UnsupportedFormat
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session.append_ids import IDS_COUNT
from redismem.transport.redis_py.client import RedisPy
from support.checks import until, user

Fault = Literal["", "lost before", "lost after"]

# Long, so that a slow machine loses no call.
_PATIENT_S = 60
# Short, as the store is in this process.
LIMITS: dict[str, Any] = {"deadline_s": 5, "reply_timeout_s": 0.02, "fallback_after_s": 0.02}


RECALL_FAILURES = [StoreUnavailable("away", None, "away"), UnsupportedFormat("a newer release"), CorruptSession("torn")]
"""The errors that a recall may meet, and that a turn goes on without."""


@contextlib.contextmanager
def fail_after_first_call(transport: Any, failure: Exception) -> Iterator[None]:
    """Let every call but the first one fail, and each one of independent commands."""
    run, run_independent, count = transport.run, transport.run_independent, itertools.count(1)

    def once(*given: Any, **named: Any) -> Any:
        if next(count) > 1:
            raise failure
        return run(*given, **named)

    def never(*given: Any, **named: Any) -> Any:
        raise failure

    transport.run, transport.run_independent = once, never
    try:
        yield
    finally:
        transport.run, transport.run_independent = run, run_independent


class Faulty(RedisPy):
    """The transport. `is_away` refuses all calls; `faults` are the faults of the next calls except PING."""

    def __init__(self, server: fakeredis.FakeServer) -> None:
        super().__init__(fakeredis.FakeAsyncRedis(server=server), owned=True)
        self.is_away = False
        self.says = ""
        """An error word that answers every command."""
        self.lost_part: bytes | str = b""
        """A word or key; calls whose first command contains it are lost."""
        self.faults: deque[Fault] = deque()
        self.called: list[str] = []
        """The first word of each call, also of failed calls."""

    def heal(self) -> None:
        """Remove all faults."""
        self.is_away, self.says, self.lost_part = False, "", b""
        self.faults.clear()

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        del timeout_s
        word = str(commands[0][0])
        self.called.append(word)
        if self.is_away:
            raise ConnectionLost("ConnectionRefusedError", sent=False)
        if self.says:
            return [ServerError(self.says, self.says) for _ in commands]
        if self.lost_part and self.lost_part in commands[0]:
            raise ConnectionLost("TimeoutError")
        fault = self.faults.popleft() if self.faults and word != "PING" else ""
        if fault == "lost before":
            raise ConnectionLost("TimeoutError")
        answers = await super().run(commands, _PATIENT_S, script, subject)
        if fault == "lost after":
            raise ConnectionLost("TimeoutError")
        return answers

    @contextlib.contextmanager
    def recorded_pauses(self) -> Iterator[list[float]]:
        """Record for how many seconds each caller pauses."""
        pauses_s: list[float] = []
        pause = self.sleep

        async def record(seconds: float) -> None:
            pauses_s.append(seconds)
            await pause(seconds)

        self.sleep = record  # type: ignore[method-assign]
        try:
            yield pauses_s
        finally:
            self.sleep = pause  # type: ignore[method-assign]

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        del timeout_s
        self.called.append("independent")
        if self.is_away:
            raise ConnectionLost("ConnectionRefusedError", sent=False)
        return await super().run_independent(commands, _PATIENT_S)


def open_memory(faulty: Faulty, namespace: str, settings: Settings | None = None, **given: Any) -> Memory:
    """Open a memory on this transport, with the fallback unless it is `given`."""
    options: dict[str, Any] = {"settings": settings or Settings(**LIMITS), "fallback": True, **given}
    memory = Memory.connect(client=faulty._client, namespace=namespace, **options)
    memory.store.transport = faulty
    return memory


async def wait_until_replayed(memory: Memory) -> None:
    """Wait until the backlog is replayed."""

    async def empty() -> bool:
        health = memory.health()
        return (health.state, health.backlog_session_count) == ("closed", 0)

    await until(empty)


SETTINGS = Settings(deadline_s=5, fallback_after_s=0.02, strategy="none")
OTHERS = IDS_COUNT + 9
"""The number of appends after which a session has forgotten all earlier append ids."""


class Place:
    """A store, a memory with the fallback over a faulty transport, and a memory `direct_memory` of another process."""

    def __init__(self, namespace: str, given: Settings = SETTINGS) -> None:
        server = fakeredis.FakeServer()
        self.faulty = Faulty(server)
        self.memory = open_memory(self.faulty, namespace, given)
        self._client = fakeredis.FakeAsyncRedis(server=server)
        self.direct_memory = Memory.connect(client=self._client, namespace=namespace, settings=given)

    async def __aenter__(self) -> Place:
        await self.memory.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.faulty.heal()
        await self.memory.aclose()
        await self.faulty.aclose()
        await self.direct_memory.aclose()
        await self._client.aclose()

    async def append_others(self, session_id: str, count: int = OTHERS) -> list[str]:
        """Append messages as another process, and return their contents."""
        said = [user(f"other {number}") for number in range(count)]
        for message in said:
            await self.direct_memory.session(session_id).append(message)
        return [message["content"] for message in said]

    async def catch_up(self) -> None:
        self.faulty.is_away = False
        await wait_until_replayed(self.memory)


async def append_and_lose(place: Place, fault: Fault, *messages: Any, **options: Any) -> Any:
    """Append a message, lose the call as the fault says, and take Redis away."""
    place.faulty.faults.append(fault)
    appending = asyncio.ensure_future(place.memory.session("a").append(*messages, **options))
    while place.faulty.faults:  # noqa: ASYNC110 (the transport takes them)
        await asyncio.sleep(0)
    place.faulty.is_away = True
    receipt = await appending
    assert receipt.degraded
    return receipt
