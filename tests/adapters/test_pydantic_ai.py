"""Pydantic AI's conversation store: the same results as its own store in memory, and what only a shared one shows."""

from __future__ import annotations

import asyncio
import copy
import pickle
import warnings
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, TextPart, UserPromptPart
from support.clock import Clock
from support.proxy import Proxy
from support.stores import PATIENCE, Store

from redismem import InvalidMessage, InvalidRecord, InvalidSessionId, InvalidSettings, Memory, Settings
from redismem.adapters.pydantic_ai import ConversationStore, EntryId
from redismem.record import Record

IDS = ["a", "b", "c"]
SCOPES = [None, "anna", "bo"]


def turn(text: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)]), ModelResponse(parts=[TextPart(f"re: {text}")])]


def texts(messages: Any) -> list[str]:
    return [each.parts[0].content for each in messages]


@dataclass
class Both:
    """Our store and theirs: each step is made on both, and the results are compared."""

    ours: ConversationStore
    theirs: InMemoryConversationStore = field(default_factory=InMemoryConversationStore)
    loaded: dict[str, tuple[Conversation, Conversation]] = field(default_factory=dict)
    seen: list[Any] = field(default_factory=list)

    async def step(self, method: str, pairs: tuple[Any, Any] | None = None, /, *args: Any, **options: Any) -> None:
        """Call a method of both stores, with the results of `pairs` as first arguments."""
        results = []
        for place, store in enumerate((self.ours, self.theirs)):
            first = () if pairs is None else (pairs[place],)
            mine = {name: value[place] if isinstance(value, tuple) else value for name, value in options.items()}
            try:
                results.append(await getattr(store, method)(*first, *args, **mine))
            except UserError as error:
                results.append(type(error))
        shown = [await self.show(store, each) for store, each in zip((self.ours, self.theirs), results, strict=True)]
        assert shown[0] == shown[1], method
        if isinstance(results[0], Conversation):
            self.loaded[results[0].conversation_id] = (results[0], results[1])

    async def show(self, store: Any, result: Any) -> Any:
        """Return a result without the ids and times that differ between two stores."""
        if isinstance(result, list):
            return [await self.show(store, each) for each in result]
        if isinstance(result, ConversationEntry):
            return texts([result.message]), result.parent_id is None
        if isinstance(result, ConversationRecord):
            lines = [await store.read_history(tip) for tip in (result.head_id, *result.branches)]
            names = result.conversation_id, result.scope, result.forked_from, result.forked_at is None
            return names, result.usage, [texts(entry.message for entry in line) for line in lines]
        if isinstance(result, Conversation):
            return result.conversation_id, texts(result.messages), result.usage, result.new_message_index
        return result

    async def entry(self, conversation_id: str, at: int) -> tuple[str, str]:
        """Return the ids of an entry in the current history of both stores."""
        lines = [await store.load_entries(conversation_id) or [] for store in (self.ours, self.theirs)]
        first, second = (line[at % len(line)].id if line else "none" for line in lines)
        return first, second


WRITES = ["add", "add", "new", "stale", "window", "rewrite"]
MOVES = ["branch", "back", "fork", "delete", "list", "entries"]
steps = st.lists(
    st.tuples(
        st.sampled_from(WRITES + MOVES),
        st.sampled_from(IDS),
        st.sampled_from(IDS),
        st.sampled_from(SCOPES),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=10,
)


async def write(both: Both, number: int, what: str, name: str, scope: str | None, at: int) -> None:
    if what == "new":
        first, second = (Conversation(conversation_id=name, messages=turn(f"n{number}")) for _ in range(2))
        await both.step("save", (first, second), scope=scope)
        return
    if what != "stale":
        await both.step("load", (name, name), scope=scope, limit=at if what == "window" else None)
    for conversation in both.loaded.get(name, ()):
        if what == "rewrite":
            conversation.messages[-1:] = turn(f"r{number}")
        else:
            conversation.messages += turn(f"a{number}")
    if name in both.loaded:
        await both.step("save", both.loaded[name])


async def move(both: Both, what: str, name: str, other: str, scope: str | None, at: int) -> None:
    revisions = tuple(each.revision for each in both.loaded[name]) if name in both.loaded else (None, None)
    if what == "branch":
        await both.step("branch", (name, name), at=at, expected_revision=revisions)
    elif what == "back":
        entry = await both.entry(name, at)
        await both.step("branch", (name, name), from_entry=entry, expected_revision=revisions)
    elif what == "fork":
        options: dict[str, Any] = {"from_entry": await both.entry(name, at)} if at % 2 else {"at": at}
        await both.step("fork", (name, name), new_conversation_id=other, scope=scope, **options)
    elif what == "delete":
        await both.step("delete", (name, name), scope=scope)
    elif what == "entries":
        await both.step("load_entries", (name, name), limit=at, scope=scope)
    else:
        await both.step("list_conversations", limit=at, scope=scope)


@given(steps)
async def test_any_sequence_of_calls_has_the_results_of_the_store_in_memory(memory: Memory, given_steps: Any) -> None:
    both = Both(ConversationStore(memory=memory))
    for record in await both.ours.list_conversations():
        await both.ours.delete(record.conversation_id)
    for number, (what, name, other, scope, at) in enumerate(given_steps):
        if what in WRITES:
            await write(both, number, what, name, scope, at)
        else:
            await move(both, what, name, other, scope, at)
    await both.step("list_conversations")
    for name in IDS:
        await both.step("load", (name, name))


async def test_of_fifty_writers_one_wins_and_no_entry_of_another_is_stored(proxy: Proxy, namespace: str) -> None:
    settings = Settings(**PATIENCE)
    async with (
        Memory.connect(proxy.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(proxy.url, namespace=namespace, settings=settings) as other,
    ):
        stores = [ConversationStore(memory=each) for each in (memory, other)]
        await stores[0].save(Conversation(conversation_id="a", messages=turn("first")))
        writers = []
        for number in range(50):
            conversation = await stores[number % 2].load("a")
            assert conversation is not None
            conversation.messages += turn(f"by {number}")
            writers.append(stores[number % 2].save(conversation))
        proxy.break_next("reset", 3, to=b"by ")
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        won = [each for each in outcomes if isinstance(each, list)]
        assert len(won) == 1
        assert sum(isinstance(each, ConversationConflict) for each in outcomes) == 49
        assert proxy.broken_count
        history = await stores[0].load_entries("a")
        assert history is not None
        assert [entry.id for entry in history[2:]] == [entry.id for entry in won[0]]
        fields = await memory.store.run(count_fields(memory, "pydantic_ai:a"))
        assert fields == len(history) + 3  # description, record, revision


def count_fields(memory: Memory, record_id: str) -> Any:
    from redismem.protocol.call import Call

    return Call(None, (("HLEN", memory.record(record_id).keys.record),), int)


async def test_a_save_whose_reply_is_lost_is_made_once_and_succeeds(proxy: Proxy, namespace: str) -> None:
    async with Memory.connect(proxy.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        store = ConversationStore(memory=memory)
        conversation = Conversation(conversation_id="a")
        for number in range(3):
            conversation.messages += turn(f"turn {number}")
            proxy.break_next("reset", 1, to=b"turn")
            await store.save(conversation)
        assert proxy.broken_count == 3
        proxy.break_next("close", 1, to=b"HGET")
        loaded = await store.load("a")
        assert loaded is not None
        assert len(loaded.messages) == 6


async def test_a_fork_has_the_bytes_of_the_messages_it_copies_and_outlives_its_origin(memory: Memory) -> None:
    store = ConversationStore(memory=memory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and read back as another part
        retried = ModelRequest(parts=[RetryPromptPart("no", tool_name="t", tool_call_id="c")])
    [*_, last] = await store.save(Conversation(conversation_id="a", messages=[*turn("one"), retried]), scope="anna")
    fork = await store.fork("a", new_conversation_id="b", scope="bo")
    name = b"entry:" + last.id.encode()
    copies = [await memory.record(f"pydantic_ai:{each}").get(name) for each in "ab"]
    assert copies[0] == copies[1]
    assert b"retry-prompt" in (copies[0][0] or b"")
    await store.delete("a", scope="bo")
    assert [each.conversation_id for each in await store.list_conversations(scope="anna")] == ["a"]
    await store.delete("a")
    assert await store.load("a") is None
    assert await store.list_conversations(scope="anna") == []
    assert len((await store.load("b") or fork).messages) == 3
    fork.messages += turn("two")
    await store.save(fork)
    await memory.forget(owner="bo")
    assert (await memory.records()).records == []


async def test_a_save_whose_reply_was_lost_succeeds_though_others_saved_since(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = ConversationStore(memory=memory), ConversationStore(memory=memory)
    conversation = Conversation(conversation_id="a", messages=turn("one"))
    await store.save(conversation)
    write: Any = Record.write

    async def write_twice(record: Record, change: Any) -> Any:
        monkeypatch.setattr(Record, "write", write)
        await write(record, change)
        later = await other.load("a")
        assert later is not None
        later.messages += turn("three")
        await other.save(later)
        return await write(record, change)  # too late for its record to know that it was made

    monkeypatch.setattr(Record, "write", write_twice)
    conversation.messages += turn("two")
    await store.save(conversation)
    found = await store.load("a")
    assert found is not None
    assert texts(found.messages) == ["one", "re: one", "two", "re: two", "three", "re: three"]
    conversation.messages += turn("stale")
    with pytest.raises(ConversationConflict):
        await store.save(conversation)


async def test_a_limited_list_reads_an_index_and_has_nothing_that_was_deleted_or_forgotten(
    store: Store, namespace: str
) -> None:
    events: list[Any] = []
    async with store.memory(namespace, on_event=events.append) as memory:
        conversations = ConversationStore(memory=memory)

        async def listed(limit: int, scope: str | None = None) -> list[str]:
            return [each.conversation_id for each in await conversations.list_conversations(scope=scope, limit=limit)]

        for number in range(100):
            scope = "anna" if number % 2 else "bo"
            await conversations.save(Conversation(conversation_id=f"c{number}", messages=turn("x")), scope=scope)
        again = await conversations.load("c7")
        assert again is not None
        again.messages += turn("more")
        await conversations.save(again, scope="anna")
        events.clear()
        assert await listed(3) == ["c7", "c99", "c98"]
        assert [event.op for event in events] == ["record_list"] * 2
        assert await listed(3, "anna") == ["c7", "c99", "c97"]
        await conversations.delete("c98")
        await memory.forget(owner="anna")
        assert await listed(2) == ["c96", "c94"]
        assert await listed(60) == [f"c{number}" for number in range(96, -1, -2)]


async def test_ids_of_entries_know_their_conversation_and_plain_ones_are_searched(memory: Memory) -> None:
    store, other = ConversationStore(memory=memory), ConversationStore(memory=memory, key_prefix="pydantic_ai:x")
    await other.save(Conversation(conversation_id="a", messages=turn("of another store")))
    saved = await store.save(Conversation(conversation_id="a", messages=turn("one")))
    [record] = await store.list_conversations()
    assert isinstance(record.head_id, EntryId)
    for again in (copy.deepcopy(record.head_id), pickle.loads(pickle.dumps(record.head_id))):
        assert (again, again.conversation_id) == (saved[1].id, "a")
    assert (await store.read_entry(saved[1].id)).message == saved[1].message
    for missing in ("unknown", EntryId(saved[1].id, "b")):
        with pytest.raises(LookupError):
            await store.read_entry(missing)
    with pytest.raises(LookupError):
        await store.read_history(EntryId("unknown", "a"))
    unknown = ConversationRecord(conversation_id="c", head_id="unknown")
    with pytest.raises(ConversationConflict):
        await store.write_record(unknown, expected_revision=None)


async def test_invalid_arguments_are_refused_before_anything_is_written(memory: Memory) -> None:
    store = ConversationStore(memory=memory)
    with pytest.raises(InvalidMessage):
        await store.save(Conversation(conversation_id="a", messages=turn("\ud800")))
    for wrong in ({"conversation_id": " "}, {"conversation_id": "a", "scope": ""}):
        with pytest.raises(InvalidSessionId):
            await store.save(Conversation(conversation_id=wrong["conversation_id"]), scope=wrong.get("scope"))
    with pytest.raises(InvalidSessionId):
        await store.list_conversations(scope="")
    for options, error in (({"ttl": 0}, InvalidRecord), ({"key_prefix": None}, InvalidSessionId)):
        with pytest.raises(error):
            ConversationStore(memory=memory, **options)
    with pytest.raises(InvalidSettings):
        ConversationStore("redis://127.0.0.1:1/0", memory=memory)
    assert (await memory.records()).records == []


async def test_a_conversation_expires_after_its_ttl_and_needs_no_place_among_the_sessions(
    store: Store, clock: Clock, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, Settings(max_sessions=1), workers=True) as memory:
        conversations = ConversationStore(memory=memory, ttl=60)
        for number in range(3):
            await conversations.save(Conversation(conversation_id=str(number), messages=turn("one")))
            await memory.session(str(number)).append({"role": "user", "content": "hello"})
        assert len(await conversations.list_conversations()) == 3
        keys = memory.record("pydantic_ai:1").keys
        assert await raw.pexpiretime(keys.record) == clock() + 60_000
