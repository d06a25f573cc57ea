"""The list of one owner's sessions: complete, in order, titled, and without anything of another owner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.clock import Clock
from support.stores import Store
from support.writers import Echo

from redismem import InvalidSessionId, Memory, SessionEntry, Settings
from redismem.blocking import memory as blocking
from redismem.inspection import quarantine
from redismem.protocol.namespace import described
from redismem.protocol.owners import owner_score
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=3, threshold=8, recent_limit=4, keep_originals=True)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def listed(memory: Memory, owner: str, limit: int = 100) -> list[SessionEntry]:
    """Return all entries, read page by page."""
    entries, cursor = list[SessionEntry](), None
    while True:
        page = await memory.sessions(limit, cursor, owner=owner, newest=True)
        assert len(page.sessions) <= limit
        entries += page.sessions
        cursor = page.cursor
        if cursor is None:
            return entries


@pytest.mark.parametrize("limit", [1, 7, 100])
async def test_all_sessions_of_the_owner_come_once_by_last_activity(store: Store, namespace: str, limit: int) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        began_ms = await memory.server_time_ms() // 1000 * 1000 - 100_000
        memory.store.clock = clock = Clock(began_ms)
        for number in range(20):
            clock.now_ms = began_ms + number // 2 * 1000  # two of one second each
            await memory.session(f"s{number}", owner="ann").append(user(f"hello {number}"))
            await memory.session(f"other{number}", owner="bob").append(user("secret"))
        clock.now_ms = began_ms + 60_000
        await memory.session("s3").append(assistant("late"))
        entries = await listed(memory, "ann", limit)
    order = sorted(((number // 2, f"s{number}") for number in range(20) if number != 3), reverse=True)
    assert [entry.session_id for entry in entries] == ["s3", *(name for _, name in order)]
    assert entries[0] == SessionEntry("s3", began_ms + 60_000, "hello 3", "assistant", "late", "ann")
    assert entries[-1] == SessionEntry("s0", began_ms, "hello 0", "user", "hello 0", "ann")


async def test_the_title_is_the_one_set_or_else_what_the_user_said_first(store: Store, namespace: str) -> None:
    long = "How do I get from Zurich to Oslo by train,\n\nand how long would it take me if I " + "really " * 40
    async with store.memory(namespace, SETTINGS) as memory:
        await memory.session("set", owner="ann").append(user("first"), title="Mine")
        await memory.session("long", owner="ann").append({"role": "system", "content": "be brief"}, user(long))
        await memory.session("none", owner="ann").merge({"a": 1})
        call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        await memory.session("parts", owner="ann").append(
            {"role": "user", "content": [picture]},
            {"role": "user", "content": [{"type": "text", "text": "what is it?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        )
        entries = {entry.session_id: entry for entry in await listed(memory, "ann")}
    assert entries["set"].title == "Mine"
    assert not any(text in repr(entries) for text in ("Mine", "first", "Zurich"))
    title = entries["long"].title
    assert title is not None
    assert title.startswith("How do I get from Zurich to Oslo by train, and how long")
    assert (len(title), title[-1]) == (80, "…")
    assert (len(entries["long"].last_text), entries["long"].last_role) == (160, "user")
    assert (entries["none"].title, entries["none"].last_role, entries["none"].last_text) == (None, None, "")
    assert (entries["parts"].title, entries["parts"].last_role) == ("what is it?", "assistant")
    assert entries["parts"].last_text == "find({})"


async def test_a_summarised_first_message_gives_the_title_until_it_is_gone(store: Store, namespace: str) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("s", owner="ann")
        for number in range(1, 101):
            await session.append(user(f"message {number}"))
            if number % 20 == 0:
                await Worker(memory.store, Echo()).drain()
        assert (await session.info()).first_seq > 65  # in a merged block, too
        (entry,) = await listed(memory, "ann")
        assert (entry.title, entry.last_text) == ("message 1", "message 100")
        await session.forget(1)
        (entry,) = await listed(memory, "ann")
        assert entry.title == "message 2"
        await session.forget(100)
        (entry,) = await listed(memory, "ann")
        assert entry.last_text == "message 99"
        await session.clear()
        assert await listed(memory, "ann") == []


async def test_without_originals_the_oldest_message_that_is_left_gives_the_title(store: Store, namespace: str) -> None:
    async with store.memory(namespace, SETTINGS.model_copy(update={"keep_originals": False})) as memory:
        session = memory.session("s", owner="ann")
        await session.append(*(user(f"message {number}") for number in range(1, 21)))
        await Worker(memory.store, Echo()).drain()
        (entry,) = await listed(memory, "ann")
        assert entry.title == f"message {(await session.info()).first_seq}" != "message 1"


async def test_sessions_of_an_owner_with_the_same_hash_and_ended_ones_are_left_out(
    store: Store, namespace: str, raw: Any
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        await memory.session("a", owner="ann").append(user("mine"))
        await memory.session("b", owner="bob").append(user("secret"))
        await memory.session("c").append(user("of nobody"))
        await memory.session("d", owner="ann").append(user("unreadable"))
        for name in ("b", "c", "gone", "no\nid"):
            owners = memory.store.keys.shards()[memory.store.keys.shard_of(name)].owners
            await raw.zadd(owners, {name: owner_score("ann")})
        await raw.hset(memory.store.keys.session("d").state, "counters", "?")
        assert [entry.session_id for entry in await listed(memory, "ann", 1)] == ["a"]
        assert [entry.session_id for entry in await listed(memory, "bob")] == []  # its entry has another score now
        with pytest.raises(InvalidSessionId):
            await memory.sessions(owner="")
        for limit, cursor in ((0, None), (1, "?")):
            with pytest.raises(ValueError, match=r"limit|cursor"):
                await memory.sessions(limit, cursor, owner="ann")


@pytest.mark.parametrize("step", ["ends", "first_blocks", "epochs"])
async def test_an_id_that_another_owner_takes_meanwhile_shows_nothing(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("s", owner="ann")
        await session.append(*(user(f"message {number}") for number in range(20)))
        await Worker(memory.store, Echo()).drain()
        run = memory.store.run
        build = getattr(described, step)

        def marked(*arguments: Any) -> Any:
            call = build(*arguments)
            before.append(call)
            return call

        async def run_after_a_change(call: Any, **options: Any) -> Any:
            if call in before:
                before.clear()
                monkeypatch.setattr(memory.store, "run", run)
                await session.clear()
                await memory.session("s", owner="bob").append(*(user("secret") for _ in range(20)))
                await Worker(memory.store, Echo()).drain()
            return await run(call, **options)

        before = list[Any]()
        monkeypatch.setattr(described, step, marked)
        monkeypatch.setattr(memory.store, "run", run_after_a_change)
        assert await listed(memory, "ann") == []
        assert [entry.last_text for entry in await listed(memory, "bob")] == ["secret"]


async def test_many_sessions_of_one_shard_and_large_messages_take_several_calls(store: Store, namespace: str) -> None:
    async with store.memory(namespace, Settings(shards=1)) as memory:
        await asyncio.gather(*(memory.session(f"s{n:04}", owner="ann").append(user(f"n{n}")) for n in range(300)))
        large = "large " * 400_000
        for number in range(3):
            await memory.session(f"large{number}", owner="ann").append(user(large), user(large))
        entries = await listed(memory, "ann", 10_000)
        assert len(entries) == len({entry.session_id for entry in entries}) == 303
        assert {entry.title for entry in entries if entry.session_id == "large1"} == {large[:79].rstrip() + "…"}
        assert {entry.title for entry in entries} > {f"n{number}" for number in range(300)}


async def test_lists_without_an_owner_have_titles_if_asked_for(store: Store, namespace: str, raw: Any) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        await memory.session("a", owner="ann").append(user("hello"), title="Hello")
        await memory.session("b").append(user("good day"))
        await memory.session("gone").append(user("x"))
        await raw.delete(memory.store.keys.session("gone").state)
        plain, titled = await memory.sessions(), await memory.sessions(newest=True)
        assert {entry.session_id: (entry.owner, entry.title, entry.last_text) for entry in titled.sessions} == {
            "a": ("ann", "Hello", "hello"),
            "b": (None, "good day", "good day"),
            "gone": (None, None, ""),
        }
        assert [(entry.session_id, entry.active_ms) for entry in titled.sessions] == [
            (entry.session_id, entry.active_ms) for entry in plain.sessions
        ]
        assert {entry.title for entry in plain.sessions} == {None}
        (entry,) = (await memory.sessions(owner="ann")).sessions
        assert (entry.session_id, entry.title, entry.last_text) == ("a", None, "")


@pytest.mark.parametrize("damage", [{"summary:1": b"\xc1"}, {"title": b"\xff", "counters": b"?"}])
async def test_a_title_comes_back_from_quarantine_unless_it_is_unreadable(
    store: Store, namespace: str, raw: Any, damage: dict[str, bytes]
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("s", owner="ann")
        await session.append(user("hello"), title="Mine")
        await raw.hset(memory.store.keys.session("s").state, mapping=damage)
        assert await session.set_aside()
        assert await listed(memory, "ann") == []
        await quarantine.restore(memory.store, await quarantine.find(memory.store, "s", None), salvage=True)
        (entry,) = await listed(memory, "ann")
        assert entry.title == ("hello" if "title" in damage else "Mine")


def test_without_await_it_is_the_same(redis_server: Any, namespace: str) -> None:
    with blocking.Memory.connect(redis_server.url, namespace=namespace) as memory:
        memory.session("s", owner="ann").append(user("hello"), title="Hello")
        assert memory.session("s").title() == "Hello"
        memory.session("s").set_title(None)
        (entry,) = memory.sessions(owner="ann", newest=True).sessions
        assert (entry.session_id, entry.title, entry.last_text) == ("s", "hello", "hello")
