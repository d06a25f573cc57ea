"""Whatever users and workers do, what a process has cached of an owner equals what a new process reads."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from support.redis_server import RedisServer
from support.selection import EVERYTHING
from support.stores import PATIENCE
from support.writers import Echo, chat_message

from redismem import Memory, RedismemError, Settings
from redismem.recall.owner.cached import CachedOwner
from redismem.recall.owner.loading import OwnerLoader
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=6, recent_limit=2, **PATIENCE)
SESSIONS = ("a", "b:1", "2:a:3")
OWNERS = ("ann", "ann:2")
_numbers = itertools.count()


async def do(memory: Memory, what: str, session_id: str, owner: str) -> None:
    session = memory.session(session_id, owner=owner)
    if what == "append":
        await session.append(*(chat_message(next(_numbers)) for _ in range(7)))
    elif what == "drain":
        await Worker(memory.store, Echo()).drain()
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


def content(index: CachedOwner, own_id: str) -> dict[str, Any]:
    """Return what an index has of each session, of the asking one without its window."""
    found = {}
    for name, session in index.sessions.items():
        stop = session.full_stop if name == own_id else 1 << 30
        signatures = {number: each for number, each in session.signatures.items() if number < stop}
        if signatures:
            found[name] = session.state.epoch, signatures, {} if name == own_id else session.parts
    return found


async def play(server: RedisServer, steps: list[list[tuple[str, str, str]]]) -> None:
    indexes: dict[str, CachedOwner | None] = dict.fromkeys(OWNERS)
    own_ids = itertools.cycle((*SESSIONS, "new"))
    async with Memory.connect(server.url, namespace=f"owners-{next(_numbers)}", settings=SETTINGS) as memory:
        for together in steps:
            work = asyncio.gather(*(do(memory, *step) for step in together), return_exceptions=True)
            for owner in OWNERS:  # while the work is done
                indexes[owner] = await OwnerLoader(memory.store, owner, next(own_ids), indexes[owner]).load()
            for outcome in await work:
                assert outcome is None or isinstance(outcome, RedismemError), outcome
            for owner, own_id in itertools.product(OWNERS, (next(own_ids), "new")):
                known = await OwnerLoader(memory.store, owner, own_id, indexes[owner]).load()
                anew = await OwnerLoader(memory.store, owner, own_id, None).load()
                assert content(known, own_id) == content(anew, own_id)
                indexes[owner] = known
                for name in anew.sessions:
                    assert (await memory.session(name).info()).owner == owner


STEP = some.tuples(
    some.sampled_from(["append", "append", "drain", "clear", "forget", "pop", "rewrite", "prune", "archive"]),
    some.sampled_from(SESSIONS),
    some.sampled_from(OWNERS),
)


@given(some.lists(some.lists(STEP, min_size=1, max_size=3), min_size=3, max_size=7))
def test_whatever_is_done_the_cached_index_equals_a_new_one(
    redis_server: RedisServer, steps: list[list[tuple[str, str, str]]]
) -> None:
    asyncio.run(play(redis_server, [[("append", "a", "ann")], [("drain", "a", "ann")], *steps]))


@pytest.mark.parametrize("seed", range(40 if EVERYTHING else 2))
async def test_concurrent_removals_and_reads_leave_nothing(redis_server: RedisServer, seed: int) -> None:
    steps = [[("append", name, "ann") for name in SESSIONS] * 3, [("drain", "a", "ann"), ("append", "a", "ann")]]
    steps.append([("clear" if at % 3 == seed % 3 else "drain", name, "ann") for at in range(6) for name in SESSIONS])
    await play(redis_server, steps)
