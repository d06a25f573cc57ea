"""Finding, reading, restoring and dropping sessions in quarantine, and listing namespaces. On both stores."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from store.test_corrupt import CORRUPT
from support.checks import user
from support.damage import put_block_aside
from support.proxy import Proxy
from support.quarantined import move_session
from support.stored import read_namespace
from support.stores import Store

from redismem import CorruptSession, Memory, SessionExists, SessionNotFound, Settings
from redismem.inspection import namespaces, quarantine, scans
from redismem.inspection.check import check_session
from redismem.models import open_extractive
from redismem.protocol.call import Call
from redismem.protocol.scripts import load
from redismem.record import Change
from redismem.workers.strategies import Summarize
from redismem.workers.summaries import Worker

ID = "user-42:7 [*]"


async def put_into_quarantine(memory: Memory, session_id: str = ID) -> int:
    """Put a session into quarantine as an operator would by hand, and return the time of the move."""
    store, put_ms = memory.store, 1_700_000_000_000 + len(session_id)
    assert await move_session(store, session_id, put_ms)
    return put_ms


async def summarise(memory: Memory, session_id: str = ID) -> None:
    """Create a session with a summary, a window, and all kinds of state."""
    session = memory.session(session_id)
    for number in range(12):
        await session.append(user(str(number)), id=f"id-{number}", merge={f"p{number}": number}, plan=["a"])
    await Worker(memory.store, Summarize(open_extractive())).drain()
    assert len((await session.read()).summaries) == 1


@pytest.mark.parametrize("field", ["pins", "large_bytes", "summaries_count", "removed"])
async def test_a_number_that_cannot_be_read_is_a_fault_and_counted_again(memory: Memory, raw: Any, field: str) -> None:
    session = memory.session(ID)
    await session.append(user("pinned"), pin=True)
    await raw.hset(memory.store.keys.session(ID).state, field, "garbage")
    await put_into_quarantine(memory)
    found = await quarantine.find(memory.store, ID, None)
    with pytest.raises(CorruptSession):
        await quarantine.restore(memory.store, found)
    await quarantine.restore(memory.store, found, salvage=True)
    assert await check_session(memory.store, ID) == []
    assert not await session.set_aside()


@pytest.mark.parametrize("is_summarised", [True, False])
async def test_a_session_without_faults_comes_back_as_it_was(memory: Memory, raw: Any, is_summarised: bool) -> None:
    session = memory.session(ID)
    if is_summarised:
        await summarise(memory)
    else:
        await session.append(user("large" * 1_000))
        await session.append(user("11"), id="id-11")
    before, info = await session.read(), await session.info()
    put_ms = await put_into_quarantine(memory)
    assert not await session.exists()
    found = await quarantine.find(memory.store, ID, None)
    assert (found.name, found.put_ms) == (ID, put_ms)
    back = await quarantine.restore(memory.store, found)
    assert list(back.faults) == []
    assert await session.read() == before
    assert (await session.info()).total_messages == info.total_messages
    assert await check_session(memory.store, ID) == []
    assert (await session.append(user("11"), id="id-11")).duplicate, "appends are remembered"
    assert [key for key in await read_namespace(raw, memory.store.keys.namespace) if b":quarantine:" in key] == []
    with pytest.raises(SessionNotFound):
        await quarantine.find(memory.store, ID, None)
    with pytest.raises(SessionNotFound):
        await quarantine.find(memory.store, ID, put_ms)
    assert (await session.append(user("next"))).last_seq == info.total_messages + 1


@pytest.mark.parametrize("what", CORRUPT)
async def test_salvage_restores_the_readable_parts_consistently(
    memory: Memory, raw: Any, namespace: str, what: str
) -> None:
    session = memory.session("user-42")
    await session.append(user("a"), user("b"), user("large" * 1_000), merge={"x": 1, "a": 2})
    await CORRUPT[what](raw, memory.store.keys.session("user-42"))
    await session.append_and_read(user("current"))
    await session.clear()
    found = await quarantine.find(memory.store, "user-42", None)
    before = await read_namespace(raw, namespace)
    with pytest.raises(CorruptSession) as refused:
        await quarantine.restore(memory.store, found)
    assert str(refused.value)
    assert await read_namespace(raw, namespace) == before
    back = await quarantine.restore(memory.store, found, salvage=True)
    context = await session.read()
    assert [message.to_openai() for message in context.messages] == [message.to_openai() for message in back.messages]
    assert set(context.state.params) <= {"x", "a"}
    assert await check_session(memory.store, "user-42") == []
    after = await read_namespace(raw, namespace)
    assert {key: value for key, value in after.items() if b":quarantine:" in key} == {
        key: value for key, value in before.items() if b":quarantine:" in key
    }, "the quarantine keeps everything"
    receipt = await session.append(user("next"))
    assert receipt.last_seq == context.last_seq + 1
    assert await check_session(memory.store, "user-42") == []


@pytest.mark.parametrize("is_known", [True, False])
async def test_salvaged_messages_are_counted_as_before(memory: Memory, raw: Any, is_known: bool) -> None:
    session, keys = memory.session(ID), memory.store.keys.session(ID)
    await session.append(*[user(str(number)) for number in range(9)])
    await session.pop(4)
    await session.append(user("last"))
    await raw.hset(keys.state, mapping={"param:x": b"unreadable"} | ({} if is_known else {"removed": "many"}))
    await put_into_quarantine(memory)
    await quarantine.restore(memory.store, await quarantine.find(memory.store, ID, None), salvage=True)
    info = await session.info()
    assert (info.total_messages, info.window_count, info.last_seq) == (6, 6, 11)
    assert len(await session.pop(2)) == 2
    assert (await session.info()).total_messages == 4
    assert await check_session(memory.store, ID) == []


@pytest.mark.parametrize("lives", [True, False])
async def test_a_lone_block_of_originals_never_replaces_a_session(
    memory: Memory, raw: Any, namespace: str, lives: bool
) -> None:
    session = memory.session(ID)
    await summarise(memory)
    await raw.hset(memory.store.keys.session(ID).originals, "0", b"junk")
    await put_block_aside(memory, ID, 0)
    if not lives:
        await session.clear()
    found = await quarantine.find(memory.store, ID, None)
    assert [key.name for key in found.keys] == ["originals"]
    before = await read_namespace(raw, namespace)
    for words in ({}, {"salvage": True}, {"salvage": True, "swap": True}):
        with pytest.raises(SessionNotFound, match="nothing would come back"):
            await quarantine.restore(memory.store, found, **words)
    assert await read_namespace(raw, namespace) == before


async def test_a_state_of_many_values_comes_back_whole(store: Store, namespace: str) -> None:
    """The state has more values than Lua can pass to one command."""
    async with store.memory(namespace, Settings(max_params_count=5_000)) as memory:
        session = memory.session(ID)
        for part in range(5):
            await session.merge({f"p{part}-{number}": number for number in range(1_000)})
        before = await session.params()
        await put_into_quarantine(memory)
        await quarantine.restore(memory.store, await quarantine.find(memory.store, ID, None))
        assert await session.params() == before
        assert len(before) == 5_000


async def test_a_damaged_summary_and_message_are_left_out_and_the_seqs_stay(memory: Memory, raw: Any) -> None:
    await summarise(memory)
    keys = memory.store.keys.session(ID)
    context = await memory.session(ID).read()
    await raw.lset(keys.messages, 0, b"junk")
    await put_into_quarantine(memory)
    found = await quarantine.find(memory.store, ID, None)
    back = await quarantine.restore(memory.store, found, salvage=True)
    assert (back.left_out_count, len(back.summaries)) == (1, 1)
    with pytest.raises(SessionExists, match="with this id exists"):
        await quarantine.restore(memory.store, found, salvage=True)
    again = await memory.session(ID).read()
    assert again.messages == context.messages[1:]
    assert (again.summaries, again.last_seq) == (context.summaries, context.last_seq)
    assert await check_session(memory.store, ID) == []


async def test_a_list_names_each_session_of_the_namespace_once(memory: Memory, raw: Any, namespace: str) -> None:
    names = [f"s-{number}" for number in range(30)]
    for name in names:
        await memory.session(name).append(user("x"))
        await put_into_quarantine(memory, name)
    await raw.rpush(f"rm:{{{namespace}2:00hijk}}:quarantine:other:5:messages", "x")
    await raw.rpush(f"rm:{{{namespace}:00hijk}}:quarantine:none:of:ours", "x")
    steps: list[int] = []
    found = await quarantine.list_quarantined(memory.store, 100, on_step=steps.append)
    assert sorted(each.name for each in found.sessions) == sorted(names)
    assert found.cursor is None
    assert steps == sorted(set(steps)) != []
    assert {key.entry_count for each in found.sessions for key in each.keys if key.name == "messages"} == {1}


async def test_a_search_is_bounded_and_continues_from_its_cursor(
    memory: Memory, raw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "KEYS_A_STEP", 10)
    for number in range(40):
        await memory.session(f"s-{number}").append(user("x"))
        await put_into_quarantine(memory, f"s-{number}")
    seen: set[str] = set()
    cursor: int | None = 0
    rounds = 0
    while cursor is not None:
        found = await quarantine.list_quarantined(memory.store, 1_000, cursor=cursor, looked_at_limit=20)
        assert found.looked_at_count <= 20
        seen |= {each.name for each in found.sessions}
        cursor, rounds = found.cursor, rounds + 1
    assert seen == {f"s-{number}" for number in range(40)}
    assert rounds > 1


async def test_the_namespaces_of_a_redis(memory: Memory, raw: Any, namespace: str) -> None:
    await memory.session("a").append(user("x"))
    await memory.session("b").append(user("x"))
    for number in range(3):
        await memory.record(f"r{number}").write(Change(sets={b"a": b"1"}))
    await raw.hset(f"rm:{{{namespace}.new}}:namespace", mapping={"shards": 4, "layout": 2})
    await raw.set(f"rm:{{{namespace}.odd}}:namespace", "x")
    await raw.hset(f"rm:{{{namespace}.bad}}:namespace", mapping={"shards": "9" * 30, "layout": 1})
    found = await namespaces.list_namespaces(memory.store)
    mine = {each.namespace: each for each in found.entries if each.namespace.startswith(namespace)}
    assert found.cursor is None
    assert mine[namespace] == namespaces.NamespaceEntry(namespace, 64, 1, 2, 3)
    assert (mine[f"{namespace}.new"].layout, mine[f"{namespace}.new"].error) == (2, "of another layout")
    assert mine[f"{namespace}.bad"].error == "its record cannot be read"
    assert mine[f"{namespace}.odd"].sessions is None
    for name in ("new", "odd", "bad"):
        await raw.delete(f"rm:{{{namespace}.{name}}}:namespace")


@pytest.mark.parametrize("kind", ["reset", "freeze"])
async def test_a_restore_whose_reply_is_lost_is_made_once(
    proxy: Proxy, direct_memory: Memory, kind: Literal["reset", "freeze"]
) -> None:
    await direct_memory.session(ID).append(user("a"), user("b"))
    await put_into_quarantine(direct_memory)
    patient = Settings(deadline_s=60, reply_timeout_s=0.3)
    async with Memory.connect(proxy.url, namespace=direct_memory.store.keys.namespace, settings=patient) as memory:
        for name in ("restore", "append"):
            await memory.store.run(Call(None, (("SCRIPT", "LOAD", load(name).source),), bool))
        found = await quarantine.find(memory.store, ID, None)
        proxy.break_next(kind, 2, to=load("restore").sha)
        assert list((await quarantine.restore(memory.store, found)).faults) == []
        assert proxy.broken_count == 2
    assert [message.content for message in (await direct_memory.session(ID).read()).messages] == [
        user("a")["content"],
        user("b")["content"],
    ]
    assert await check_session(direct_memory.store, ID) == []


@pytest.mark.parametrize("is_whole", [True, False])
async def test_pinned_messages_and_gaps_come_back_too(memory: Memory, raw: Any, is_whole: bool) -> None:
    """Pinned messages inside and outside the window and the gap of a pop come back, but no unreadable message."""
    session = memory.session(ID)
    await session.append({"role": "system", "content": "Be brief."}, user(0))
    await session.append(user("pinned"), pin=True)
    await summarise(memory)
    await session.append({"role": "developer", "content": "Be kind."}, user("kept"), user("popped"))
    assert len(await session.pop(1)) == 1
    before = await session.read()
    assert [message.seq for message in before.pinned] == [1, 3, 16]
    if not is_whole:
        await raw.lset(memory.store.keys.session(ID).messages, 0, "no message")
    await put_into_quarantine(memory)
    back = await quarantine.restore(memory.store, await quarantine.find(memory.store, ID, None), salvage=not is_whole)
    assert (list(back.faults) == []) == is_whole
    after = await session.read()
    contents = [message.content for message in before.messages]
    assert [message.content for message in after.messages] == (contents if is_whole else contents[1:])
    assert [message.to_openai() for message in after.pinned] == [message.to_openai() for message in before.pinned]
    assert await check_session(memory.store, ID) == []
    assert len(await session.pop(1)) == 1
