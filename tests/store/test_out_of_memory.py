"""A Redis that is out of memory: workers go on, and their work frees memory. (Chats: test_server_words.)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio
from support.checks import answers_transactions, catch_unavailable, silent_logs, user  # noqa: F401 (an autouse fixture)
from support.clock import T0, Clock
from support.conversations import contents, user_message
from support.quarantined import move_record, move_session
from support.redis_server import RedisServer
from support.writers import Echo, fill

from redismem import Memory, Settings, StoreUnavailable
from redismem.context.context import Context
from redismem.inspection import quarantine
from redismem.models import Draft
from redismem.record import Change
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

TEXT = "x" * 50_000
FREED = 0.5  # Least share of the removed bytes that is freed: scripts loaded meanwhile, and buffers, take some.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("full")).start()
    yield server
    server.stop()


@pytest.fixture
async def raw(server: RedisServer) -> AsyncIterator[Any]:
    async with redis.asyncio.Redis(port=server.port) as raw:
        yield raw
        await raw.config_set("maxmemory", 0)


async def run_out(raw: Any) -> int:
    """Fill the server, and return the bytes in use at its limit."""
    await raw.config_set("maxmemory", 1)
    return await used_bytes(raw)


async def used_bytes(raw: Any) -> int:
    return int((await raw.info("memory"))["used_memory"])


async def test_a_read_that_would_renew_the_expiry_is_answered(
    server: RedisServer, raw: Any, namespace: str, clock: Clock
) -> None:
    settings = Settings(shards=2, idle_timeout_s=1600)
    async with Memory.connect(server.url, namespace=namespace, settings=settings, clock=clock) as memory:
        session = memory.session("a")
        await session.append(user("kept"))
        before = await session.info()
        clock.now_ms += 200_000
        await run_out(raw)
        assert len((await session.read(renew=True)).messages) == 1
        assert len(await session.tail(9, renew=True)) == 1
        assert (await session.state(renew=True)).params == {}
        assert await session.info() == before
        assert (await catch_unavailable(session.touch())).reason == "OOM"
        await raw.config_set("maxmemory", 0)
        await memory.store.side_work.end(60)
        await session.read(renew=True)
        await memory.store.side_work.end(60)
        assert (await session.info()).expires_ms == before.expires_ms + 200_000


async def test_summaries_are_written_and_make_room(server: RedisServer, raw: Any, namespace: str) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2)) as memory:
        sessions = [memory.session(f"s-{number}") for number in range(4)]
        for session in sessions:
            await fill(session, 20, text=TEXT)
        before = [(await session.read()).messages[-6:] for session in sessions]
        full_bytes = await run_out(raw)
        assert (await catch_unavailable(sessions[0].append(user("refused")))).reason == "OOM"
        strategy = Echo()
        strategy.drafts.extend(Draft("in short", 0, 0, "echo") for _ in sessions)
        worker = Worker(memory.store, strategy)
        await worker.drain()
        assert worker.outcomes == {"ok": 4}
        assert await used_bytes(raw) < full_bytes - FREED * 4 * 14 * len(TEXT)
        for session, recent in zip(sessions, before, strict=True):
            context = await session.read()
            assert [summary.text for summary in context.summaries] == ["in short"]
            assert context.messages == recent
        await raw.config_set("maxmemory", 0)
        assert (await sessions[0].append(user("taken"))).last_seq == 21


async def test_an_earlier_append_is_known(server: RedisServer, raw: Any, namespace: str) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2)) as memory:
        session = memory.session("s")
        receipt = await session.append(user("a"), id="1")
        await run_out(raw)
        again = await session.append(user("a"), id="1")
        assert (again.duplicate, again.last_seq) == (True, receipt.last_seq)
        assert (await catch_unavailable(session.append(user("b"), id="2"))).reason == "OOM"


async def test_a_session_that_is_cleared_after_its_claim_is_left_alone(
    server: RedisServer, raw: Any, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2)) as memory:
        session, strategy = memory.session("s"), Echo()
        await fill(session, 12)
        await run_out(raw)
        if await answers_transactions(raw):
            pytest.skip("this server answers the claim and its reads in one call")
        run = memory.store.transport.run

        async def too_late(commands: Any, timeout_s: float, script: Any, *others: Any) -> list[Any]:
            replies = await run(commands, timeout_s, script, *others)
            if len(commands) == 1 and script is not None and script.name == "claim":
                assert await session.clear()
            return replies

        monkeypatch.setattr(memory.store.transport, "run", too_late)
        assert await Worker(memory.store, strategy).summarise("s") == "gone"
        assert strategy.seen == []
        assert not await session.exists()


@pytest.mark.parametrize("reason", ["limit", "idle"])
@pytest.mark.parametrize("handed_over", [True, False])
async def test_sessions_are_evicted_and_make_room(
    server: RedisServer, raw: Any, namespace: str, reason: str, handed_over: bool, clock: Clock
) -> None:
    handed: dict[str, Context] = {}

    async def keep(session_id: str, context: Context) -> None:
        handed[session_id] = context

    settings = Settings(shards=2, max_sessions=1 if reason == "limit" else 1_000)
    async with Memory.connect(server.url, namespace=namespace, settings=settings, clock=clock) as memory:
        for number in range(4):
            await clock.run_at(T0 + number * 1_000, fill(memory.session(f"s-{number}"), 8, text=TEXT))
        now_ms = T0 + 4_000 if reason == "limit" else T0 + settings.idle_timeout_ms + 2_001
        full_bytes = await run_out(raw)
        assert await clock.run_at(now_ms, Eviction(memory.store, keep if handed_over else None).enforce()) == 3
        assert await used_bytes(raw) < full_bytes - FREED * 3 * 8 * len(TEXT)
        assert [await memory.session(f"s-{number}").exists() for number in range(4)] == [False, False, False, True]
        assert {session_id: len(context.messages) for session_id, context in handed.items()} == (
            {"s-0": 8, "s-1": 8, "s-2": 8} if handed_over else {}
        )


async def test_a_lease_can_be_kept(server: RedisServer, raw: Any, namespace: str, clock: Clock) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2), clock=clock) as memory:
        await fill(memory.session("s"), 12)
        calls = memory.store.queue_calls("s")
        job = await memory.store.run(calls.claim())
        assert not isinstance(job, str)
        await run_out(raw)
        clock.now_ms = T0 + 1
        assert await memory.store.run(calls.extend(job.fence))
        assert (
            await raw.zscore(memory.store.keys.session("s").shard.leased, "s")
            == T0 + 1 + 1000 * memory.settings.lease_s
        )


async def test_copies_in_quarantine_and_all_of_a_person_can_be_removed(
    server: RedisServer, raw: Any, namespace: str
) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2)) as memory:
        for name in ("dropped", "forgotten", "owned"):
            session = memory.session(name, owner="ann")
            await session.append(user(TEXT))
            if name != "owned":
                await raw.hset(memory.store.keys.session(name).state, "counters", "garbage")
                assert await session.set_aside()
        await run_out(raw)
        assert await quarantine.drop(memory.store, await quarantine.find(memory.store, "dropped", None))
        assert (await memory.forget(prefix="forgotten")).quarantined_count == 1
        forgotten = await memory.forget(owner="ann")
        assert forgotten.proven_ms is not None
        assert not await memory.session("owned").exists()


@pytest.mark.parametrize("owner", [None, "ann"])
@pytest.mark.parametrize("is_record", [False, True])
async def test_what_is_in_quarantine_comes_back(
    server: RedisServer, raw: Any, namespace: str, is_record: bool, owner: str | None
) -> None:
    async with Memory.connect(server.url, namespace=namespace, settings=Settings(shards=2)) as memory:
        session, record = memory.session("a", owner=owner), memory.record("a", owner=owner)

        async def write(text: str) -> None:
            await (
                record.write(Change(sets={b"m": text.encode()})) if is_record else session.append(user_message(text))
            )

        async def read() -> list[Any]:
            return await record.get(b"m") if is_record else contents((await session.read()).messages)

        async def find(put_ms: int | None = None) -> quarantine.Quarantined:
            return await quarantine.find(memory.store, "a", put_ms, is_record=is_record)

        for put_ms, text in enumerate(("old", "new"), 77):
            await write(text)
            store = memory.store
            assert await (move_record(store, record.keys, put_ms) if is_record else move_session(store, "a", put_ms))
        await run_out(raw)
        with pytest.raises(StoreUnavailable, match="OOM"):
            await write("refused")
        await quarantine.restore(memory.store, await find(78))
        assert await read() == ([b"new"] if is_record else ["new"])
        await quarantine.restore(memory.store, await find(77), swap=True)
        assert await read() == ([b"old"] if is_record else ["old"])
        assert (await find()).put_ms > 78, "the other one, which was live"
