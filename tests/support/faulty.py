"""A transport to the embedded store that can be away, or lose what passes: the rest of it is the real one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import fakeredis

from redismem import Memory, Settings
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.protocol.session.append_ids import IDS_COUNT
from redismem.transport.redis_py.client import RedisPy
from support.checks import until, user

Fault = Literal["", "lost before", "lost after"]

# Nothing here is lost because the machine is slow.
_PATIENT_S = 60
# The store is in this process: what is lost there is lost at once.
LIMITS: dict[str, Any] = {"deadline_s": 5, "reply_timeout_s": 0.02, "fallback_after_s": 0.02}


class Faulty(RedisPy):
    """`is_away`: nothing arrives. `faults`: what happens to the calls that come next, but for a PING."""

    def __init__(self, server: fakeredis.FakeServer) -> None:
        super().__init__(fakeredis.FakeAsyncRedis(server=server), owned=True)
        self.is_away = False
        self.says = ""
        """A word that the server answers everything with."""
        self.lost_part: bytes | str = b""
        """Calls whose first command is this word, or names this key, are lost."""
        self.faults: deque[Fault] = deque()
        self.called: list[str] = []
        """The first word of each call, whatever became of it."""

    def heal(self) -> None:
        """Let everything arrive again."""
        self.is_away, self.says, self.lost_part = False, "", b""
        self.faults.clear()

    async def run(self, commands: Sequence[Command], timeout_s: float, script: Script | None = None) -> list[Any]:
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
        answers = await super().run(commands, _PATIENT_S, script)
        if fault == "lost after":
            raise ConnectionLost("TimeoutError")
        return answers

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        del timeout_s
        self.called.append("independent")
        if self.is_away:
            raise ConnectionLost("ConnectionRefusedError", sent=False)
        return await super().run_independent(commands, _PATIENT_S)


def over(faulty: Faulty, namespace: str, settings: Settings | None = None, **given: Any) -> Memory:
    """A memory with the fallback."""
    settings = settings or Settings(**LIMITS)
    memory = Memory.connect(client=faulty._client, namespace=namespace, settings=settings, fallback=True, **given)
    memory.store.transport = faulty
    return memory


async def caught_up(memory: Memory) -> None:
    """Until nothing is left to replay."""

    async def empty() -> bool:
        health = memory.health()
        return (health.state, health.backlog_session_count) == ("closed", 0)

    await until(empty)


SETTINGS = Settings(deadline_s=5, fallback_after_s=0.02, strategy="none")
OTHERS = IDS_COUNT + 9
"""So many appends of others that the ids of those before are forgotten."""


class Place:
    """A store, a memory with the fallback on a way to it that is faulty, and another process' memory."""

    def __init__(self, namespace: str, given: Settings = SETTINGS) -> None:
        server = fakeredis.FakeServer()
        self.faulty = Faulty(server)
        self.memory = over(self.faulty, namespace, given)
        self._client = fakeredis.FakeAsyncRedis(server=server)
        self.near = Memory.connect(client=self._client, namespace=namespace, settings=given)

    async def __aenter__(self) -> Place:
        await self.memory.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.faulty.heal()
        await self.memory.aclose()
        await self.faulty.aclose()
        await self.near.aclose()
        await self._client.aclose()

    async def others(self, session_id: str, count: int = OTHERS) -> list[str]:
        """Another process writes."""
        said = [user(f"other {number}") for number in range(count)]
        for message in said:
            await self.near.session(session_id).append(message)
        return [message["content"] for message in said]

    async def caught_up(self) -> None:
        self.faulty.is_away = False
        await caught_up(self.memory)


async def lose(place: Place, fault: Fault, *messages: Any, **options: Any) -> Any:
    """An append whose reply is lost as Redis goes away."""
    place.faulty.faults.append(fault)
    appending = asyncio.ensure_future(place.memory.session("a").append(*messages, **options))
    while place.faulty.faults:  # noqa: ASYNC110 (the transport takes them)
        await asyncio.sleep(0)
    place.faulty.is_away = True
    receipt = await appending
    assert receipt.degraded
    return receipt
