"""Other conversations of an owner find at once what is said in one, and nothing of what was removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0
from support.redis_server import RedisServer
from support.stores import Store
from support.writers import Echo, chat_message

from redismem import Memory, Message, Session, Settings
from redismem.originals.signatures import stem_hash
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue.calls import queue_eviction
from redismem.recall.owner import loading
from redismem.recall.owner.cached import CachedOwner
from redismem.text.stems import stems
from redismem.workers.eviction import Eviction
from redismem.workers.summaries import Worker

SETTINGS = Settings(shards=2, threshold=8, recent_limit=4, keep_originals=True)
ODD_ID = "b:7:x:"
SECRET, BEGIN_SECRET = "xylophone", "quagga"


async def begin(memory: Memory, session_id: str, owner: str | None, count: int = 40) -> Session:
    session = memory.session(session_id, owner=owner)
    texts = {3: BEGIN_SECRET, 5: SECRET, count - 1: SECRET}
    await session.append(*(chat_message(seq, texts.get(seq, "message")) for seq in range(1, count + 1)))
    return session


async def find(memory: Memory, word: str, asked_in: str = "new", owner: str = "ann") -> list[tuple[str | None, int]]:
    found = await memory.session(asked_in, owner=owner).recall(word, scope="owner")
    return [(message.session_id, message.seq) for message in found if word in str(message.content)]


def knows(memory: Memory, word: str, owner: str = "ann") -> bool:
    """True if this process has the word in what it has cached of an owner."""
    (stem,) = stems(word)
    cached = memory.session("new", owner=owner)._recall_cache.get_owner(owner)
    if cached is None:
        return False
    assert isinstance(cached, CachedOwner)
    signatures = [each for session in cached.sessions.values() for each in session.signatures.values()]
    return any(stem_hash(stem) in each.hashes for each in signatures) or bool(cached.postings.of(stem_hash(stem)))


async def test_what_was_just_said_is_found_from_a_new_session(store: Store, namespace: str) -> None:
    async with store.memory(namespace, SETTINGS) as memory, store.memory(namespace, SETTINGS) as other_process:
        said = memory.session("a", owner="ann")
        for number, word in enumerate(("walrus", "zebra", "ferret"), 1):
            await said.append(chat_message(number, word))
            for asking in (memory, other_process):
                assert await find(asking, word) == [("a", number)], "no worker runs"
                assert await find(asking, word, asked_in="a") == [], "the asking session's own window"
                assert await find(asking, word, owner="bob") == []
        asked = other_process.session("new", owner="ann")
        context = await asked.append_and_read(chat_message(1, "walrus?"), recall=200, recall_scope="owner")
        assert ("a", 1) in [(message.session_id, message.seq) for message in context.recalled]
        await asked.append(chat_message(2, "ocelot"))
        assert await find(memory, "ocelot", asked_in="a") == [("new", 2)]
        assert await find(memory, "ocelot", asked_in="third") == [("new", 2)]


async def test_a_summary_moves_messages_and_they_are_found_all_the_while(store: Store, namespace: str) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = memory.session("a", owner="ann")
        await session.append(
            {"role": "system", "content": "A zebra."}, *map(chat_message, range(6)), chat_message(7, "walrus")
        )
        assert await find(memory, "zebra") == [], "a pinned message, which its own session shows"
        for round_ in range(3):
            assert await find(memory, "walrus") == [("a", 8)]
            assert await find(memory, "walrus", asked_in="a") == ([("a", 8)] if round_ else [])
            await session.append(*map(chat_message, range(10 + round_)))
            assert await find(memory, "walrus") == [("a", 8)]
            await Worker(memory.store, Echo()).drain()
        assert (await session.info()).summaries_count


async def clear(session: Session) -> None:
    await session.clear()


async def forget(session: Session) -> None:
    await session.forget(3, 5, 39)


async def rewrite(session: Session) -> None:
    await session.rewrite(2, [chat_message(1)])


async def prune_and_pop(session: Session) -> None:
    await session.prune(2)
    await session.pop(2)


async def replace(session: Session) -> None:
    await session.forget(3, 5)
    await session.replace(39, chat_message(39))


async def evict(session: Session) -> None:
    keys = session._calls.keys
    await session._store.run(queue_eviction(keys.shard, [(keys, "-")], EvictionReason.LIMIT, None, kept=False))
    assert await Eviction(session._store).evict(session.id)


async def expire(session: Session) -> None:
    keys = session._calls.keys
    for key in (keys.state, keys.messages, keys.originals):
        await session._store.run(_delete(key))


async def forget_person(session: Session) -> None:
    await Memory(session._store).forget(owner="ann")


async def quarantine(session: Session) -> None:
    keys = session._calls.keys
    await session._store.run(_call(("HSET", keys.state, "counters", "broken")))
    assert await session.set_aside()


def _call(command: Any) -> Any:
    from redismem.protocol.call import Call

    return Call(None, (command,), lambda reply: reply)


def _delete(key: bytes) -> Any:
    return _call(("DEL", key))


WAYS: list[Callable[[Session], Awaitable[None]]] = [
    *(clear, forget, rewrite, prune_and_pop, replace, evict, expire, forget_person, quarantine)
]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_removed_is_gone_at_once_in_every_process(
    store: Store, namespace: str, way: Callable[[Session], Awaitable[None]]
) -> None:
    async with store.memory(namespace, SETTINGS) as memory, store.memory(namespace, SETTINGS) as other_process:
        for session_id, owner in ((ODD_ID, "ann"), ("c", "bob"), ("d", None)):
            await begin(memory, session_id, owner)
        await memory.session("e", owner="ann").append(chat_message(1, "walrus"))
        await Worker(memory.store, Echo()).drain()
        for asking in (memory, other_process):
            assert await find(asking, SECRET) == [(ODD_ID, 5), (ODD_ID, 39)]
            assert await find(asking, BEGIN_SECRET) == [(ODD_ID, 3)]
            assert knows(asking, SECRET)
        assert await find(other_process, "walrus", asked_in=ODD_ID) == [("e", 1)], "and asks in this session at last"
        await way(memory.session(ODD_ID))
        for asking in (other_process, memory):
            for word in (SECRET, BEGIN_SECRET):
                assert await find(asking, word) == []
                assert not knows(asking, word), "the process keeps no word of it either"
            assert await find(asking, "walrus") == ([] if way is forget_person else [("e", 1)])
        assert await find(memory, SECRET, owner="bob") == [("c", 5), ("c", 39)]


async def test_a_session_of_another_owner_is_never_found(store: Store, namespace: str, raw: Any) -> None:
    """Neither if it had this owner before, nor if both have the same score in the index of owners."""
    async with store.memory(namespace, SETTINGS) as memory:
        await begin(memory, "a", "ann")
        await begin(memory, "b", "eve")
        keys = memory.store.keys.session("b")
        assert await find(memory, SECRET) == [("a", 5), ("a", 39)]
        score = await raw.zscore(memory.store.keys.session("a").shard.owners, "a")
        await raw.zadd(keys.shard.owners, {"b": score})
        assert await find(memory, SECRET) == [("a", 5), ("a", 39)]
        await expire(memory.session("a"))
        await memory.session("a", owner="bob").append(chat_message(1, SECRET))
        assert await find(memory, SECRET) == []
        assert await find(memory, SECRET, owner="bob") == [("a", 1)]


def overtake(
    memory: Memory,
    monkeypatch: pytest.MonkeyPatch,
    is_read: Callable[[tuple[Any, ...]], bool],
    change: Callable[[], Awaitable[Any]],
) -> list[str]:
    """Make a change before the first call of commands that are such a read."""
    run, changed = memory.store.run, list[str]()

    async def change_first(call: Any, **options: Any) -> Any:
        if not changed and any(map(is_read, call.commands)):
            changed.append("done")
            await change()
        return await run(call, **options)

    monkeypatch.setattr(memory.store, "run", change_first)
    return changed


async def test_a_session_that_changes_while_it_is_read_is_read_again(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        first, second = await begin(memory, "a", "ann"), await begin(memory, "b", "ann")

        async def change() -> None:
            await first.clear()
            await second.forget(39)
            await second.archive(20)

        changed = overtake(memory, monkeypatch, lambda command: command[0] == "LRANGE" and command[3] == -1, change)
        assert await find(memory, SECRET) == [("b", 5)]
        assert changed


async def test_a_session_that_changes_hands_while_it_is_read_is_not_found(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        session = await begin(memory, "a", "ann")
        await session.archive(30)

        async def change() -> None:
            await session.clear()
            await (await begin(memory, "a", "bob")).archive(30)

        changed = overtake(memory, monkeypatch, lambda command: command[0] == "HMGET" and 0 in command[2:], change)
        assert await find(memory, SECRET) == []
        assert changed, "before its block is read"
        assert await find(memory, SECRET, owner="bob") == [("a", 5), ("a", 39)]


async def test_a_conversation_that_did_not_change_costs_no_further_call(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store.memory(namespace, SETTINGS) as memory:
        await begin(memory, "a", "ann")
        await begin(memory, "b", "ann")
        await Worker(memory.store, Echo()).drain()
        asked = memory.session("new", owner="ann")
        run, calls = memory.store.run, list[Any]()

        async def count(call: Any, **options: Any) -> Any:
            calls.append(call)
            return await run(call, **options)

        monkeypatch.setattr(memory.store, "run", count)
        for number, most in enumerate((5, 2, 2)):
            calls.clear()
            context = await asked.append_and_read(chat_message(number, SECRET), recall=300, recall_scope="owner")
            assert context.recalled
            assert len(calls) <= most, "the append, and one look at the states, both at the same time"


async def test_windows_over_the_limit_are_searched_next_time(
    store: Store, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with store.memory(namespace, SETTINGS) as memory:
        for number in range(6):
            await memory.session(f"s{number}", owner="ann").append(chat_message(1, f"walrus{number} " + "x" * 2_000))
        monkeypatch.setattr(loading, "WINDOWS_BYTES", 5_000)
        words = [f"walrus{number}" for number in range(6)]
        asked = memory.session("new", owner="ann")
        recalled = await asked.recall(" ".join(words), scope="owner")
        assert len({message.session_id for message in recalled}) == 2, "the newest ones"
        assert recalled.unsearched_count == 4
        assert "4 conversations of its owner were not searched" in caplog.text
        await find(memory, "walrus0")
        assert [bool(await find(memory, word)) for word in words] == [True] * 6
        assert (await asked.recall("walrus0", scope="owner")).unsearched_count == 0


async def test_the_newest_blocks_of_many_sessions_are_searched(
    redis_server: RedisServer, namespace: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    now_ms = [T0]
    async with (
        redis.asyncio.Redis(port=redis_server.port) as raw,
        Memory.connect(redis_server.url, namespace=namespace, settings=SETTINGS, clock=lambda: now_ms[0]) as memory,
    ):
        monkeypatch.setattr(loading, "BLOCKS_LIMIT", 3)
        for number in range(5):
            now_ms[0] += 100_000
            await memory.session(f"s{number}", owner="ann").append(chat_message(1, f"walrus{number}"))
        assert [bool(await find(memory, f"walrus{number}")) for number in range(5)] == [False, False, True, True, True]
        assert "2 conversations of its owner were not searched" in caplog.text
        asked = Message("user", "walrus1")
        context = await memory.session("asking", owner="ann").append_and_read(asked, recall=100, recall_scope="owner")
        assert context.recalled.unsearched_count == 2
        await memory.session("asking", owner="ann").clear()
        now_ms[0] += 100_000
        await memory.session("s0", owner="ann").append(chat_message(2, "gnu"))
        assert await find(memory, "walrus0") == [("s0", 1)], "it is one of the newest now"
        monkeypatch.setattr(loading, "BLOCKS_LIMIT", 1_024)
        for first in range(5, 2_000, 100):
            now_ms[0] += 100_000
            names = range(first, min(2_000, first + 100))
            await asyncio.gather(
                *(memory.session(f"s{each}", owner="ann").append(Message("user", f"emu{each}")) for each in names)
            )
        assert await find(memory, "emu1999") == [("s1999", 1)]
        assert await find(memory, "emu5") == []
        cached = memory.session("new", owner="ann")._recall_cache.get_owner("ann")
        assert isinstance(cached, CachedOwner)
        assert len(cached.sessions) == 1_024
        assert cached.size_bytes < 16 * 1024 * 1024
        assert await raw.zcard(memory.store.keys.shards()[0].owners) > 900
