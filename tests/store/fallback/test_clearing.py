"""A clear drops the session's backlog if Redis makes it. If Redis does not, or the outcome is unknown, the backlog
is replayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, cast

import pytest
import redis.asyncio
from support.checks import catch_unavailable, contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.proxy import How, Proxy
from support.redis_server import RedisServer
from support.stores import short_deadlines

from redismem import UNSET, Memory, NotAllowed, Settings
from redismem.protocol import scripts
from redismem.protocol.call import Command, Subject
from redismem.protocol.scripts import Script
from redismem.transport.base import Transport

# A lost reply is soon noticed, and Redis counts as down only in `short_deadlines`.
SETTINGS = Settings(deadline_s=60, reply_timeout_s=0.1, fallback_after_s=20, strategy="none", max_params_count=1)
APPEND, CLEAR = (scripts.load(name).sha for name in ("append", "clear"))
FIRST, *MINE = (user(number) for number in range(5))
SAID = [message["content"] for message in MINE]


class Gate:
    """Wraps a transport: calls of one script wait until the gate is open."""

    def __init__(self, transport: Transport, held_sha: bytes) -> None:
        self._transport = transport
        self._held_sha = held_sha
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.passed: list[bytes] = []
        """Names of the scripts of appends and clears, in the order in which they passed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def run(
        self, commands: Sequence[Command], timeout_s: float, script: Script | None = None, subject: Subject = None
    ) -> Awaitable[list[Any]]:
        sha = next((sha for sha in (APPEND, CLEAR) if sha in commands[0]), None)
        return (
            self._transport.run(commands, timeout_s, script, subject)
            if sha is None
            else self._run(sha, commands, timeout_s, script)
        )

    async def _run(self, sha: bytes, commands: Sequence[Command], timeout_s: float, script: Script | None) -> list[Any]:
        if sha == self._held_sha:
            self.reached.set()
            await self.opened.wait()
        self.passed.append(sha)
        return await self._transport.run(commands, timeout_s, script)


class Pod:
    """A memory with the fallback that has accepted two messages, and a Redis that is up but refuses the first."""

    def __init__(self, memory: Memory, direct_memory: Memory, raw: Any) -> None:
        self.memory = memory
        self.session = memory.session("a")
        self.there = direct_memory.session("a")
        self._raw = raw

    def gate(self, held_sha: bytes) -> Gate:
        gate = Gate(self.memory.store.transport, held_sha)
        self.memory.store.transport = gate
        return gate

    async def may(self, rule: str) -> None:
        """Set the permissions of its Redis user."""
        await self._raw.execute_command("ACL", "SETUSER", self.memory.store.keys.namespace, rule)

    def waiting(self) -> tuple[int, int]:
        health = self.memory.health()
        return health.backlog_message_count, health.backlog_bytes

    async def catch_up(self) -> None:
        await self.may("+evalsha")
        if await self.there.exists():
            await self.there.merge({"theirs": UNSET})

        async def is_empty() -> bool:
            health = self.memory.health()
            return (health.state, health.backlog_session_count) == ("closed", 0)

        await until(is_empty)
        assert self.waiting() == (0, 0)


@pytest.fixture
async def pod(proxy: Proxy, direct_memory: Memory, redis_server: RedisServer) -> AsyncIterator[Pod]:
    name = direct_memory.store.keys.namespace
    async with redis.asyncio.Redis(port=redis_server.port) as raw:
        await raw.execute_command("ACL", "SETUSER", name, "on", ">word", "~*", "+@all")
        await direct_memory.session("another").clear()  # so that the server knows the script
        await direct_memory.session("a").append(FIRST, merge={"theirs": 1})
        url = f"redis://{name}:word@127.0.0.1:{proxy.port}/0"
        async with Memory.connect(url, namespace=name, settings=SETTINGS, fallback=True) as memory:
            await memory.session("another").read()
            await proxy.refuse()
            pod = Pod(memory, direct_memory, raw)
            with short_deadlines(memory):
                assert (await pod.session.append(MINE[0], merge={"mine": 1})).degraded
                assert (await pod.session.append(MINE[1])).degraded
            await proxy.accept_again()

            async def is_refused() -> bool:
                return memory.health().refused_session_count == 1

            await until(is_refused)
            yield pod
            proxy.heal()
            await pod.may("+@all")
        await raw.execute_command("ACL", "DELUSER", name)


async def test_a_clear_that_is_refused_loses_nothing(pod: Pod) -> None:
    before = pod.waiting()
    await pod.may("-evalsha")
    with pytest.raises(NotAllowed):
        await pod.session.clear()
    assert pod.waiting() == before
    assert (await pod.session.append(MINE[2])).degraded, "it goes behind the others"
    await pod.catch_up()
    assert await contents(pod.there) == [FIRST["content"], *SAID[:3]]


@pytest.mark.parametrize("how", ["hole", "freeze"])
async def test_a_clear_whose_reply_is_lost_loses_nothing(pod: Pod, proxy: Proxy, how: How) -> None:
    """With `hole` Redis never sees the clear. With `freeze` Redis makes it, and the backlog is replayed after it."""
    before = pod.waiting()
    gate = pod.gate(CLEAR)
    clear = asyncio.create_task(catch_unavailable(pod.session.clear()))
    await gate.reached.wait()
    proxy.break_next(how, float("inf"), to=CLEAR)
    with short_deadlines(pod.memory):
        gate.opened.set()
        lost = await clear
    assert (lost.may_be_done, lost.session_id) == (True, "a")
    await until(lambda: how == "hole" or proxy.frozen_count)
    if how == "hole":  # else it would be replayed at once
        assert pod.waiting() == before
    await pod.session.append(MINE[2])
    proxy.heal()
    await pod.catch_up()
    assert await contents(pod.there) == [*([FIRST["content"]] if how == "hole" else []), *SAID[:3]]


async def test_a_clear_that_cannot_be_sent_loses_nothing(pod: Pod, proxy: Proxy) -> None:
    before = pod.waiting()
    gate = pod.gate(CLEAR)
    clear = asyncio.create_task(catch_unavailable(pod.session.clear()))
    await gate.reached.wait()
    await proxy.refuse()
    with short_deadlines(pod.memory):
        gate.opened.set()
        await clear
        assert not (await catch_unavailable(pod.session.clear())).may_be_done
    assert pod.waiting() == before
    await proxy.accept_again()
    await pod.catch_up()
    assert await contents(pod.there) == [FIRST["content"], *SAID[:2]]


@pytest.mark.parametrize("is_made", [True, False])
async def test_appends_accepted_during_a_clear_stay(pod: Pod, is_made: bool) -> None:
    gate = pod.gate(CLEAR)
    clear = asyncio.create_task(pod.session.clear())
    await gate.reached.wait()
    for message in MINE[2:]:
        assert (await pod.session.append(message)).degraded
    if not is_made:
        await pod.may("-evalsha")
    gate.opened.set()
    if is_made:
        assert await clear
    else:
        with pytest.raises(NotAllowed):
            await clear
    kept = SAID[2:] if is_made else SAID  # the session on another pod has messages that this pod has never seen
    assert [message.content for message in (await pod.session.read()).messages] == kept
    await pod.catch_up()
    assert await contents(pod.there) == (kept if is_made else [FIRST["content"], *kept])


async def test_a_cancelled_clear_loses_nothing(pod: Pod) -> None:
    gate = pod.gate(CLEAR)
    clear = asyncio.create_task(pod.session.clear())
    await gate.reached.wait()
    clear.cancel()
    with pytest.raises(asyncio.CancelledError):
        await clear
    await pod.catch_up()
    assert await contents(pod.there) == [FIRST["content"], *SAID[:2]]


async def test_an_append_under_way_does_not_return_after_the_clear(pod: Pod) -> None:
    gate = pod.gate(APPEND)
    await pod.there.merge({"theirs": UNSET})
    await gate.reached.wait()
    clear = asyncio.create_task(pod.session.clear())
    backlog = cast(Any, pod.memory.store.fallback)._backlog

    async def is_clearing() -> bool:
        return bool(backlog.is_clearing("a"))

    await until(is_clearing)
    gate.opened.set()
    assert await clear
    assert gate.passed == [APPEND, CLEAR], "and the second is not sent"
    assert pod.waiting() == (0, 0)
    assert not await pod.there.exists()


@pytest.mark.nightly  # needs a processor that threads share fairly
async def test_a_clear_of_another_thread_waits_for_an_append_that_begins_now(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, fallback = pod.gate(APPEND), cast(Any, pod.memory.store.fallback)
    backlog, is_waiting = fallback._backlog, list[bool]()

    def begin_clear() -> None:
        with fallback._lock:
            backlog.begin_clear("a")
            is_waiting.append(backlog.is_replaying("a"))

    clear, look = threading.Thread(target=begin_clear), backlog.is_clearing

    def look_and_lose_the_processor(session_id: str) -> bool:
        is_clearing: bool = look(session_id)
        if clear.ident is None:
            clear.start()
            clear.join(0.2)
        return is_clearing

    monkeypatch.setattr(backlog, "is_clearing", look_and_lose_the_processor)
    await gate.reached.wait()
    await asyncio.to_thread(clear.join)
    assert is_waiting == [True]
    with fallback._lock:
        backlog.end_clear("a", frozenset(), is_cleared=False)
    gate.opened.set()
    await pod.catch_up()
    assert await contents(pod.there) == [FIRST["content"], *SAID[:2]]
