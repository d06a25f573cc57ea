"""The Claude Agent SDK's session store: its contracts, and what only a store that processes share shows."""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import InMemorySessionStore, fork_session_via_store, get_session_messages_from_store
from claude_agent_sdk.testing import run_session_store_conformance
from hypothesis import given
from hypothesis import strategies as st
from support.clock import T0
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store, short_deadlines

from examples.claude_agent.played_claude import play
from redismem import InvalidMessage, InvalidRecord, InvalidSessionId, Memory, OwnerMismatch, Settings, StoreUnavailable
from redismem.adapters.claude_agent_sdk import SessionStore

ROOT = Path(__file__).parents[2]
KEY: Any = {"project_key": "shop", "session_id": "s"}
SUB: Any = KEY | {"subpath": "subagents/agent-1"}
numbers = itertools.count(1)

projects = st.sampled_from(["a", "a/b", "ä:%"])
sessions = st.sampled_from(["s", "s/t", "50%2F"])
subpaths = st.sampled_from([None, None, "subagents/agent-1", "subagents/agent-1:x"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "load", "list_sessions", "list_subkeys", "delete"]),
        projects,
        sessions,
        subpaths,
        st.lists(st.integers(0, 20), max_size=4),
    ),
    max_size=14,
)


def entry(uuid: Any = None, **more: Any) -> Any:
    return {"type": "user", **({} if uuid is None else {"uuid": uuid}), **more}


async def test_it_passes_the_contracts_of_the_sdk(store: Store, namespace: str) -> None:
    async with store.memory(namespace) as memory:
        await run_session_store_conformance(lambda: SessionStore(memory=memory, key_prefix=str(next(numbers))))


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_the_store_in_memory(
    store: Store, namespace: str, given_steps: Any
) -> None:
    async with store.memory(f"{namespace}-{next(numbers)}") as memory:
        theirs, stored = InMemorySessionStore(), set[Any]()
        # The second store knows no state of the first one's transcripts: whatever it appends, it reads before.
        ours = [SessionStore(memory=memory), SessionStore(memory=memory)]
        for number, (what, project, session_id, subpath, uuids) in enumerate(given_steps):
            # The store in memory takes no other slash than those between the parts.
            theirs_key: Any = {"project_key": project.replace("/", "-"), "session_id": session_id.replace("/", "-")}
            key: Any = {"project_key": project, "session_id": session_id}
            for each in (key, theirs_key):
                each |= {} if subpath is None else {"subpath": subpath}
            place, mine = tuple(key.items()), ours[number % 2]
            if what == "append":
                entries = [entry(str(uuid) if uuid % 3 else None, text=f"ö {number}") for uuid in uuids]
                await mine.append(key, entries)
                new = [each for each in entries if "uuid" not in each or (place, each["uuid"]) not in stored]
                new = [each for at, each in enumerate(new) if "uuid" not in each or each not in new[:at]]
                stored |= {(place, each["uuid"]) for each in new if "uuid" in each}
                if new:
                    await theirs.append(theirs_key, new)
            elif what == "list_sessions":
                listed = [each["session_id"] for each in await mine.list_sessions(project)]
                wanted = await theirs.list_sessions(theirs_key["project_key"])
                assert sorted(each.replace("/", "-") for each in listed) == sorted(
                    each["session_id"] for each in wanted
                )
                summaries = await mine.list_session_summaries(project)
                wanted_summaries = await theirs.list_session_summaries(theirs_key["project_key"])
                assert sorted(str(each["data"]) for each in summaries) == sorted(
                    str(each["data"]) for each in wanted_summaries
                )
            elif what == "list_subkeys":
                assert sorted(await mine.list_subkeys(key)) == sorted(await theirs.list_subkeys(theirs_key))
            elif what == "delete":
                await mine.delete(key)
                await theirs.delete(theirs_key)
                stored = {each for each in stored if each[0][: len(place)] != place}
            assert await mine.load(key) == await theirs.load(theirs_key)


async def test_writers_of_several_processes_keep_every_entry_once_and_in_their_order(
    redis_server: RedisServer, proxy: Proxy, namespace: str
) -> None:
    child = """
import asyncio, os, sys
from redismem import Memory
from redismem.adapters.claude_agent_sdk import SessionStore

async def main():
    async with Memory.connect(sys.argv[1], namespace=sys.argv[2]) as memory:
        store = SessionStore(memory=memory)
        for number in range(40):
            entries = [{"type": "user", "uuid": f"shared-{number}"}, {"type": "user", "uuid": f"child-{number}"}]
            await store.append({"project_key": "shop", "session_id": "s"}, entries)

asyncio.run(main())
"""
    command = [sys.executable, "-c", child, redis_server.url, namespace]
    running = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as lossy:
        proxy.break_next("reset", 4, to=b"writer")
        stores = [SessionStore(memory=lossy) for _ in range(4)]

        async def write(store: SessionStore, writer: int) -> None:
            for number in range(20):
                await store.append(KEY, [entry(f"shared-{number}"), entry(f"writer-{writer}-{number}")])

        await asyncio.gather(*(write(store, writer) for writer, store in enumerate(stores)))
        assert await running.wait() == 0
        assert proxy.broken_count == 4
        uuids = [each.get("uuid") for each in await stores[0].load(KEY) or ()]
    assert len(uuids) == len(set(uuids)) == 40 + 40 + 80
    for writer in ("child", *(f"writer-{number}" for number in range(4))):
        its = [uuid for uuid in uuids if str(uuid).startswith(f"{writer}-")]
        assert its == sorted(its, key=lambda uuid: int(str(uuid).rpartition("-")[2]))


async def test_large_batches_and_long_transcripts_are_whole_and_go_as_a_whole(
    redis_server: RedisServer, memory: Memory
) -> None:
    store = SessionStore(memory=memory)
    long = [entry(f"u{number}", message={"role": "user", "content": "secret \ud800"}) for number in range(5_500)]
    large = [entry(f"l{number}", text="x" * (9 << 20)) for number in range(2)]
    await store.append(SUB, [*long, *large])
    await store.append(SUB, [*large, entry("last")])
    assert await store.load(SUB) == [*long, *large, entry("last")]
    await store.append(KEY, [entry("a")])
    other = SessionStore(memory=memory)
    await asyncio.gather(store.delete(SUB), other.append(KEY, [entry("b")]))
    assert (await store.load(SUB), await store.list_subkeys(KEY)) == (None, [])
    record = memory.record("claude:shop/s")
    members = [found.member for found in (await record.page()).found]
    assert members == [b"e::000000000001", b"e::000000000002", b"t:"]
    assert redis_server.say("HLEN", record.keys.record) == 1 + 3 + 2 + 1
    await store.append(SUB, [entry("u1")])  # no uuid of the removed transcript is known
    assert await store.load(SUB) == [entry("u1")]


async def test_helpers_of_the_sdk_read_rename_and_fork_what_is_stored(memory: Memory) -> None:
    store = SessionStore(memory=memory)
    session_id = "0b9c3c1e-38c9-4a36-9a0c-3a3f4a0a1c11"
    key: Any = {"project_key": "-tmp", "session_id": session_id}
    for question in ("Oslo?", "Lima?"):
        await store.append(key, play(question, await store.load(key) or [], session_id))  # type: ignore[arg-type]
    fork = await fork_session_via_store(store, session_id, directory="/tmp")
    for each in (session_id, fork.session_id):
        messages = await get_session_messages_from_store(store, each, directory="/tmp")
        assert [message.type for message in messages] == ["user", "assistant"] * 4
        assert messages[-1].message["content"][0]["text"] == "Question 2: 22 degrees in Lima."


async def test_a_session_goes_with_its_person_and_is_refused_to_others(memory: Memory) -> None:
    people = {"s": "anna", "t": "bo"}
    store = SessionStore(memory=memory, owner=lambda key: people.get(key["session_id"]))
    for session_id in people:
        its: list[Any] = [KEY | {"session_id": session_id}, SUB | {"session_id": session_id}]
        for key in its:
            await store.append(key, [entry("a", text="tea")])
    bos = SessionStore(memory=memory, owner="bo")
    for refused in (bos.load(KEY), bos.append(KEY, [entry("b")]), bos.delete(KEY), bos.list_subkeys(KEY)):
        with pytest.raises(OwnerMismatch):
            await refused
    await SessionStore(memory=memory, owner="bo", key_prefix="claude:shop/x").append(KEY, [entry("a")])
    assert [each["session_id"] for each in await bos.list_sessions("shop")] == ["t"]
    assert (await memory.forget(owner="anna")).record_count == 1
    assert [each["session_id"] for each in await store.list_sessions("shop")] == ["t"]
    assert (await store.load(KEY), await store.load(SUB)) == (None, None)
    await store.append(KEY, [entry("b")])  # though this store remembers the state of the removed session
    assert await store.load(KEY) == [entry("b")]


async def test_a_session_expires_after_its_last_use(redis_server: RedisServer, namespace: str) -> None:
    now_ms = [T0]
    async with Memory.connect(redis_server.url, namespace=namespace, clock=lambda: now_ms[0]) as memory:
        store = SessionStore(memory=memory, ttl=60)
        key = memory.record("claude:shop/s").keys.record
        for use in (store.append(KEY, [entry("a")]), store.load(KEY)):
            await use
            assert redis_server.say("PEXPIRETIME", key) == now_ms[0] + 60_000
            now_ms[0] += 30_000


async def test_after_a_failed_append_the_sdk_sends_the_batch_again_and_nothing_doubles(
    proxy: Proxy, direct_memory: Memory
) -> None:
    namespace = direct_memory.store.keys.namespace
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE), fallback=True) as memory:
        store = SessionStore(memory=memory)
        await store.append(KEY, [entry("a")])
        batch = [entry("b"), entry("c")]
        with short_deadlines(memory):
            proxy.break_next("freeze", 1, to=b"u::b")  # Redis stores it, and no reply ever comes
            with pytest.raises(StoreUnavailable):
                await store.append(KEY, batch)
            await proxy.refuse()
            for refused in (store.append(KEY, batch), store.load(KEY), store.delete(KEY), store.list_sessions("shop")):
                with pytest.raises(StoreUnavailable):
                    await refused
        direct = SessionStore(memory=direct_memory)
        for _ in range(2):
            await direct.append(KEY, batch)
        assert await direct.load(KEY) == [entry("a"), *batch]
        await proxy.accept_again()


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"ttl": 0}, InvalidRecord),
        ({"key_prefix": None}, InvalidSessionId),
        ({"owner": ""}, InvalidSessionId),
    ]
    for options, error in wrong:
        with pytest.raises(error):
            SessionStore(memory=memory, **options)
    async with SessionStore("memory://") as store:
        for part in ({"project_key": ""}, {"session_id": " "}, {"subpath": ""}):
            with pytest.raises(InvalidSessionId):
                await store.append(KEY | part, [entry("a")])
        with pytest.raises(InvalidMessage):
            await store.append(KEY, [entry("a"), entry("b", text=object())])
        assert await store.load(KEY) is None
        await store.append(KEY, [])
        assert await store.list_sessions("shop") == []
