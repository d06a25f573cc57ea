"""Forget a person: every session of an owner or prefix goes, with all copies, and a scan proves it."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio
from support.checks import insist, until
from support.damage import put_block_aside
from support.edited import is_sound, summarize
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stored import read_namespace
from support.stores import Store, short_deadlines
from support.turns import KEYS
from support.writers import chat_message

from redismem import ForgetIncomplete, ForgottenSessions, InvalidSessionId, Memory, Settings, StoreUnavailable
from redismem.blocking import memory as blocking
from redismem.memory.erasure import Wanted, count_sessions
from redismem.protocol.owners import owner_score

PATIENT = Settings(deadline_s=60, reply_timeout_s=20, fallback_after_s=20)
SETTINGS = Settings(shards=2, threshold=8, recent_limit=4, keep_originals=True)


@pytest.fixture
async def memory(store: Store, namespace: str) -> AsyncIterator[Memory]:
    async with store.memory(namespace, SETTINGS) as memory:
        yield memory


async def fill(memory: Memory, owner: str | None, *session_ids: str, count: int = 1) -> None:
    for session_id in session_ids:
        await memory.session(session_id, owner=owner).append(*map(chat_message, range(count)), merge={"a": 1})


async def names(raw: Any, namespace: str) -> str:
    """Return all keys of the namespace and everything they contain, as text."""
    return repr(await read_namespace(raw, namespace))


async def test_all_sessions_of_an_owner_go_and_no_other(memory: Memory, raw: Any, namespace: str) -> None:
    await fill(memory, "ann", "a-1", "a-2", "shared-1", count=40)
    await fill(memory, "bob", "b-1", "a-3", count=40)
    await fill(memory, None, "ann", "nobody's", count=40)
    assert await summarize(memory) == 7
    before = await read_namespace(raw, namespace)
    forgotten = await memory.forget(owner="ann")
    unnamed = ("sessions and records without an owner",)
    assert forgotten == ForgottenSessions(3, 0, 0, forgotten.proven_ms, not_searched=unnamed)
    assert forgotten.proven_ms is not None
    left = {entry.session_id for entry in (await memory.sessions()).sessions}
    assert left == {"b-1", "a-3", "ann", "nobody's"}
    after = await read_namespace(raw, namespace)
    gone = before.keys() - after.keys()
    shared = ("owners", "overdue")
    assert {name for key in gone if (name := key.rpartition(b":")[2].decode()) not in shared} == {
        *("a-1", "a-2", "shared-1"),
    }
    stored = await names(raw, namespace)
    assert not any(name in stored for name in ("a-1", "a-2", "shared-1"))
    assert await is_sound(memory)
    assert (await memory.forget(owner="ann")).session_count == 0


@pytest.mark.parametrize("prefix", ["user-4:", "a*[b]?\\", "日本", "x y "])
async def test_all_sessions_with_a_prefix_go_and_no_other(
    memory: Memory, raw: Any, namespace: str, prefix: str
) -> None:
    gone = [f"{prefix}{number}" for number in range(5)]
    left = ["user-42", "user-4", "a[b]?\\", "ab", "x", f"-{prefix}x"]
    await fill(memory, "ann", *gone)
    await fill(memory, "ann", *left)
    forgotten = await memory.forget(prefix=prefix)
    assert (forgotten.session_count, forgotten.quarantined_count, forgotten.unattributed_count) == (5, 0, 0)
    assert {entry.session_id for entry in (await memory.sessions()).sessions} == set(left)
    assert await is_sound(memory)


async def test_what_is_left_of_turns_without_a_session_goes_by_its_prefix(
    memory: Memory, raw: Any, namespace: str
) -> None:
    for name in KEYS:
        await raw.set(getattr(memory.store.keys.session(f"user-4:{name}"), name), "secret")
        await raw.set(getattr(memory.store.keys.session(f"user-42:{name}"), name), "other")
    await raw.zadd(memory.store.keys.session("user-4:expired").shard.turns, {"user-4:expired": 1})
    forgotten = await memory.forget(prefix="user-4:")
    assert forgotten.proven_ms is not None
    left = await names(raw, namespace)
    assert ("secret" in left, "expired" in left, left.count("other")) == (False, False, len(KEYS))


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"owner": ""},
        {"prefix": ""},
        {"prefix": " "},
        {"owner": " "},
        {"owner": "a", "prefix": "b"},
        {"owner": "a\n"},
        {"prefix": "a\n"},
        {"prefix": 7},
        {"owner": 7},
    ],
)
async def test_an_empty_variable_forgets_nobody(memory: Memory, named: Any) -> None:
    await fill(memory, "ann", "a-1")
    with pytest.raises(InvalidSessionId):
        await memory.forget(**named)
    assert await memory.count() == 1


async def test_copies_in_quarantine_go_by_the_owner_they_had(memory: Memory, raw: Any, namespace: str) -> None:
    await fill(memory, "ann", "broken", "later-bob", count=3)
    await fill(memory, "bob", "other", count=3)
    await fill(memory, "ann", "block", count=40)
    await summarize(memory)
    for session_id in ("broken", "later-bob", "other"):
        await raw.hset(memory.store.keys.session(session_id).state, "counters", b"broken")
        assert await memory.session(session_id).set_aside()
    await fill(memory, "bob", "later-bob")
    originals = memory.store.keys.session("block").originals
    await raw.hset(originals, "0", b"broken")
    await put_block_aside(memory, "block", 0)
    await memory.session("block").clear()
    assert (await names(raw, namespace)).count(":quarantine:block:") == 2, "with a note"
    forgotten = await memory.forget(owner="ann")
    assert (forgotten.session_count, forgotten.quarantined_count, forgotten.unattributed_count) == (0, 3, 0)
    stored = await names(raw, namespace)
    assert "broken:" not in stored
    assert ":quarantine:other:" in stored
    assert ":quarantine:later-bob:" not in stored
    assert (await memory.session("later-bob").info()).owner == "bob"
    assert (await memory.forget(prefix="oth")).quarantined_count == 1


async def test_what_cannot_be_attributed_is_counted_and_left(memory: Memory, raw: Any, namespace: str) -> None:
    await fill(memory, "ann", "torn", "strange", "damaged", count=3)
    await raw.hset(memory.store.keys.session("damaged").state, "owner", b"17 ann")
    for session_id in ("torn", "strange"):
        keys = memory.store.keys.session(session_id)
        await raw.delete(keys.state)
        await raw.zrem(keys.shard.owners, session_id)
    await raw.set(memory.store.keys.session("strange").state, "x")
    assert await memory.session("torn").set_aside()
    assert await memory.session("torn").exists() is False
    forgotten = await memory.forget(owner="ann")
    assert forgotten.unattributed_count == 3
    assert (forgotten.session_count, forgotten.quarantined_count) == (0, 0)
    assert (await memory.forget(prefix="torn")).quarantined_count == 1
    assert (await memory.forget(prefix="strange")).quarantined_count == 1
    assert "torn" not in await names(raw, namespace)


async def test_a_session_without_an_owner_is_nobodys_whatever_its_id(memory: Memory) -> None:
    await fill(memory, None, "x:originals", "x:state", "x:5:originals", "quarantine:x:5:state")
    assert (await memory.forget(owner="ann")).unattributed_count == 0
    assert await memory.count() == 4


async def test_expired_sessions_leave_no_entry_behind(memory: Memory, raw: Any, namespace: str) -> None:
    by_owner: dict[str, Any] = {"owner": "ann"}
    for forget in (by_owner, {"prefix": "gone"}):
        await fill(memory, "ann", "gone-1", count=20)
        keys = memory.store.keys.session("gone-1")
        await raw.delete(keys.state, keys.messages)
        assert "gone-1" in await names(raw, namespace)
        assert (await memory.forget(**forget)).session_count == 0
        assert "gone-1" not in await names(raw, namespace)


async def test_a_session_with_an_equal_hash_stays(memory: Memory, raw: Any) -> None:
    await fill(memory, "bob", "b-1")
    await fill(memory, "ann", "a-1")
    keys = memory.store.keys.session("b-1")
    await raw.zadd(keys.shard.owners, {"b-1": owner_score("ann")})
    assert (await memory.forget(owner="ann")).session_count == 1
    assert await memory.session("b-1").exists()


async def test_progress_is_reported_and_the_count_is_known_before(memory: Memory) -> None:
    await fill(memory, "ann", *(f"a-{number}" for number in range(7)))
    assert await count_sessions(memory.store, Wanted(owner="ann")) == 7
    assert await count_sessions(memory.store, Wanted(prefix="a-")) == 7
    assert await count_sessions(memory.store, Wanted(prefix="b-")) == 0
    counts: list[int] = []
    await memory.forget(prefix="a-", on_progress=lambda forgotten: counts.append(forgotten.session_count))
    assert counts == sorted(counts)
    assert set(counts) >= set(range(1, 8))


async def test_a_session_begun_meanwhile_goes_too(memory: Memory) -> None:
    await fill(memory, "ann", "a-1")
    begun = 0

    def begin(forgotten: ForgottenSessions) -> None:
        nonlocal begun
        if not begun:
            begun += 1
            tasks.append(asyncio.ensure_future(fill(memory, "ann", "a-2")))

    tasks: list[asyncio.Future[None]] = []
    forgotten = await memory.forget(owner="ann", on_progress=begin)
    await asyncio.gather(*tasks)
    if await memory.session("a-2").exists():  # begun after the proof
        forgotten = await memory.forget(owner="ann")
    assert forgotten.proven_ms is not None
    assert not await memory.session("a-2").exists()


@pytest.mark.parametrize("wanted", [{"owner": "ann"}, {"prefix": "a-"}])
async def test_a_session_begun_behind_the_scan_goes_too(memory: Memory, wanted: Any) -> None:
    send, begun = memory.store.run, 0

    async def begin_after(call: Any, **options: Any) -> Any:
        nonlocal begun
        value = await send(call, **options)
        if call.op == "scan" and not value.cursor and not begun:
            begun += 1
            await fill(memory, "ann", "a-1")
        return value

    memory.store.run = begin_after  # type: ignore[method-assign]
    forgotten = await memory.forget(**wanted)
    assert (begun, forgotten.session_count) == (1, 1)
    assert not await memory.session("a-1").exists()


async def test_writers_that_do_not_stop_are_reported(memory: Memory, raw: Any) -> None:
    keys = memory.store.keys.session("a-1")
    fields = {"epoch": "1-ab", "counters": b"v1 1 0 0 0 9999999999999", "owner": b"%d ann" % owner_score("ann")}
    send = memory.store.run

    async def write_after(call: Any, **options: Any) -> Any:
        value = await send(call, **options)
        if call.op == "clear":
            await raw.hset(keys.state, mapping=fields)
        return value

    await raw.hset(keys.state, mapping=fields)
    memory.store.run = write_after  # type: ignore[method-assign]
    with pytest.raises(ForgetIncomplete, match="other processes kept writing") as refused:
        await memory.forget(owner="ann")
    assert refused.value.forgotten.session_count == 4
    assert refused.value.forgotten.proven_ms is None


async def test_an_outage_says_what_was_done_and_the_next_call_goes_on(
    proxy: Proxy, direct_memory: Memory, namespace: str
) -> None:
    await fill(direct_memory, "ann", *(f"a-{number}" for number in range(10)))
    async with Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory:
        with contextlib.ExitStack() as outage:

            def cut(forgotten: ForgottenSessions) -> None:
                if forgotten.session_count == 4:
                    proxy.break_next("reset", math.inf)
                    outage.enter_context(short_deadlines(memory))

            with pytest.raises(ForgetIncomplete, match="stopped: ") as stopped:
                await memory.forget(owner="ann", on_progress=cut)
        done = stopped.value.forgotten
        assert (done.session_count, done.proven_ms) == (4, None)
        assert isinstance(stopped.value.__cause__, StoreUnavailable)
        left_count = await direct_memory.count()
        assert left_count in (5, 6), "the reply to one clear may be lost"
        proxy.heal()
        await insist(memory.ping)
        rest = await memory.forget(owner="ann")
        assert rest.session_count == left_count
        assert await direct_memory.count() == 0


DIES = """
import os, signal, sys
from redismem.blocking import Memory

def die(forgotten):
    if forgotten.session_count == 3:
        os.kill(os.getpid(), signal.SIGKILL)

Memory.connect(sys.argv[1], namespace=sys.argv[2]).forget(owner="ann", on_progress=die)
"""


async def test_after_a_kill_the_next_process_goes_on(redis_server: Any, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        await fill(memory, "ann", *(f"a-{number}" for number in range(7)))
        await fill(memory, "bob", "b-1")
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, redis_server.url, namespace)
        assert await process.wait() == -signal.SIGKILL
        assert await memory.count() == 5
        forgotten = await memory.forget(owner="ann")
        assert forgotten.session_count == 4
        assert forgotten.proven_ms is not None
        assert {entry.session_id for entry in (await memory.sessions()).sessions} == {"b-1"}


async def test_what_this_process_caches_goes_too(redis_server: Any, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS, fallback=True) as memory:
        for session_id in ("a-1", "a-2", "b-1"):
            session = memory.session(session_id, owner="ann" if session_id != "b-1" else "bob")
            await session.append_and_read(*map(chat_message, range(40)))
        await summarize(memory)
        for session_id in ("a-1", "b-1"):
            await memory.session(session_id).append_and_read(chat_message(41), recall=500)
        async with Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS) as other:
            await other.session("a-2").clear()
        fallback: Any = memory.store.fallback
        assert set(fallback._seen.owners()) == {"a-1", "a-2", "b-1"}
        assert len(memory.recall_cache) == 2
        assert (await memory.forget(owner="ann")).session_count == 1
        assert set(fallback._seen.owners()) == {"b-1"}
        assert len(memory.recall_cache) == 0


async def test_what_was_accepted_in_an_outage_goes_too(proxy: Proxy, direct_memory: Memory, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=PATIENT, fallback=True) as memory:
        await fill(memory, "ann", "a-1")
        await proxy.refuse()
        with short_deadlines(memory):
            receipts = [
                await memory.session(session_id, owner=owner).append(chat_message(2))
                for session_id, owner in (("a-1", "ann"), ("a-2", "ann"), ("b-1", "bob"))
            ]
            assert all(receipt.degraded for receipt in receipts)
            assert (await memory.session("a-2").info()).owner == "ann"
            with pytest.raises(ForgetIncomplete):
                await memory.forget(owner="ann")
        await proxy.accept_again()
        await insist(memory.ping)
        forgotten = await memory.forget(owner="ann")
        assert forgotten.proven_ms is not None
        await until(lambda: memory.health().backlog_session_count == 0)
        assert {entry.session_id for entry in (await direct_memory.sessions()).sessions} == {"b-1"}


async def test_without_the_right_to_scan_there_is_no_proof(redis_server: RedisServer, namespace: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_server.url) as admin:
        rights = ("on", "nopass", "resetchannels", "~*", "+@all", "-scan")
        await admin.execute_command("ACL", "SETUSER", namespace, *rights)
        url = redis_server.url.replace("//", f"//{namespace}:any@")
        async with Memory.connect(url, namespace=namespace) as memory:
            await fill(memory, "ann", "a-1", "a-2")
            with pytest.raises(ForgetIncomplete, match="run SCAN") as stopped:
                await memory.forget(owner="ann")
            assert stopped.value.forgotten == ForgottenSessions(2)
            assert await memory.count() == 0
        await admin.execute_command("ACL", "DELUSER", namespace)


def test_the_blocking_memory_forgets_too(redis_server: Any, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("a-1", owner="ann").append(chat_message(1))
        seen: list[ForgottenSessions] = []
        forgotten = memory.forget(owner="ann", on_progress=seen.append)
        assert (forgotten.session_count, seen[-1].session_count) == (1, 1)
        assert memory.count() == 0
