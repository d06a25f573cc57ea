"""A process that serves by itself while its Redis is away, and another that writes to that Redis meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import fakeredis

from redismem import Memory, Settings
from redismem.protocol.session.append_ids import IDS_COUNT
from support.checks import until, user
from support.faulty import Fault, Faulty

SETTINGS = Settings(deadline_s=5, fallback_after_s=0.02, strategy="none")
OTHERS = IDS_COUNT + 9
"""So many appends of others that the ids of those before are forgotten."""


class Place:
    """A store, a memory with the fallback on a way to it that is faulty, and another process' memory."""

    def __init__(self, namespace: str, given: Settings = SETTINGS) -> None:
        server = fakeredis.FakeServer()
        self.faulty = Faulty(server)
        self.memory = Memory.connect(client=self.faulty._client, namespace=namespace, settings=given, fallback=True)
        self.memory.store.transport = self.faulty
        self._client = fakeredis.FakeAsyncRedis(server=server)
        self.near = Memory.connect(client=self._client, namespace=namespace, settings=given)

    async def __aenter__(self) -> Place:
        await self.memory.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.faulty.is_away = False
        self.faulty.says = ""
        self.faulty.faults.clear()
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

        async def empty() -> bool:
            health = self.memory.health()
            return (health.state, health.backlog_session_count) == ("closed", 0)

        await until(empty)


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
