"""A failover loses acknowledged appends between the read and the write of an edit or eviction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from support.conversations import user_message
from support.edited import SMALL, SYSTEM, is_sound, payloads

import redismem.blocking
from redismem import Conflict, Context, Memory, Session, Settings
from redismem.errors import NotInWindow
from redismem.events import Event
from redismem.protocol.layout import EvictionReason
from redismem.protocol.queue import calls as queue_calls
from redismem.workers.eviction import Eviction

SETTINGS = Settings(**SMALL)
OTHERS = [user_message("other 3"), user_message("other 4")]


class LossyFailover:
    """Restores an earlier copy of a namespace after an edit has read it, as a failover does."""

    def __init__(self, url: str, port: int, namespace: str) -> None:
        self._url, self._port, self._namespace = url, port, namespace
        self._stored: list[tuple[bytes, int, bytes]] = []
        self.is_next = False
        self.meanwhile: Callable[[redismem.blocking.Session], object] = lambda session: None
        """The work of another client after the failover, before the edit continues."""

    def __call__(self, event: Event) -> None:
        if event.op == "read_window" and self.is_next:
            self.is_next = False
            self.fail_over()

    def fail_over(self) -> None:
        with redis.Redis(port=self._port) as client:
            client.delete(*self._keys(client))
            for key, expires_ms, dump in self._stored:
                client.restore(key, max(0, expires_ms), dump, absttl=True)
        with redismem.blocking.Memory.connect(self._url, settings=SETTINGS, namespace=self._namespace) as memory:
            self.meanwhile(memory.session("a"))

    def begin(self) -> None:
        """Start to lose all writes."""
        with redis.Redis(port=self._port) as client:
            keys = self._keys(client)
            self._stored = [(key, client.pexpiretime(key), client.dump(key)) for key in keys]

    def _keys(self, client: redis.Redis) -> list[bytes]:
        return list(client.scan_iter(match=f"rm:{{{self._namespace}[:}}]*", count=10_000))


@pytest.fixture
def failover(redis_server: Any, namespace: str) -> LossyFailover:
    return LossyFailover(redis_server.url, redis_server.port, namespace)


def connect(redis_server: Any, namespace: str, failover: LossyFailover) -> Memory:
    return Memory.connect(redis_server.url, settings=SETTINGS, namespace=namespace, on_event=failover)


EDITS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "pop": lambda session: session.pop(1),
    "pop, as expected": lambda session: session.pop(2, expect=4),
    "undo": lambda session: session.undo(),
    "replace": lambda session: session.replace(4, user_message("new")),
}


@pytest.mark.parametrize("refilled", [True, False])
@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
async def test_later_appends_are_not_mistaken_for_the_read_messages(
    redis_server: Any,
    namespace: str,
    failover: LossyFailover,
    edit: Callable[[Session], Awaitable[object]],
    refilled: bool,
) -> None:
    async with connect(redis_server, namespace, failover) as memory:
        session = memory.session("a")
        await session.append(user_message("1"), user_message("2"))
        failover.begin()
        await session.append(user_message("lost 3"), user_message("lost 4"))
        if refilled:
            failover.meanwhile = lambda others: others.append(*OTHERS)
        failover.is_next = True
        lost_alone = edit is EDITS["replace"] and not refilled
        with pytest.raises(NotInWindow if lost_alone else Conflict):
            await edit(session)
        expected = [user_message("1"), user_message("2"), *(OTHERS if refilled else [])]
        assert payloads((await session.read()).messages) == expected
        assert await is_sound(memory)
        assert payloads(await session.pop(1)) == expected[-1:]


async def test_a_prune_drops_no_unread_pinned_message(
    redis_server: Any, namespace: str, failover: LossyFailover
) -> None:
    async with connect(redis_server, namespace, failover) as memory:
        session = memory.session("a")
        await session.append(user_message("1"), user_message("2"))
        failover.begin()
        await session.append(user_message("lost 3"), user_message("lost 4"))
        failover.meanwhile = lambda others: others.append(*OTHERS, pin=True)
        failover.is_next = True
        assert await session.prune(0) == 2
        context = await session.read()
        assert (context.messages, payloads(context.pinned)) == ([], OTHERS)
        assert await is_sound(memory)


@pytest.mark.parametrize("what", ["replace", "unpin"])
async def test_a_pinned_message_that_is_back_in_the_window_is_changed_there(
    redis_server: Any, namespace: str, failover: LossyFailover, what: str
) -> None:
    """The prune that moved it is lost, and its place in the window gets no other copy of it."""
    async with connect(redis_server, namespace, failover) as memory:
        session = memory.session("a")
        await session.append(SYSTEM, user_message("2"), user_message("3"))
        failover.begin()
        assert await session.prune(1) == 1
        failover.is_next = True
        changed = await (session.unpin(1) if what == "unpin" else session.replace(1, SYSTEM | {"content": "new"}))
        context = await session.read()
        assert (context.first_seq, context.total_messages) == (1, 3)
        assert payloads([*context.pinned, *context.messages]) == [
            changed.to_openai(),
            user_message("2"),
            user_message("3"),
        ]
        assert len(context.pinned) == (what == "replace")
        assert await is_sound(memory)


@pytest.mark.parametrize("lost", [True, False])
async def test_an_eviction_removes_only_messages_in_the_transcript(
    redis_server: Any, namespace: str, failover: LossyFailover, lost: bool
) -> None:
    """While a worker hands over the transcript, the session grows, and another worker selects it again."""
    archived: list[tuple[list[Any], dict[str, Any]]] = []

    async def choose() -> None:
        found = await memory.store.run(queue_calls.oldest_sessions(memory.store.keys, 10))
        (place,) = [(memory.store.keys.session(each.session_id), each.active_ms) for shard in found for each in shard]
        call = queue_calls.queue_eviction(place[0].shard, [place], EvictionReason.LIMIT, memory.store.clock, False)
        assert (await memory.store.run(call))[0] == 1

    async def on_evict(session_id: str, context: Context) -> None:
        archived.append((payloads(context.messages), dict(context.state.params)))
        if len(archived) == 1:
            if lost:
                failover.fail_over()
            else:
                await memory.session("a").merge({"plan": "b"})
            await choose()

    async with connect(redis_server, namespace, failover) as memory:
        session, eviction = memory.session("a"), Eviction(memory.store, on_evict)
        await session.append(user_message("1"), user_message("2"))
        failover.begin()
        failover.meanwhile = lambda others: others.append(*OTHERS)
        await session.append(user_message("lost 3"), user_message("lost 4"))
        await choose()
        assert await eviction.drain() == 0
        assert await session.exists()
        assert await is_sound(memory)
        assert await eviction.drain() == 1
        assert not await session.exists()
    first = [user_message("1"), user_message("2"), user_message("lost 3"), user_message("lost 4")]
    last = ([*first[:2], *OTHERS], {}) if lost else (first, {"plan": "b"})
    assert archived == [(first, {}), last]
