"""LangGraph's saver makes objects of allowed types alone, whoever wrote the bytes, and says which type it refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import ormsgpack
import pytest
from langchain_core.messages import AIMessage
from langgraph._internal import _serde
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import EXT_CONSTRUCTOR_SINGLE_ARG, EXT_PYDANTIC_V2, JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from pydantic import BaseModel
from support.redis_server import RedisServer
from support.stores import PATIENCE

from redismem import InvalidRecord, InvalidSettings, Memory, Settings
from redismem.adapters.langgraph import RedismemSaver, StrictSerializer
from redismem.adapters.langgraph.layout import encode_write, pack
from redismem.record import Head


class Ticket(BaseModel):
    number: int


@dataclass
class Note:
    text: str


class State(TypedDict):
    ticket: Ticket
    notes: list[Note]


AT: Any = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
REFUSED = rf"the type '{__name__}\.(Ticket|Note)', which is not allowed.* allowed_types="


@pytest.fixture
async def memory(redis_server: RedisServer, namespace: str) -> AsyncIterator[Memory]:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=Settings(**PATIENCE)) as memory:
        yield memory


def build(saver: RedismemSaver) -> Any:
    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"ticket": Ticket(number=7), "notes": [Note("a")]})
    builder.add_edge(START, "one")
    builder.add_edge("one", END)
    return builder.compile(checkpointer=saver)


async def put(saver: RedismemSaver) -> Any:
    checkpoint: Any = {"id": "1", "channel_values": {"m": [AIMessage("hi")]}, "channel_versions": {"m": "1"}}
    config = await saver.aput(AT, checkpoint, {"step": 1}, {"m": "1"})
    await saver.aput_writes(config, [("m", "x")], "t")
    return config


async def test_planted_bytes_run_nothing_wherever_they_stand(
    memory: Memory, redis_server: RedisServer, tmp_path: Path
) -> None:
    made = tmp_path / "made"

    def call(code: int, inner: Any = None) -> Any:
        return ormsgpack.Ext(code, ormsgpack.packb(["os", "mkdir", inner or str(made), "model_validate_json"]))

    evil = pack(("msgpack", ormsgpack.packb({"a": [call(EXT_CONSTRUCTOR_SINGLE_ARG)]})))
    deep = ormsgpack.packb(["collections", "deque", [call(EXT_CONSTRUCTOR_SINGLE_ARG)]])
    nested = pack(("msgpack", ormsgpack.packb(ormsgpack.Ext(EXT_CONSTRUCTOR_SINGLE_ARG, deep))))
    model = pack(("msgpack", ormsgpack.packb(call(EXT_PYDANTIC_V2, {"path": str(made)}))))
    pickled = pack(("pickle", b"cos\nmkdir\n(V" + str(made).encode() + b"\ntR."))
    text = b'{"lc": 2, "type": "constructor", "id": ["os", "mkdir"], "args": ["%b"]}' % str(made).encode()
    fine = pack(("msgpack", ormsgpack.packb({"channel_versions": {}})))
    saver = RedismemSaver(memory)
    key = memory.record("langgraph:a").keys.record
    for field, value in (
        *((b"b:\0m\0s1", each) for each in (evil, nested, model, pickled, pack(("json", text)))),
        (b"w:\x001\0t\x000", encode_write("m", "", evil)),
        (b"c:\x001", Head(body=b"%d:%b%b" % (len(evil), evil, fine)).encode()),
        (b"c:\x001", Head(body=b"%d:%b%b" % (len(fine), fine, evil)).encode()),
    ):
        config = await put(saver)
        redis_server.say("HSET", key, field, value)
        for read in (saver.aget_tuple(AT), saver.aget_tuple(config), anext(saver.alist(AT))):
            with pytest.raises(InvalidRecord, match=r"thread 'a': .*(os\.mkdir|in the format)"):
                await read
        assert not made.exists()
        await saver.adelete_thread("a")
    redis_server.say("HSET", key, b"b:\0m\0s1", evil)  # the same bytes do run with the serializer of LangGraph
    permissive = RedismemSaver(memory, serde=JsonPlusSerializer(allowed_msgpack_modules=True))
    await put(permissive)
    redis_server.say("HSET", key, b"b:\0m\0s1", evil)
    await permissive.aget_tuple(AT)
    assert made.exists()


async def test_a_type_of_ones_own_comes_back_once_it_is_allowed_and_is_named_before(memory: Memory) -> None:
    await build(RedismemSaver(memory)).ainvoke({}, AT)
    for serde in (None, StrictSerializer([Ticket])):
        with pytest.raises(InvalidRecord, match=REFUSED):
            await build(RedismemSaver(memory, serde=serde)).aget_state(AT)
    for saver in (
        RedismemSaver(memory, allowed_types=[Ticket, (__name__, "Note")]),
        RedismemSaver(memory, serde=StrictSerializer([Ticket, Note])),
    ):
        assert (await build(saver).aget_state(AT)).values == {"ticket": Ticket(number=7), "notes": [Note("a")]}
    with pytest.raises(InvalidSettings, match="one of allowed_types and serde"):
        RedismemSaver(memory, serde=StrictSerializer(), allowed_types=[Ticket])


async def test_the_types_of_a_graphs_schemas_are_allowed_where_langgraph_itself_is_strict(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_serde, "STRICT_MSGPACK_ENABLED", True)
    graph = build(RedismemSaver(memory))
    await graph.ainvoke({}, AT)
    assert (await graph.aget_state(AT)).values == {"ticket": Ticket(number=7), "notes": [Note("a")]}
    with pytest.raises(InvalidRecord, match=REFUSED):
        await RedismemSaver(memory).aget_tuple(AT)


class Plain:
    """A cipher that hides nothing."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "plain", plaintext

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext


async def test_it_also_works_within_an_encrypted_one(memory: Memory) -> None:
    def encrypted(*allowed: type) -> EncryptedSerializer:
        return EncryptedSerializer(Plain(), StrictSerializer(allowed))

    await build(RedismemSaver(memory, serde=encrypted())).ainvoke({}, AT)
    with pytest.raises(InvalidRecord, match=REFUSED):
        await RedismemSaver(memory, serde=encrypted()).aget_tuple(AT)
    found = await RedismemSaver(memory, serde=encrypted(Ticket, Note)).aget_tuple(AT)
    assert found is not None
    assert found.checkpoint["channel_values"]["ticket"] == Ticket(number=7)
