"""Strands' storage: the contract of its own storages, and its session manager on it."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from strands import Agent
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage, LocalFileStorage
from strands.storage import Storage as Theirs
from strands.types.exceptions import StorageError
from support.clock import T0
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, short_deadlines

from examples.strands_agent import PlayedModel, look_up_weather
from redismem import InvalidRecord, InvalidSessionId, InvalidSettings, RecordConflict, Settings
from redismem import Memory as AsyncMemory
from redismem.adapters.strands import Storage
from redismem.blocking import Memory

ROOT = Path(__file__).parents[2]
numbers = itertools.count(1)


@pytest.fixture(params=["real", "embedded"])
def memory(request: pytest.FixtureRequest, namespace: str) -> Iterator[Memory]:
    url = "memory://" if request.param == "embedded" else request.getfixturevalue("redis_server").url
    with Memory.connect(url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


# A file of LocalFileStorage cannot be a folder too, so the last segment of a key has names of its own.
folders = st.lists(st.sampled_from(["d", "e", "d.e", "ö"]), max_size=2).map(lambda each: "/".join([*each, ""]))
names = st.sampled_from(["x", "y//", "x.json", "..", "a\\b"])
keys = st.builds("{}{}{}".format, st.sampled_from(["", "/"]), folders, names) | st.just("/")
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "read", "delete", "list"]), keys, st.binary(max_size=20)), max_size=10
)


async def outcome(storage: Any, method: str, *arguments: Any) -> Any:
    try:
        return await getattr(storage, method)(*arguments)
    except StorageError as error:
        return type(error)


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_strands_own_storages(
    memory: Memory, tmp_path: Path, given_steps: Any
) -> None:
    others: list[Any] = [InMemoryStorage(), LocalFileStorage(str(tmp_path / str(next(numbers))))]
    ours = Storage(memory=memory)
    for key in await ours.list():
        await ours.delete(key)
    for method, key, data in given_steps:
        arguments = (key, data) if method == "write" else (key[: len(key) // 2] if method == "list" else key,)
        results = [await outcome(storage, method, *arguments) for storage in (ours, *others)]
        assert results == [results[0]] * 3, (method, arguments)
    assert await ours.list() == await others[0].list()
    assert await ours.search("x") == await others[0].search("x")


async def test_prefix_and_key_are_told_apart_and_keys_are_listed_as_they_were_written(memory: Memory) -> None:
    storages = {prefix: Storage(memory=memory, key_prefix=prefix) for prefix in ("", "acme", "acme:admin")}
    written = ["admin:secret", "acme:admin:secret", "secret", "50%", "50%25", "a%3Ab"]
    for prefix, storage in storages.items():
        for key in written:
            await storage.write(key, f"{prefix} {key}".encode())
    for prefix, storage in storages.items():
        assert await storage.list() == sorted(written)
        assert await storage.list("50%") == ["50%", "50%25"]
        assert await storage.list("admin:") == ["admin:secret"]
        assert [await storage.read(key) for key in written] == [f"{prefix} {key}".encode() for key in written]


async def test_an_agent_goes_on_and_goes_back_and_its_deleted_session_leaves_nothing(memory: Memory) -> None:
    def open_agent(user: str = "anna") -> tuple[Any, Any]:
        manager = SnapshotSessionManager(user, storage=Storage(memory=memory), snapshot_trigger=lambda **_: True)
        agent = Agent(
            PlayedModel(), tools=[look_up_weather], session_manager=manager, callback_handler=None, agent_id="a"
        )
        return manager, agent

    assert isinstance(Storage(memory=memory), Theirs)
    for question, count in (("Oslo and Rome?", 4), ("Lima?", 8)):
        manager, agent = open_agent()
        await agent.invoke_async(question)
        assert len(agent.messages) == count
    manager, agent = open_agent()
    first, second = await manager.list_snapshot_ids(agent)
    assert await manager.list_snapshot_ids(agent, start_after=first) == [second]
    assert await manager.restore_snapshot(agent, snapshot_id=first)
    assert len(agent.messages) == 4
    await open_agent("bo")[1].invoke_async("Rome?")
    await manager.delete_session()
    assert [each.id.split("/")[1] for each in (memory.records()).records] == ["bo", "bo"]


def test_agents_in_threads_share_a_storage_though_strands_gives_each_call_a_loop(memory: Memory) -> None:
    storage, errors = Storage(memory=memory), []

    def answer(user: str) -> None:
        try:
            for count in (4, 8):
                manager = SnapshotSessionManager(user, storage=storage)
                agent = Agent(
                    PlayedModel(), tools=[look_up_weather], session_manager=manager, callback_handler=None, agent_id="a"
                )
                agent(f"Oslo for {user}?")
                assert len(agent.messages) == count
                assert user in agent.messages[-4]["content"][0]["text"]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=answer, args=(f"user-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


async def test_with_a_single_writer_a_stale_agent_is_refused_instead_of_overwriting(memory: Memory) -> None:
    def open_agent() -> Any:
        storage = Storage(memory=memory, single_writer=True)
        manager = SnapshotSessionManager("anna", storage=storage)
        return Agent(PlayedModel(), session_manager=manager, callback_handler=None, agent_id="a")

    for _ in range(2):  # begins the session, then goes on with it
        first, second = open_agent(), open_agent()
        await first.invoke_async("Oslo?")
        with pytest.raises(StorageError) as refused:
            await second.invoke_async("Rome?")
        assert isinstance(refused.value.__cause__, RecordConflict)
        await first.invoke_async("Lima?")
    assert [text for text in texts(open_agent()) if text.endswith("?")] == ["Oslo?", "Lima?"] * 2
    ours, other = Storage(memory=memory, single_writer=True), Storage(memory=memory)
    await ours.write("notes", b"1")
    await other.write("notes", b"2")  # without the option, the last one wins
    assert await outcome(ours, "write", "notes", b"3") is StorageError
    assert await ours.read("notes") == b"2"
    await ours.write("notes", b"3")
    await other.delete("notes")
    assert await outcome(ours, "write", "notes", b"4") is StorageError
    await ours.delete("notes")
    await ours.write("notes", b"5")
    assert await other.read("notes") == b"5"


def texts(agent: Any) -> list[str]:
    return [block["text"] for message in agent.messages for block in message["content"] if "text" in block]


async def test_an_outage_is_a_storage_error_and_no_missing_key(proxy: Proxy, namespace: str) -> None:
    memory = Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE), fallback=True)
    storage = Storage(memory=memory)
    await storage.write("a", b"1")
    await proxy.refuse()
    with short_deadlines(memory):
        for method, arguments in (("read", ["a"]), ("write", ["a", b"2"]), ("delete", ["a"]), ("list", [])):
            assert await outcome(storage, method, *arguments) is StorageError
    await proxy.accept_again()
    await asyncio.to_thread(memory.close)


async def test_a_key_expires_after_its_ttl_and_needs_no_place_among_the_sessions(
    redis_server: RedisServer, namespace: str
) -> None:
    with Memory.connect(
        redis_server.url, namespace=namespace, settings=Settings(max_sessions=1), clock=lambda: T0, workers=True
    ) as memory:
        storage = Storage(memory=memory, ttl=60)
        for number in range(3):
            await storage.write(f"a/{number}", b"1")
            await asyncio.to_thread(memory.session(str(number)).append, {"role": "user", "content": "hello"})
        assert await storage.list("a") == ["a/0", "a/1", "a/2"]
    with redis.Redis(port=redis_server.port) as raw:
        [key] = raw.keys(f"*{namespace}:*record:strands:a/1")
        assert raw.pexpiretime(key) == T0 + 60_000


async def test_what_an_agent_keeps_is_forgotten_with_the_person(memory: Memory) -> None:
    people = {"s1": "anna", "s2": "bo"}
    storage = Storage(memory=memory, owner=lambda key: people.get(key.split("/")[1]))
    for session_id in people:
        manager = SnapshotSessionManager(session_id, storage=storage, snapshot_trigger=lambda **_: True)
        agent = Agent(PlayedModel(), session_manager=manager, callback_handler=None, agent_id="a")
        await agent.invoke_async("Oslo?")
    await storage.write("/notes//s1", b"anna prefers tea")
    await storage.write("notes/s3", b"of nobody")
    removed = await asyncio.to_thread(memory.forget, owner="anna")
    assert (removed.record_count, removed.session_count) == (3, 0)
    left = await storage.list()
    assert len(left) == 3
    assert all("s1" not in key for key in left)
    await Storage(memory=memory, owner="cy").write("cy", b"coffee")
    assert (await asyncio.to_thread(memory.forget, owner="cy")).record_count == 1
    with pytest.raises(StorageError, match="an owner is"):
        await Storage(memory=memory, owner=lambda _: "").write("a", b"1")
    with pytest.raises(IndexError):
        await storage.write("a", b"1")
    assert await storage.list() == left


async def test_invalid_arguments_are_refused(memory: Memory) -> None:
    async_memory: Any = AsyncMemory.connect("memory://")
    for options, error in (
        ({"memory": memory, "ttl": 0}, InvalidRecord),
        ({"memory": memory, "key_prefix": None}, InvalidSessionId),
        ({"memory": memory, "owner": ""}, InvalidSessionId),
        ({"memory": memory, "url": "memory://"}, InvalidSettings),
        ({"memory": async_memory}, InvalidSettings),
    ):
        with pytest.raises(error):
            Storage(**options)
    with Storage("memory://") as own:
        assert await own.list() == []
