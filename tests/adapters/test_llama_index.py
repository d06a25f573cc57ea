"""LlamaIndex's chat store: the same answers as the framework's own, beside workers, other writers and outages."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import Memory as FrameworkMemory
from llama_index.core.storage.chat_store.base_db import MessageStatus
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from sqlalchemy import select
from support.clock import Clock
from support.memory_blocks import Flushed
from support.proxy import Proxy
from support.redis_server import RedisServer
from support.stores import PATIENCE, Store, short_deadlines
from support.writers import Echo

from redismem import (
    InvalidMessage,
    InvalidSessionId,
    InvalidSettings,
    Memory,
    Session,
    Settings,
    StoreUnavailable,
    TooLarge,
)
from redismem.adapters.llama_index import ChatStore
from redismem.adapters.llama_index import messages as stored_messages
from redismem.adapters.repairs import Orphans
from redismem.models import open_extractive
from redismem.protocol.keys import Keys
from redismem.workers.eviction import Eviction
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

ONE_SHARD = Settings(shards=1)
ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
_numbers = itertools.count(1)

texts = st.text(max_size=8)
blocks = st.one_of(
    st.builds(lambda text: TextBlock(text=text), texts),
    st.builds(lambda text: ThinkingBlock(content=text), texts),
    st.builds(lambda image: ImageBlock(image=image), st.binary(min_size=1, max_size=8)),
    st.builds(lambda id, text: ToolCallBlock(tool_call_id=id, tool_name="f", tool_kwargs=text), st.text("ab"), texts),
)
extra = st.dictionaries(st.sampled_from(["tool_call_id", "name", "n"]), texts | st.integers() | st.none(), max_size=2)
messages = st.builds(
    lambda role, parts, more: ChatMessage(role=role, blocks=parts, additional_kwargs=more),
    st.sampled_from([MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL, MessageRole.SYSTEM]),
    st.lists(blocks, max_size=2),
    extra,
)
status = st.sampled_from([ACTIVE, ACTIVE, ARCHIVED])
any_status = st.sampled_from([ACTIVE, ARCHIVED, None])
counts = st.integers(0, 5)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add_message"), messages, status),
        st.tuples(st.just("add_messages"), st.lists(messages, min_size=1, max_size=14), status),
        st.tuples(st.just("set_messages"), st.lists(messages, max_size=4), status),
        st.tuples(st.just("archive_oldest_messages"), counts),
        st.tuples(st.just("delete_oldest_messages"), counts),
        st.tuples(st.just("delete_messages"), any_status),
        st.tuples(st.just("delete_message"), st.integers(0, 8)),
    ),
    min_size=1,
    max_size=5,
)


class Sql(SQLAlchemyChatStore):
    """The framework's own store, with the row ids that it does not tell."""

    async def row_ids(self, key: str) -> list[int]:
        make_session, table = await self._initialize()
        async with make_session() as session:
            query = select(table.c.id).where(table.c.key == key).order_by(table.c.timestamp, table.c.id)
            return [row[0] for row in (await session.execute(query)).fetchall()]


@pytest.fixture
async def sql() -> AsyncIterator[Sql]:
    store = Sql(table_name="messages")
    await store.count_messages("")
    yield store
    assert store._async_engine is not None
    await store._async_engine.dispose()


@pytest.fixture
async def both(store: Store, namespace: str) -> AsyncIterator[tuple[Memory, Memory]]:
    """The memories of the adapter and of an app."""
    async with store.memory(namespace, ONE_SHARD) as memory, store.memory(namespace, ONE_SHARD) as app:
        yield memory, app


def user_message(text: object) -> ChatMessage:
    return ChatMessage(role=MessageRole.USER, content=str(text))


def contents(messages: Sequence[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


async def play(store: Any, key: str, read_ids: Callable[[], Awaitable[list[int]]], step: Sequence[Any]) -> Any:
    name, *arguments = step
    if name == "delete_message":
        arguments = [([*await read_ids(), *[10_000] * 9])[arguments[0]]]
    return await getattr(store, name)(key, *arguments)


async def read_seqs(session: Session) -> list[int]:
    return [message.seq for message in await session.tail(200)]


@pytest.fixture
def as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read calls without results, and results without calls, as they are stored: test_repairs.py has the repairs."""
    monkeypatch.setattr(stored_messages, "find_orphans", lambda *_, **__: Orphans())


# The last of the archived messages goes, a message that was added as archived is among the active ones, and the archive
# is longer than a block.
@pytest.mark.usefixtures("as_stored")
@example(
    steps=[
        ("add_messages", [user_message(number) for number in range(9)], ACTIVE),
        ("add_messages", [user_message("archived")], ARCHIVED),
        ("add_messages", [user_message(number) for number in range(14)], ACTIVE),
        ("archive_oldest_messages", 3),
        ("delete_message", 2),
        ("archive_oldest_messages", 15),
        ("delete_oldest_messages", 1),
    ],
    limit=None,
    offset=None,
)
@given(steps=steps, limit=st.none() | counts, offset=st.none() | counts)
async def test_it_answers_as_the_frameworks_own_store(
    both: tuple[Memory, Memory], sql: Sql, steps: list[tuple[Any, ...]], limit: int | None, offset: int | None
) -> None:
    """Beside a worker with default settings, and an app that reads the session."""
    (memory, app), key = both, f"k{next(_numbers)}"
    ours, worker = ChatStore(memory=memory), Worker(app.store, Echo())
    other, same = app.session(f"of-the-app-{key}"), app.session(f"llama_index:{key}")
    await other.append(*({"role": "user", "content": str(number)} for number in range(12)))
    for step in steps:
        expected = await play(sql, key, lambda: sql.row_ids(key), step)
        assert await play(ours, key, lambda: read_seqs(same), step) == expected
        await worker.drain()
        assert await ours.get_messages(key) == await sql.get_messages(key)
    for which in (ACTIVE, ARCHIVED, None):
        kept = await sql.get_messages(key, which)
        assert await ours.get_messages(key, which) == kept
        assert await ours.count_messages(key, which) == len(kept)
        part = await sql.get_messages(key, which, limit, offset)
        assert await ours.get_messages(key, which, limit, offset) == part
    assert await ours.get_keys() == ([key] if kept else [])
    assert [each.to_openai() for each in await same.tail(200)] == [each.model_dump(mode="json") for each in kept]
    assert (await other.read()).summaries  # the worker works
    await ours.delete_messages(key)


@given(turns=st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=4), min_size=1, max_size=8))
async def test_the_frameworks_memory_flushes_the_same_messages(
    memory: Memory, sql: Sql, turns: list[list[int]]
) -> None:
    key, blocks = f"k{next(_numbers)}", []
    for chat_store in (ChatStore(memory=memory), sql):
        block = Flushed(name="flushed")
        framework = FrameworkMemory.from_defaults(
            session_id=key, chat_store=chat_store, token_limit=100, token_flush_size=20, memory_blocks=[block]
        )
        for number, sizes in enumerate(turns):
            roles = itertools.cycle([MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL])
            for role, size in zip(roles, sizes, strict=False):
                await framework.aput(ChatMessage(role=role, content=f"{number} " * size))
        blocks.append((block.texts, await framework.aget(), await framework.aget_all()))
    assert blocks[0] == blocks[1]


async def test_archived_messages_neither_cost_a_turn_nor_fill_the_key(proxy: Proxy, namespace: str) -> None:
    window = Settings(max_window_count=60, threshold=20, **PATIENCE)
    async with Memory.connect(proxy.url, namespace=namespace, settings=window) as memory:
        store, read_bytes = ChatStore(memory=memory), []
        for first in range(0, 250, 50):
            await store.add_messages("k", [user_message(number) for number in range(first, first + 50)])
            assert len(await store.archive_oldest_messages("k", 50)) == 50
            await store.add_message("k", user_message("active"))
            proxy.forget()
            assert contents(await store.get_messages("k")) == ["active"]
            assert len(proxy.sent) == 1
            read_bytes.append(sum(map(len, proxy.received)))
            await store.archive_oldest_messages("k", 1)
        assert max(read_bytes) < 1_000, "a message, the state and its ids of appends"
        assert await store.count_messages("k", ARCHIVED) == await store.count_messages("k", None) == 255
        recalled = await memory.session("llama_index:k").recall("123", limit=1)
        assert "123" in [each.to_openai()["blocks"][0]["text"] for each in recalled]


async def test_tasks_that_archive_one_key_take_turns(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = ChatStore(memory=memory), list[str]()
    await store.add_messages("k", [user_message(number) for number in range(40)])
    run = memory.store.run

    async def count(call: Any, **options: Any) -> Any:
        calls.append(call.op)
        return await run(call, **options)

    monkeypatch.setattr(memory.store, "run", count)
    parts = await asyncio.gather(*(store.archive_oldest_messages("k", 2) for _ in range(20)))
    assert [text for part in parts for text in contents(part)] == [str(number) for number in range(40)]
    assert calls.count("archive") == 20


async def test_keys_are_those_with_messages_however_long_idle(store: Store, namespace: str, clock: Clock) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        chat_store = ChatStore(memory=memory)
        for key in ("a", "b", "c"):
            await chat_store.add_message(key, user_message(key))
        clock.now_ms += 3 * 86_400_000
        await memory.session("of-the-app").append({"role": "user", "content": "hello"})
        await ChatStore(memory=memory, key_prefix="llama").add_message("d", user_message("d"))
        await chat_store.delete_oldest_messages("c", 1)
        assert sorted(await chat_store.get_keys()) == ["a", "b"]
        assert await ChatStore(memory=memory, key_prefix="llama").get_keys() == ["d"]
        # A default worker neither evicts them nor counts them.
        await Eviction(memory.store).drain()
        assert contents(await chat_store.get_messages("a")) == ["a"]


async def test_a_key_with_a_ttl_expires(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        await ChatStore(memory=memory, ttl=60).add_message("a", user_message("a"))
        assert 0 < await raw.pttl(Keys(namespace, 1).session("llama_index:a").state) <= 60_000


async def test_older_messages_become_one_with_originals_behind_it(store: Store, namespace: str) -> None:
    async with store.memory(namespace, ONE_SHARD) as memory:
        chat_store, worker = (
            ChatStore(memory=memory, summarise=True),
            Worker(memory.store, Summarize(open_extractive())),
        )
        for number in range(12):
            await chat_store.add_message("k", user_message(f"text {number}"))
        await worker.drain()
        active = contents(await chat_store.get_messages("k"))
        assert active[1:] == [f"text {number}" for number in range(6, 12)]
        assert "text 0" in str(active[0])
        assert await chat_store.count_messages("k") == 7
        assert contents(await chat_store.get_messages("k", ARCHIVED)) == [f"text {number}" for number in range(6)]
        assert contents(await chat_store.get_messages("k", None)) == [f"text {number}" for number in range(12)]
        # The framework flushes the oldest of what it was given: the summary, which stays, and the message after it.
        assert contents(await chat_store.archive_oldest_messages("k", 2)) == ["text 6"]
        assert contents(await chat_store.get_messages("k")) == [active[0], *active[2:]]
        assert await chat_store.count_messages("k", ARCHIVED) == 7
        assert contents(await chat_store.delete_oldest_messages("k", 2)) == ["text 7"]
        await chat_store.set_messages("k", [ChatMessage(role="system", content="s"), *map(user_message, "abc")])
        assert contents(await chat_store.archive_oldest_messages("k", 2)) == ["a"]
        assert contents(await chat_store.get_messages("k")) == ["s", "b", "c"]


async def test_what_is_not_from_the_framework_is_an_error_and_no_empty_message(memory: Memory) -> None:
    for payload in ({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}, {"role": "critic"}):
        session = memory.session("llama_index:k")
        await session.clear()
        await session.append({"role": "user", "content": "canary"}, payload)
        with pytest.raises(InvalidMessage, match="session llama_index:k: message 2 ") as refused:
            await ChatStore(memory=memory).get_messages("k")
        assert "canary" not in str(refused.value)


async def test_mistakes_are_refused_before_anything_is_written(memory: Memory) -> None:
    store = ChatStore(memory=memory)
    with pytest.raises(TooLarge):
        await store.add_messages("k", [user_message(number) for number in range(1_001)])
    with pytest.raises(TooLarge):
        await store.set_messages("k", [user_message("long" * 2_500_000)])
    with pytest.raises(InvalidMessage, match="JSON cannot hold"):
        await store.add_message("k", ChatMessage(content="a", additional_kwargs={"n": object()}))
    for call in (store.archive_oldest_messages("k", -1), store.get_messages("k", limit=-1)):
        with pytest.raises(ValueError, match="0 or more"):
            await call
    with pytest.raises(InvalidSessionId):
        await store.add_message("", user_message("a"))
    with pytest.raises(InvalidSettings, match="one of url, memory and redis_client"):
        ChatStore("redis://127.0.0.1", memory=memory)
    with pytest.raises(InvalidSettings, match="keep_originals"):
        ChatStore(memory=Memory.connect("redis://127.0.0.1", settings=Settings(keep_originals=False)))
    assert await store.get_keys() == []


async def test_an_outage_is_an_error_and_never_an_empty_conversation(redis_server: RedisServer, namespace: str) -> None:
    patient = Settings(**PATIENCE, fallback_after_s=20)
    async with Proxy(redis_server.port) as proxy:
        for fallback in (False, True):
            async with Memory.connect(proxy.url, namespace=namespace, settings=patient, fallback=fallback) as memory:
                store = ChatStore(memory=memory)
                await store.add_message("seen", user_message("hello"))
                await store.get_messages("seen")
                await proxy.refuse()
                with short_deadlines(memory):
                    for call in (store.get_messages("unseen"), store.archive_oldest_messages("seen", 1)):
                        with pytest.raises(StoreUnavailable):
                            await call
                    if fallback:
                        await store.add_message("seen", user_message("degraded"))
                        assert contents(await store.get_messages("seen"))[-1] == "degraded"
                await proxy.accept_again()


def test_it_works_without_await_in_any_loop(redis_server: RedisServer) -> None:
    key = f"k{next(_numbers)}"
    store = ChatStore(redis_server.url)
    framework = FrameworkMemory.from_defaults(session_id=key, chat_store=store, chat_history=[user_message("first")])
    framework.put(user_message("second"))
    assert contents(framework.get()) == contents(framework.get_all()) == ["first", "second"]
    framework.reset()
    assert asyncio.run(store.get_keys()).count(key) == 0
    assert store.model_dump() == {"key_prefix": "llama_index", "summarise": False}
    asyncio.run(store.aclose())


async def test_keys_of_an_owner_are_forgotten_with_the_person(memory: Memory) -> None:
    people = {"1": "ann", "2": "bo"}
    for owner, left in ((people.get, ["2", "3"]), ("ann", [])):
        store = ChatStore(memory=memory, owner=owner)
        assert await store.get_messages("1") == []
        for key in ("1", "2", "3"):
            await store.add_message(key, ChatMessage(role="user", content="Hello"))
        await memory.forget(owner="ann")
        assert sorted(await store.get_keys()) == left
        await memory.forget(prefix="llama_index:")


async def test_a_person_that_becomes_known_later_owns_what_begins_then(memory: Memory) -> None:
    people: dict[str, str] = {}
    store = ChatStore(memory=memory, owner=people.get)
    assert await store.get_messages("1") == []
    people["1"] = "ann"
    await store.add_message("1", ChatMessage(role="user", content="Hello"))
    assert (await memory.forget(owner="ann")).session_count == 1
    people["1"] = ""
    with pytest.raises(InvalidSessionId):
        await store.add_message("1", ChatMessage(role="user", content="Hello"))
    with pytest.raises(InvalidSessionId):
        ChatStore(memory=memory, owner="")
