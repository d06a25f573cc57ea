"""Conversations of frameworks, read from their records: what a list reads, where it ends, and what it cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, StateGraph, add_messages
from support.framework_talks import ANSWER, QUESTION, TALKS, build_graph
from support.redis_server import RedisServer
from support.stores import PATIENCE

import redismem.blocking
from redismem import CorruptSession, Memory, OwnerMismatch, Settings
from redismem.adapters.langgraph import RedismemSaver, StrictSerializer
from redismem.record import Change, Head, Transcript
from redismem.record.transcripts import listing


@dataclass
class Ticket:
    number: int


class Turned:
    """A cipher: it turns bytes round."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turned", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        del ciphername
        return ciphertext[::-1]


def add_all(messages: list[Any], writes: list[Any]) -> Any:
    for written in writes:
        messages = add_messages(messages, written)  # type: ignore[assignment]
    return messages


class Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(add_all, list, snapshot_frequency=7)]
    ticket: Ticket


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


async def read(memory: Memory, kind: Any, name: str, **options: Any) -> Transcript:
    found = await memory.transcripts.read(kind, name, **options)
    assert found is not None
    return found


def texts(transcript: Transcript) -> list[Any]:
    return [message.content for message in transcript.messages]


async def keep_entries(memory: Memory, name: str, count: int, owner: str | None = None) -> None:
    """Store a conversation as Pydantic AI's adapter does, of so many messages."""
    fields = {b"revision": b"1", b"record": b'{"head_id":"%d","updated_at":"2026-11-27T22:30:03Z"}' % (count - 1)}
    for number in range(count):
        body = b'{"message":{"kind":"request","parts":[{"part_kind":"user-prompt","content":"text %d"}]}}' % number
        fields[b"entry:%d" % number] = Head(b"entry:%d" % (number - 1) if number else b"", body=body).encode()
    await memory.record(f"pydantic_ai:{name}", owner=owner).write(Change(sets=fields))


async def test_pages_find_every_conversation_once_among_other_records(
    memory: Memory, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_PAGE_COUNT", 7)
    monkeypatch.setattr(listing, "_PAGES_COUNT", 2)
    for number in range(20):
        await memory.record(f"other-{number}").write(Change(sets={b"value": b"1"}))
    names = sorted(f"{letter}-{number}" for letter in "az" for number in range(9))
    for at, name in enumerate(names):
        await keep_entries(memory, name, 1, owner="ann" if at % 2 else "bob")
    await keep_entries(memory, "of nobody", 1)
    damaged = {f"{letter}-damaged-{number}" for letter in "amz" for number in range(2)}
    for name in damaged:
        await keep_entries(memory, name, 1)
        redis_server.say("HSET", memory.record(f"pydantic_ai:{name}").keys.record, b"", b"v1")
    with redismem.blocking.Memory.connect(redis_server.url, namespace=memory.store.keys.namespace) as blocking:
        for owner, wanted in ((None, {*names, "of nobody", *damaged}), ("ann", set(names[1::2]))):
            for limit in (1, 4, 100):
                found, cursor = list[str](), None
                while not found or cursor is not None:
                    page = blocking.transcripts.list(owner=owner, limit=limit, cursor=cursor)
                    assert len(page.transcripts) <= limit
                    found += [row.name for row in page.transcripts]
                    cursor = page.cursor
                assert sorted(found) == sorted(wanted)
        assert [row.name for row in blocking.transcripts.list(kind="strands").transcripts] == []
        for wrong in ({"kind": "x"}, {"limit": 0}, {"cursor": "x"}):
            with pytest.raises(ValueError, match=r"kind|limit|cursor"):
                blocking.transcripts.list(**wrong)


async def test_a_long_conversation_is_listed_without_a_title_and_read_whole(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep_entries(memory, "long", 100)
    monkeypatch.setattr(listing, "_LIST_BYTES", 100)
    config: Any = {"configurable": {"thread_id": "large"}}
    await build_graph(RedismemSaver(memory)).ainvoke({"messages": [HumanMessage("text " * 100)]}, config)
    large, long = (await memory.transcripts.list()).transcripts
    assert (long.title, long.messages_count, long.last_text) == (None, None, "text 99")
    assert (large.title, large.messages_count, large.last_text) == (None, None, "")
    assert "too large" in str(large.fault)
    whole, end = await read(memory, "pydantic-ai", "long"), await read(memory, "pydantic-ai", "long", limit=2)
    assert (whole.messages_count, len(whole.messages), whole.title, whole.is_whole) == (100, 100, "text 0", True)
    assert (texts(end), end.is_whole) == (["text 98", "text 99"], False)
    assert texts(await read(memory, "langgraph", "large"))[-1] == ANSWER


async def test_a_thread_is_read_from_a_delta_channel_and_beside_types_of_the_graph(memory: Memory) -> None:
    saver = RedismemSaver(memory, allowed_types=[Ticket], key_prefix="app")
    builder = StateGraph(Delta)
    builder.add_node("answer", lambda state: {"messages": [AIMessage(f"re {len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    graph: Any = builder.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "a:b"}}
    for number in range(5):
        given = [HumanMessage(f"text {number}", id=f"m{number}")]
        await graph.ainvoke({"messages": given, "ticket": Ticket(number)}, config)
        if number:
            changes = [RemoveMessage(f"m{number - 1}"), HumanMessage("changed", id=f"m{number}")]
            await graph.aupdate_state(config, {"messages": changes})
        state = (await graph.aget_state(config)).values
        found = await read(memory, "langgraph", "app:a%3Ab")
        assert texts(found) == [message.content for message in state["messages"]]
        assert found.messages_count == len(state["messages"])
    [row] = (await memory.transcripts.list()).transcripts
    assert (row.kind, row.name, row.fault, row.id) == ("langgraph", "a:b", None, found.id)
    assert await memory.transcripts.read("langgraph", "a:b") is None  # of another prefix: its id names it


async def test_a_damaged_description_is_listed_for_no_owner(memory: Memory, redis_server: RedisServer) -> None:
    descriptions = {
        "short": b"v1",
        "other": b"v9 of a later release",
        "no tag": b"v1" + bytes(9) + b"0:0:",
        "text": None,
    }
    for name, described in descriptions.items():
        await keep_entries(memory, name, 1, owner="ann")
        key = memory.record(f"pydantic_ai:{name}").keys.record
        if described is None:
            redis_server.say("SET", key, "text")
        else:
            redis_server.say("HSET", key, b"", described)
    await keep_entries(memory, "whole", 1, owner="ann")
    rows = (await memory.transcripts.list()).transcripts
    assert {row.name: str(row.fault)[:7] for row in rows} == {**dict.fromkeys(descriptions, "damaged"), "whole": "None"}
    assert [row.name for row in (await memory.transcripts.list(owner="ann")).transcripts] == ["whole"]
    for name in descriptions:
        with pytest.raises(OwnerMismatch):
            await memory.transcripts.read("pydantic-ai", name, owner="ann")
        with pytest.raises(CorruptSession):
            await memory.transcripts.read("pydantic-ai", name)


async def test_encrypted_and_damaged_values_are_named_and_hide_no_other_row(
    memory: Memory, redis_server: RedisServer
) -> None:
    serde = EncryptedSerializer(Turned(), StrictSerializer())
    await build_graph(RedismemSaver(memory, serde=serde)).ainvoke(
        {"messages": [HumanMessage(QUESTION)]}, {"configurable": {"thread_id": "encrypted"}}
    )
    for kind, talk in TALKS.items():
        await talk(memory, redis_server.url, f"whole-{kind}", "ann")
        await talk(memory, redis_server.url, f"torn-{kind}", "ann")
    tear = {
        b"data": b'{"data":',
        b"record": b"[]",
        b"e:0000000000000004": b"{]",
        b"e::000000000001": b"{]",
        b"b:\0messages\0": b"7:msgpack\xc1",
    }
    for entry in (await memory.records()).records:
        if "torn" in entry.id:
            thread = await memory.record(entry.id, tag=entry.tag).newest(b"c:", named=True)
            names = [] if thread is None else [name for name in thread.named if name.startswith(b"b:\0messages")]
            sets = {**tear, **dict.fromkeys(names, tear[b"b:\0messages\0"])}
            await memory.record(entry.id, tag=entry.tag).write(Change(sets=sets))
    rows = (await memory.transcripts.list()).transcripts
    assert len(rows) == 2 * len(TALKS) + 1
    for row in rows:
        if "whole" in row.name:
            assert (row.fault, row.title) == (None, QUESTION)
        else:
            assert str(row.fault).startswith("encrypted:" if row.name == "encrypted" else "damaged:")
            assert (await read(memory, row.kind, row.id)).fault == row.fault
