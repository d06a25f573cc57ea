"""Count the round trips of a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redismem.protocol import scripts
from redismem.protocol.call import Call, Command, Subject
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.scripts import Script
from redismem.store.store import Store
from redismem.transport.base import Transport
from redismem.transport.replicas import Wanted


class CountingTransport:
    """A transport that counts its round trips, without the checks of the namespace's record.

    A store repeats such a check at most once a second, when a session is created: it belongs to no turn.
    """

    def __init__(self, inner: Transport, record_check: Sequence[Command]) -> None:
        self._inner = inner
        self._record_check = record_check
        self.repeats = inner.repeats
        self.blocks = inner.blocks
        self.place = inner.place
        self.nodes = inner.nodes
        self.calls_count = 0
        self.trips = 0

    async def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> list[Any]:
        self.trips += commands != self._record_check
        return await self._inner.run(commands, timeout_s, script, subject)

    async def run_independent(self, commands: Sequence[Command], timeout_s: float) -> list[Any]:
        self.trips += 1
        return await self._inner.run_independent(commands, timeout_s)

    async def run_confirmed(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None, wanted: Wanted
    ) -> list[Any]:
        self.trips += 1
        return await self._inner.run_confirmed(commands, timeout_s, script, wanted)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)

    async def aclose(self) -> None:
        """Close nothing: the connections belong to the original store."""

    def drop(self) -> None:
        """Close nothing: the connections belong to the original store."""


def count_trips(store: Store) -> tuple[Store, CountingTransport]:
    """Return a second store over the same connections, and the transport that counts its round trips."""
    transport = CountingTransport(store.transport, namespace_calls.read_record(store.keys).commands)
    return Store(transport, store.keys.namespace, store.settings), transport


async def warm_up(store: Store, connections: int = 1) -> None:
    """Open connections and load the append script, as in a long-running process. Raises StoreUnavailable."""
    await store.run(Call(None, (("SCRIPT", "LOAD", scripts.load("append").source),), bool))
    await asyncio.gather(*(store.run(namespace_calls.ping()) for _ in range(connections)))
