"""Whatever users and workers do, the index of an owner ends equal to the owner's sessions."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.redis_server import RedisServer
from support.selection import EVERYTHING
from support.stores import PATIENCE
from support.writers import Echo, chat_message

from redismem import Memory, RedismemError, Settings
from redismem.inspection.owners import check_owners
from redismem.protocol.owner import calls
from redismem.protocol.owner.entries import decode_name
from redismem.recall.owner.cached import decode_all
from redismem.recall.owner.upkeep import OwnerIndex
from redismem.workers.owner_indexes import OwnerChecks
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=6, recent_limit=2, **PATIENCE)
SESSIONS = ("a", "b:1", "2:a:3")
OWNERS = ("ann", "ann:2")
_numbers = itertools.count()


async def do(memory: Memory, what: str, session_id: str, owner: str) -> None:
    session = memory.session(session_id, owner=owner)
    if what == "append":
        await session.append(*(chat_message(number) for number in range(7)))
    elif what == "drain":
        await Worker(memory.store, Echo()).drain()
    elif what == "window":
        real = (await session.info()).owner
        if real is not None:
            await OwnerIndex(memory.store, real).update(session_id, with_window=True)
    elif what == "clear":
        await session.clear()
    elif what == "forget":
        await session.forget(2, 3, 9)
    elif what == "pop":
        await session.pop(2)
    elif what == "rewrite":
        await session.rewrite(3, [chat_message(1, "rewritten")])
    elif what == "prune":
        await session.prune(1)
    else:
        await session.archive(2)


async def play(server: RedisServer, steps: list[list[tuple[str, str, str]]]) -> None:
    async with Memory.connect(server.url, namespace=f"owners-{next(_numbers)}", settings=SETTINGS) as memory:
        for together in steps:
            work = (do(memory, *step) for step in together)
            for outcome in await asyncio.gather(*work, return_exceptions=True):
                assert outcome is None or isinstance(outcome, RedismemError), outcome
        lives: dict[tuple[str | None, str], tuple[str, str]] = {}
        for session_id in SESSIONS:
            described = await memory.store.run(calls.describe(memory.store.keys.session(session_id)))
            lives[described.owner, session_id] = described.epoch, described.edits
        for owner in OWNERS:
            stored = await memory.store.run(calls.read_index(calls.owner_keys(memory.store.keys, owner)))
            for name, entry in decode_all(stored):
                decoded = decode_name(name)
                assert decoded is not None
                assert (entry.epoch, entry.edits) == lives.get((owner, decoded[1])), "an entry of what is gone"
        for number in range(SETTINGS.shards):
            for owner, due_ms in await memory.store.run(calls.list_indexes(memory.store.keys, number, 0, 10)):
                await OwnerChecks(memory.store).check(owner, due_ms, await memory.server_time_ms())
        assert [violation async for violation in check_owners(memory.store)] == []


STEP = some.tuples(
    some.sampled_from(["append", "append", "drain", "window", "clear", "forget", "pop", "rewrite", "prune", "archive"]),
    some.sampled_from(SESSIONS),
    some.sampled_from(OWNERS),
)


@given(some.lists(some.lists(STEP, min_size=1, max_size=3), min_size=3, max_size=7))
def test_whatever_is_done_the_index_equals_the_sessions(
    redis_server: RedisServer, steps: list[list[tuple[str, str, str]]]
) -> None:
    asyncio.run(play(redis_server, [[("append", "a", "ann")], [("drain", "a", "ann")], *steps]))


@pytest.mark.parametrize("seed", range(40 if EVERYTHING else 2))
async def test_concurrent_removals_and_updates_leave_no_entry(redis_server: RedisServer, seed: int) -> None:
    steps = [[("append", name, "ann") for name in SESSIONS] * 3, [("drain", "a", "ann"), ("window", "a", "ann")]]
    steps.append([("clear" if at % 3 == seed % 3 else "drain", name, "ann") for at in range(6) for name in SESSIONS])
    await play(redis_server, steps)
