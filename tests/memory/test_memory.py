"""The memory on both stores: turns, unknown sessions, clear, prune, and opening."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import fakeredis
import pytest
from support.conversations import contents, user_message
from support.operations import OPERATIONS, UNSET
from support.stored import keys_of, keys_with
from support.stores import Store

from redismem import Conflict, InvalidSettings, Memory, Message, Session, SessionNotFound, Settings, WrongShards
from redismem.blocking import memory as blocking
from redismem.context.info import Health
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import Keys


async def test_a_turn_is_one_call_and_returns_the_context(memory: Memory) -> None:
    session = memory.session("user-42")
    context = await session.append_and_read({"role": "user", "content": "Where is my order?"})
    assert context.to_openai() == [{"role": "user", "content": "Where is my order?"}]
    assert (context.total_messages, context.first_seq, context.last_seq) == (1, 1, 1)
    assert context.receipt is not None
    assert context.receipt.created


async def test_turns_follow_each_other(session: Session) -> None:
    for number in range(1, 11):
        context = await session.append_and_read(user_message(number), merge={"turn": number})
        assert contents(context.messages) == list(range(1, number + 1))
        assert [message.seq for message in context.messages] == list(range(1, number + 1))
        assert (context.total_messages, context.last_seq, context.first_seq) == (number, number, 1)
        assert contents(context.recent) == list(range(max(1, number - 5), number + 1))
        assert context.state.params == {"turn": number}
        assert context.receipt is not None
        assert (context.receipt.last_seq, context.receipt.created) == (number, number == 1)
    whole = await session.read()
    assert whole.to_openai() == context.to_openai()
    assert (whole.epoch, whole.session_id, whole.receipt) == (context.epoch, "user-42", None)


async def test_a_batch_is_stored_in_its_order(session: Session) -> None:
    receipt = await session.append(*map(user_message, "abc"))
    assert (receipt.first_seq, receipt.last_seq, receipt.total, receipt.created) == (1, 3, 3, True)
    receipt = await session.append(Message("user", "d"), user_message("e"))
    assert (receipt.first_seq, receipt.last_seq, receipt.total, receipt.created) == (4, 5, 5, False)
    assert contents((await session.read()).messages) == list("abcde")


async def test_a_message_has_a_seq_and_a_time(session: Session) -> None:
    await session.append(user_message("a"), Message("user", "b", id="mine", metadata={"k": [1.0]}))
    context = await session.read()
    first, second = context.messages
    assert first.id == f"{context.epoch}:1"
    assert (second.id, second.metadata) == ("mine", {"k": [1.0]})
    assert second.to_openai() == user_message("b")
    assert first.timestamp == second.timestamp == datetime.fromtimestamp(first.stored_ms / 1000, UTC)
    assert (await session.messages()) == context.messages


async def test_tokens_are_counted_once_when_a_message_is_stored(store: Store, namespace: str) -> None:
    counted: list[Any] = []

    def count(payload: dict[str, Any]) -> int:
        counted.append(payload)
        return len(payload["content"])

    async with store.memory(namespace, count_tokens=count) as memory:
        session = memory.session("s")
        await session.append(user_message("abc"), user_message("de"))
        assert [message.tokens for message in (await session.read()).messages] == [3, 2]
        assert (await session.info()).window_tokens == 5
        await session.prune(1)
        assert (await session.info()).window_tokens == 2
    assert counted == [user_message("abc"), user_message("de")]


@pytest.mark.parametrize("method", [name for name, row in OPERATIONS.items() if row.unknown is not UNSET])
async def test_reading_does_not_create_a_session(raw: Any, session: Session, namespace: str, method: str) -> None:
    before = await keys_of(raw, namespace)
    call, answer = OPERATIONS[method].call, OPERATIONS[method].unknown
    if isinstance(answer, type):
        with pytest.raises(answer) as refused:
            await call(session)
        assert isinstance(refused.value, SessionNotFound | Conflict)
        assert refused.value.session_id == "user-42"
    else:
        assert await call(session) == answer
    assert await keys_of(raw, namespace) == before
    assert await session.exists() is False


async def test_the_context_of_an_unknown_session_is_empty(session: Session) -> None:
    for arguments in ({}, {"limit": 3}, {"limit": 0}, {"before": 5}, {"max_tokens": 10}, {"before": datetime.now(UTC)}):
        context = await session.read(**arguments)
        assert (context.messages, context.summaries, context.recent, context.pending) == ([], [], [], [])
        assert (context.total_messages, context.epoch, context.first_seq, context.last_seq) == (0, "", 1, 0)
        assert (context.state.params, context.to_openai()) == ({}, [])


async def test_a_session_without_messages_exists(session: Session) -> None:
    await session.append(user_message("a"), user_message("b"), merge={"x": 1})
    assert await session.prune(0) == 2
    context = await session.read()
    assert (context.messages, context.total_messages, context.first_seq, context.last_seq) == ([], 2, 3, 2)
    assert context.state.params == {"x": 1}
    assert await session.messages() == []
    assert (await session.append(user_message("c"))).first_seq == 3
    assert contents((await session.read()).messages) == ["c"]


async def test_clear_removes_every_trace_of_a_session(raw: Any, memory: Memory, namespace: str) -> None:
    session, other = memory.session("user-42"), memory.session("other")
    await other.append(user_message("a"))
    await session.append(
        *[user_message("a")] * 20, id="turn", merge={"a": 1}, waiting="a", plan=1, last_intent=1, last_result=1
    )
    keys = Keys(namespace, 64).session("user-42")
    await raw.rpush(keys.originals, "old")
    for index in ("leased", "dead", "evictions"):
        await raw.zadd(getattr(keys.shard, index), {"user-42": 1})
    epoch = (await session.read()).epoch
    assert await keys_with(raw, namespace, "user-42") != set()
    assert await session.clear() is True
    assert await keys_with(raw, namespace, "user-42") == set()
    assert await session.clear() is False
    assert contents((await other.read()).messages) == ["a"]
    fresh = await session.append_and_read(user_message("b"), id="turn")
    assert fresh.receipt is not None
    assert (fresh.receipt.first_seq, fresh.receipt.created, fresh.receipt.duplicate) == (1, True, False)
    assert (fresh.total_messages, fresh.first_seq, contents(fresh.messages)) == (1, 1, ["b"])
    assert fresh.epoch not in ("", epoch)
    assert fresh.state == type(fresh.state)()
    known = await session.info()
    assert (known.total_messages, known.window_count, known.queued) == (1, 1, None)


async def test_prune_keeps_the_newest_and_whole_tool_calls(session: Session) -> None:
    function = {"name": "look", "arguments": "{}"}
    calls = [{"id": id, "type": "function", "function": function} for id in ("c1", "c2")]
    call = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": id, "content": "x"} for id in ("c1", "c2")]
    await session.append(user_message("a"), call, *results, user_message("b"))
    assert await session.prune(5) == 0
    assert await session.prune(2) == 1
    context = await session.read()
    assert context.to_openai() == [call, *results, user_message("b")]
    assert (context.first_seq, context.total_messages) == (2, 5)
    assert await session.prune(1) == 3
    assert (await session.read()).to_openai() == [user_message("b")]


async def test_a_concurrent_prune_drops_only_messages_that_it_saw(memory: Memory) -> None:
    session = memory.session("s")
    await session.append(*[user_message(number) for number in range(20)])
    first = asyncio.ensure_future(session.prune(5))
    appends = [asyncio.ensure_future(memory.session("s").append(user_message(number))) for number in range(20, 30)]
    last = asyncio.ensure_future(session.prune(5))
    await asyncio.gather(first, *appends, last)
    context = await session.read()
    kept = len(context.messages)
    assert [message.seq for message in context.messages] == list(range(31 - kept, 31))
    assert len(set(contents(context.messages))) == kept >= 5
    assert first.result() + last.result() == 30 - kept


async def test_a_namespace_keeps_its_number_of_shards(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=8)) as memory:
        await memory.session("s").append(user_message("a"))
        with pytest.raises(WrongShards, match="8 shards, the settings say 16"):
            async with store.memory(namespace, Settings(shards=16)):
                pass
        # Without `async with` the first call checks it.
        async with store.client() as client:
            unopened = Memory.connect(client=client, namespace=namespace, settings=Settings(shards=16))
            with pytest.raises(WrongShards):
                await unopened.session("s").append(user_message("b"))
        assert contents((await memory.session("s").read()).messages) == ["a"]


async def test_an_embedded_client_that_decodes_is_refused() -> None:
    async with fakeredis.FakeAsyncRedis(decode_responses=True) as client:
        with pytest.raises(InvalidSettings, match="decode_responses"):
            Memory.connect(client=client)


async def test_a_memory_answers_a_ping(memory: Memory) -> None:
    assert await memory.ping() is True


async def test_without_a_url_each_memory_has_its_own_store() -> None:
    async with Memory.connect() as one, Memory.connect() as two:
        await one.session("s").append(user_message("a"))
        assert await one.session("s").exists()
        assert not await two.session("s").exists()


async def test_the_representation_of_a_memory_shows_no_password_or_session_id() -> None:
    url = "redis://CANARY:CANARY@127.0.0.1:7391/0"
    place, session = "of namespace 'shop' at 127.0.0.1:7391>", f"Session {session_hash('CANARY')} of namespace 'shop'>"
    memory = Memory.connect(url, namespace="shop")
    assert (repr(memory), repr(memory.session("CANARY"))) == (f"<Memory {place}", f"<{session}")
    await memory.aclose()
    with blocking.Memory.connect("memory://", namespace="shop") as embedded:
        assert repr(embedded) == "<blocking Memory of namespace 'shop'>"
        assert repr(embedded.session("CANARY")) == f"<blocking {session}"


def test_the_representation_of_health_leaves_out_defaults() -> None:
    assert repr(Health("closed", None, "", fallback=True)) == "Health(is_away=False, state='closed', fallback=True)"
    away = Health("open", 7, "TimeoutError", backlog_message_count=2)
    assert repr(away) == (
        "Health(is_away=True, state='open', since_ms=7, reason='TimeoutError', backlog_message_count=2)"
    )
