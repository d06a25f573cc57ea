"""40 writers share a session over a connection that loses replies: nothing is lost, nothing twice, order is kept."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
import redis.asyncio
from agents.extensions.memory import RedisSession
from support.compaction import needs_snapshots
from support.proxy import Proxy

from redismem import Memory, Settings
from redismem.adapters import openai_agents

WRITERS = 40
ROUNDS = 25 if "EVERYTHING" in os.environ else 2


def place_of(item: Any) -> tuple[int, int]:
    writer, number = item["content"].split(".")
    return int(writer), int(number)


async def replace_newest(read: Any) -> None:
    """Replace the newest item by itself with a mark, as often as other writers are faster."""
    while True:
        snapshot = await read(1)
        if await snapshot.replace_suffix(0, [item | {"replaced": True} for item in snapshot.items]):
            return


class Race:
    """The writers of one race, and what they were told."""

    def __init__(self) -> None:
        self.added: set[tuple[int, int]] = set()
        self.popped: list[Any] = []
        self.replaced_count = self.error_count = 0

    async def write(self, session: Any, writer: int) -> None:
        """Add items in pairs. Each eighth writer pops an item after each pair, and the next one replaces an item."""
        for number in range(ROUNDS):
            pair = [{"role": "user", "content": f"{writer}.{2 * number + half}"} for half in (0, 1)]
            try:
                await session.add_items(pair)
                self.added.update(map(place_of, pair))
                if writer % 8 == 0:
                    self.popped.append(await session.pop_item())
                elif writer % 8 == 1 and (read := getattr(session, "_get_compaction_snapshot", None)):
                    await replace_newest(read)
                    self.replaced_count += 1
            except redis.RedisError:
                self.error_count += 1

    async def run(self, proxy: Proxy, sessions: list[Any]) -> tuple[int, int, int]:
        """Return the numbers of acknowledged items that are lost, of items twice, and of items out of order."""
        losing = asyncio.create_task(lose_replies(proxy))
        await asyncio.gather(*(self.write(session, writer) for writer, session in enumerate(sessions)))
        losing.cancel()
        proxy.heal()
        left = [place_of(item) for item in await sessions[0].get_items()]
        seen = left + [place_of(item) for item in self.popped if item is not None]
        late = sum(place < before for at, place in enumerate(left) for before in left[:at] if before[0] == place[0])
        return len(self.added - set(seen)), len(seen) - len(set(seen)), late


async def lose_replies(proxy: Proxy) -> None:
    """Lose the reply of a request at a time, for as long as the writers write."""
    while True:
        proxy.break_next("reset", 1)
        lost_count = proxy.broken_count
        while proxy.broken_count == lost_count:  # noqa: ASYNC110 (until it has struck)
            await asyncio.sleep(0.001)
        served_count = len(proxy.received)
        while len(proxy.received) < served_count + 5:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@needs_snapshots
async def test_nothing_is_lost_doubled_or_out_of_order(proxy: Proxy, namespace: str) -> None:
    settings = Settings(deadline_s=120, reply_timeout_s=60)
    async with Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory:
        sessions: list[Any] = [openai_agents.Session("race", memory=memory) for _ in range(WRITERS)]
        ours = Race()
        assert await ours.run(proxy, sessions) == (0, 0, 0)
    assert (len(ours.added), ours.error_count) == (WRITERS * ROUNDS * 2, 0)
    assert len([item for item in ours.popped if item is not None]) == WRITERS // 8 * ROUNDS
    assert ours.replaced_count == WRITERS // 8 * ROUNDS
    assert proxy.broken_count


@pytest.mark.nightly
async def test_the_session_of_the_sdk_in_the_same_race(proxy: Proxy, namespace: str) -> None:
    """Print its losses alone, as they depend on the replies that are lost."""
    pool = redis.asyncio.BlockingConnectionPool(port=proxy.port, max_connections=WRITERS)
    async with redis.asyncio.Redis(connection_pool=pool) as client:
        theirs: list[Any] = [RedisSession("race", redis_client=client, key_prefix=namespace) for _ in range(WRITERS)]
        race = Race()
        lost, twice, late = await race.run(proxy, theirs)
    await pool.disconnect()
    print(f"RedisSession: {lost} lost, {twice} twice, {late} out of order, {race.error_count} errors")  # noqa: T201
