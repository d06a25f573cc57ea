"""The log of a session's turns goes with the messages that it may quote."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.conversations import user_message
from support.edited import is_sound
from support.stores import Store
from support.turns import begin, keys_left, put_turn

from redismem import Session, Settings
from redismem.inspection.weight import stored_bytes
from redismem.workers.eviction import Eviction

KEPT = Settings(shards=1, threshold=40, recent_limit=2, keep_originals=True)
Edit = Callable[[Session], Awaitable[Any]]


async def replace(session: Session) -> None:
    await session.replace((await session.read()).messages[-1], user_message("other"))


REMOVING: dict[str, Edit] = {
    "pop": lambda session: session.pop(1),
    "undo": lambda session: session.undo(),
    "rewrite": lambda session: session.rewrite(3, [user_message("other")]),
    "replace": replace,
    "prune": lambda session: session.prune(1),
}
KEEPING: dict[str, Edit] = {
    "archive": lambda session: session.archive(1),
    "append": lambda session: session.append(user_message("more")),
    "touch": lambda session: session.touch(),
}


@pytest.mark.parametrize("name", [*REMOVING, *KEEPING, "forget"])
async def test_edits_remove_the_log_of_an_ended_turn(store: Store, namespace: str, raw: Any, name: str) -> None:
    edits = REMOVING | KEEPING | {"forget": lambda session: session.forget(2)}
    async with store.memory(namespace, KEPT) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await session.append(*map(user_message, "abcd"))
        await put_turn(raw, keys, "d", first_seq=4)
        await edits[name](session)
        log = {"live"} if name in KEEPING else set()
        assert await keys_left(raw, keys) == {"turned", "waiters", "turn"} | log


@pytest.mark.parametrize("name", [*REMOVING, *KEEPING])
async def test_a_running_turn_goes_on_after_an_edit(store: Store, namespace: str, raw: Any, name: str) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await session.append(*map(user_message, "abcd"))
        await put_turn(raw, keys, first_seq=4)
        await (REMOVING | KEEPING)[name](session)
        assert await keys_left(raw, keys) == {"live", "turned", "waiters", "turns", "turn"}


async def test_a_running_turn_is_lost_if_a_message_is_forgotten(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await session.append(*map(user_message, "abcd"))
        await put_turn(raw, keys, first_seq=4)
        await session.forget(2)
        assert await keys_left(raw, keys) == {"turned", "waiters"}
        assert await is_sound(memory)


async def test_the_numbers_of_a_session_tell_its_turn(store: Store, namespace: str) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session = memory.session("a")
        await session.append(user_message("a"))
        assert (await session.info()).turn is None
        turn = await begin(memory, "a", "told")
        assert (await session.info()).turn == "running"
        assert await turn.end()
        assert (await session.info()).turn == "done"


async def test_a_turn_weighs_with_its_session(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT) as memory:
        await memory.session("a").append(user_message("a"))
        before = await stored_bytes(memory.store, ["a"])
        if before is None:
            pytest.skip("this store does not know MEMORY")
        turn = await begin(memory, "a", "told" * 10_000)
        running = await stored_bytes(memory.store, ["a"])
        assert running is not None
        assert running >= before + 40_000
        assert await turn.end()
        ended = await stored_bytes(memory.store, ["a"])
        assert ended is not None
        assert ended > running


async def test_the_sweep_removes_the_turn_of_a_session_that_is_gone(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, KEPT) as memory:
        session, keys = memory.session("a"), memory.store.keys.session("a")
        await session.append(user_message("a"))
        await put_turn(raw, keys)
        await raw.zadd(keys.shard.turns, {"gone": 1})
        assert await Eviction(memory.store).sweep() == (1, 0)
        assert await raw.zrange(keys.shard.turns, 0, -1) == [b"a"]
