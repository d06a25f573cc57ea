"""The server dies within a script that begins, removes or restores a session: its log is cut, and replayed twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import user
from support.clock import Clock
from support.cut_logs import (
    SETTINGS,
    check_cut_anywhere,
    command_offsets,
    commit,
    crash,
    log_path,
    read_session,
    read_window,
)
from support.quarantined import move_session
from support.redis_server import RedisServer

from redismem import Memory, Session
from redismem.inspection import quarantine
from redismem.inspection.check import check
from redismem.protocol import quarantine as quarantine_calls
from redismem.protocol.call import Call
from redismem.protocol.ids import now_ms
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue import calls as queue_calls
from redismem.protocol.session.clear import clear, clear_life
from redismem.protocol.session.quarantine import revive, stage
from redismem.workers.eviction import Eviction

STAGED_AT_MS = 1_900_000_000_000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


async def prepare_eviction(memory: Memory) -> Call[Any]:
    """The last step of the eviction of a selected session."""
    calls, store = memory.store.queue_calls("a"), memory.store
    seen_ms = (await memory.session("a").info()).active_ms
    chosen = [(calls.keys, seen_ms)]
    choose = queue_calls.queue_eviction(calls.keys.shard, chosen, EvictionReason.LIMIT, store.clock, True)
    assert (await store.run(choose))[0] == 1
    assert await store.run(calls.claim_eviction())
    return calls.evict(await read_window(memory))


async def prepare_clear(memory: Memory) -> Call[Any]:
    calls = memory.store.session_calls("a")
    return clear_life(calls.keys, await memory.store.run(calls.epoch()))


async def prepare_restore(memory: Memory, raw: Any, spoilt: bool) -> Call[Any]:
    """A session with originals is restored from quarantine: unchanged, or without an unreadable message."""
    store, calls = memory.store, memory.store.session_calls("a")
    if spoilt:
        await raw.lset(calls.keys.messages, 1, b"\xc1")
    assert await move_session(store, "a", now_ms())
    entry = await quarantine.find(store, "a", None)
    parts = await quarantine.read(store, entry)
    assert bool(parts.faults) is spoilt
    place, put_ms = entry.copy.place, entry.put_ms
    revival = revive(parts, parts.epoch, await store.server_time_ms(), store.settings)
    if spoilt:
        put_ms = STAGED_AT_MS
        await store.run(stage(calls.keys, put_ms, revival.sets, parts.elements, {}))
        revival = revival._replace(sets={})
    return quarantine_calls.restore_copy(place, put_ms, revival)


async def call_of(memory: Memory, raw: Any, name: str) -> Call[Any]:
    """Return the call that evicts, clears or restores a session with a summary and its originals."""
    messages = [{"role": "system", "content": "Be brief."}, *(user(str(at)) for at in range(9))]
    owner = None if name == "clear at once" else "ann"  # a session with an owner takes two steps
    await memory.session("a", owner=owner).append(*messages)
    await memory.store.run(await commit(memory, await read_window(memory)))
    if name == "evict":
        return await prepare_eviction(memory)
    if name == "clear":
        return await prepare_clear(memory)
    if name == "clear at once":
        return clear(memory.store.keys.session("a"), memory.store.settings)
    return await prepare_restore(memory, raw, name != "restore")


async def goes_on(session: Session) -> None:
    await session.append(user("next"))


@pytest.mark.parametrize("name", ["evict", "clear", "clear at once", "restore", "restore what can be read"])
async def test_a_log_cut_within_a_removal_or_restore_is_replayed_twice(server: RedisServer, name: str) -> None:
    async with Memory.connect(server.url, settings=SETTINGS) as memory, redis.asyncio.Redis(port=server.port) as raw:
        call = await call_of(memory, raw, name)
        assert await check_cut_anywhere(server, memory, call, goes_on) > 3
        aside = [key async for key in raw.scan_iter("*quarantine*")]
        assert bool(aside) is (name == "restore what can be read"), "a copy leaves there what it was made of"


@pytest.mark.parametrize("name", ["evict", "clear", "clear at once"])
async def test_a_cut_removal_that_is_never_repeated_loses_nothing(server: RedisServer, name: str, clock: Clock) -> None:
    """The caller has died too: the session has only later messages. The index of active sessions is repaired."""
    async with (
        Memory.connect(server.url, settings=SETTINGS, clock=clock) as memory,
        redis.asyncio.Redis(port=server.port) as raw,
    ):
        call = await call_of(memory, raw, name)
        session, before = memory.session("a"), log_path(server).read_bytes()
        assert await memory.store.run(call)
        whole = log_path(server).read_bytes()
        for at in command_offsets(before, whole)[:-1]:
            await crash(server, whole[: at + 6])
            await goes_on(session)
            found = await read_session(session)
            assert found
            await crash(server)
            assert await read_session(session) == found
            clock.now_ms += 2_000  # activity is stored in whole seconds
            await goes_on(session)
            await Eviction(memory.store).sweep()
            assert [violation async for violation in check(memory.store)] == []


async def test_a_session_begun_in_a_cut_log_has_its_owner_or_is_not_there(server: RedisServer, clock: Clock) -> None:
    """The log is cut at each command before the one that writes the message."""
    async with (
        Memory.connect(server.url, settings=SETTINGS, clock=clock) as memory,
        redis.asyncio.Redis(port=server.port) as raw,
    ):
        session, owners = memory.session("a", owner="ann"), memory.store.keys.session("a").shard.owners
        await memory.session("another").append(user("first"))
        before = log_path(server).read_bytes()
        await session.append(user("first"), id="1")
        whole = log_path(server).read_bytes()
        cuts = [at for at in command_offsets(before, whole) if b"RPUSH" not in whole[len(before) : at + 32]]
        assert len(cuts) > 4
        for at in cuts:
            await crash(server, whole[: at + 6])
            await session.append(user("first"), id="1")
            await crash(server)
            info = await session.info()
            assert (info.owner, info.total_messages) == ("ann", 1)
            assert [violation async for violation in check(memory.store)] == []
            await crash(server, whole[: at + 6])
            assert not await session.exists()
            await Eviction(memory.store).sweep()
            assert await raw.zcard(owners) == 0
