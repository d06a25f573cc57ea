"""The server dies or stalls under load: each acknowledged append is there once, in its place."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.checks import catch_unavailable, check_silent, contents, insist, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.cut_logs import command_offsets, crash, log_path
from support.proxy import Proxy
from support.redis_server import RedisServer

import redismem.blocking
from redismem import Memory, Message, Session, Settings, StoreUnavailable
from redismem.protocol.layout import counters

PATIENT = Settings(deadline_s=60, reply_timeout_s=1)
QUICK = Settings(deadline_s=60, reply_timeout_s=0.2)
HASTY = Settings(deadline_s=1, reply_timeout_s=0.5)
AHEAD_COUNT = 500  # Appends beyond the number that a test waits for, so that some are under way at the fault.


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that tests may kill: it writes its log before each reply, and waits for no disk."""
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


class Ledger:
    """The appends that writers asked for, and the receipts they got."""

    def __init__(self) -> None:
        self.asked: dict[str, set[str]] = {}
        self.acked: dict[str, dict[str, int]] = {}
        self.count = 0

    def ask(self, session_id: str, text: str) -> None:
        assert text not in self.asked.setdefault(session_id, set())
        self.asked[session_id].add(text)

    def ack(self, session_id: str, text: str, seq: int) -> None:
        self.acked.setdefault(session_id, {})[text] = seq
        self.count += 1

    async def grow(self, more: int) -> None:
        async def reached(wanted: int = self.count + more) -> bool:
            return self.count >= wanted

        await until(reached)

    def check(self, session_id: str, found: list[Message]) -> None:
        """Check that each acknowledged append is in its place, nothing is there twice, and nothing is unknown."""
        texts = [message.content for message in found]
        assert len(set(texts)) == len(texts), "twice"
        assert set(texts) <= self.asked[session_id]
        places = {message.content: message.seq for message in found}
        assert {text: places.get(text) for text in self.acked[session_id]} == self.acked[session_id]
        for writer in {text.partition(" ")[2].partition(".")[0] for text in texts}:
            own = [int(text.rpartition(".")[2]) for text in texts if text.partition(" ")[2].startswith(f"{writer}.")]
            assert own == sorted(own)


class Load:
    """Tasks that append within a budget, each waiting for its receipt before the next append.

    A session remembers its last 16 appends. So each session has either one writer, or a few writers that append little
    per round.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._stop = False
        self._room = asyncio.Semaphore(0)
        self.ledger = Ledger()
        self.failed_count = 0

    async def _append(self, session: Session, writer: str, number: int) -> None:
        message = user(f"{writer}.{number}")
        self.ledger.ask(session.id, message["content"])
        try:
            if number % 2:
                receipt = (await session.append_and_read(message)).receipt
            else:
                receipt = await session.append(message)
        except StoreUnavailable as error:
            check_silent(error)
            self.failed_count += 1
            await asyncio.sleep(0.005)  # while Redis is known to be down, a call fails at once
            self.allow(1)
        else:
            assert receipt is not None
            self.ledger.ack(session.id, message["content"], receipt.last_seq)

    async def _write(self, session: Session, writer: str, first: int, count: int) -> None:
        for number in range(first, first + count):
            await self._room.acquire()
            if self._stop:
                return
            await self._append(session, writer, number)

    async def round(self, number: int) -> None:
        """Append until stopped."""
        self._stop, self._room = False, asyncio.Semaphore(0)
        async with asyncio.TaskGroup() as group:
            for alone in range(24):
                session = self._memory.session(f"alone-{alone}")
                group.create_task(self._write(session, "w", number * 1_000_000, 1_000_000))
            for shared in range(8):
                session = self._memory.session(f"shared-{shared}")
                for writer in "abcd":
                    group.create_task(self._write(session, writer, number * 4, 4))

    def allow(self, count: int) -> None:
        for _ in range(count):
            self._room.release()

    async def wait_for_acks(self, more: int) -> None:
        self.allow(more + AHEAD_COUNT)
        await self.ledger.grow(more)

    def stop(self) -> None:
        self._stop = True
        self.allow(24 + 8 * 4)

    async def check(self, memory: Memory, raw: Any) -> None:
        for session_id in self.ledger.asked:
            session = memory.session(session_id)
            await contents(session)
            self.ledger.check(session_id, await session.messages())
            keys = memory.store.keys.session(session_id)
            assert await raw.llen(keys.messages) == counters(await raw.hget(keys.state, "counters")).message_count
            assert await raw.zscore(keys.shard.active, session_id) is not None
            assert await raw.pexpiretime(keys.messages) == await raw.pexpiretime(keys.state) > 0
        assert not [key async for key in raw.scan_iter("*corrupt*")]


@pytest.mark.parametrize(("settings", "kills_count"), [(PATIENT, 2), (HASTY, 2)], ids=["waiting", "giving up"])
async def test_killed_under_load(server: RedisServer, settings: Settings, kills_count: int) -> None:
    async with (
        aclosing(Memory.connect(server.url, settings=settings)) as memory,
        redis.asyncio.Redis(port=server.port) as raw,
    ):
        load = Load(memory)
        for number in range(kills_count):
            talking = asyncio.create_task(load.round(number))
            await asyncio.sleep(0)  # it begins with a budget of zero
            # Early, while several still write to one session, or later.
            await load.wait_for_acks(40 if number % 2 else 300)
            server.kill()  # at this moment many writers wait for a receipt
            if settings is HASTY:
                failed_count = load.failed_count
                load.allow(AHEAD_COUNT)

                async def given_up(before: int = failed_count) -> bool:
                    return load.failed_count > before

                await until(given_up)
            await asyncio.to_thread(server.start)
            await load.wait_for_acks(300)
            load.stop()
            await talking
        assert (load.failed_count > 0) == (settings is HASTY)
        async with Memory.connect(server.url, settings=PATIENT) as patient:
            await load.check(patient, raw)


@pytest.mark.parametrize("write", ["append", "append to a full slot of ids", "prune"])
async def test_a_cut_log_is_replayed_twice(server: RedisServer, write: str) -> None:
    """The server truncates an incomplete command, keeps the first commands of its transaction, and runs them at its
    start after next: redis-server 7.0 and 8.0 and Valkey 8.1 do so."""
    async with Memory.connect(server.url, settings=PATIENT) as memory, redis.asyncio.Redis(port=server.port) as raw:
        session = memory.session("a")
        count = 5 if write == "append to a full slot of ids" else 3

        async def stored_texts() -> list[str]:
            if write == "prune":
                await session.prune(2)
            else:
                await session.append(user("last"), id="last")
            return await contents(session)

        for number in range(count):
            await session.append(user(str(number)), id=str(number))
        before = log_path(server).read_bytes()
        expected = await stored_texts()
        whole = log_path(server).read_bytes()
        commands = command_offsets(before, whole)
        assert len(commands) > 2, "MULTI, what is set, the messages, EXEC"
        for at in commands[:-1]:
            await crash(server, whole[: at + 6])
            assert await stored_texts() == expected, "sent again, as its answer never came"
            await crash(server)
            assert await contents(session) == expected
            assert (await session.append(user("next"))).last_seq == count + (write != "prune") + 1
        assert not [key async for key in raw.scan_iter("*corrupt*")]


async def test_blocking_callers_survive_a_kill(server: RedisServer) -> None:
    ledger, stop, room = Ledger(), threading.Event(), threading.Semaphore(0)

    def write(memory: redismem.blocking.Memory, session_id: str) -> None:
        number = 0
        while room.acquire() and not stop.is_set():
            message = user(f"w.{number}")
            ledger.ask(session_id, message["content"])
            receipt = memory.session(session_id).append(message)
            ledger.ack(session_id, message["content"], receipt.last_seq)
            number += 1

    async def wait_for_acks(more: int) -> None:
        room.release(more + AHEAD_COUNT)
        await ledger.grow(more)

    with redismem.blocking.Memory.connect(server.url, settings=PATIENT) as memory:
        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(asyncio.to_thread(write, memory, f"a-{number}"))
            try:
                for _ in range(2):
                    await wait_for_acks(100)
                    server.kill()  # not with `to_thread`: the writers may hold all its threads
                    server.start()
                await wait_for_acks(100)
            finally:
                stop.set()
                room.release(6)
    async with Memory.connect(server.url, settings=PATIENT) as memory_:
        for session_id in ledger.asked:
            messages = await memory_.session(session_id).messages()
            assert len(messages) == len(ledger.acked[session_id])
            ledger.check(session_id, messages)


async def test_a_stalled_server_loses_nothing(server: RedisServer) -> None:
    settings = Settings(deadline_s=0.5, reply_timeout_s=0.1)
    async with (
        Proxy(server.port) as proxy,
        Memory.connect(server.url, settings=PATIENT) as direct_memory,
        aclosing(Memory.connect(proxy.url, settings=settings)) as memory,
    ):
        sessions = [memory.session(f"a-{number}") for number in range(8)]
        for session in sessions:
            await insist(partial(session.append, user("first"), id="first"))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            proxy.forget()

            async def give_up() -> bool:
                calls = (session.append(user(writer), id=str(writer)) for session in sessions for writer in range(2))
                errors = await asyncio.gather(*map(catch_unavailable, calls))
                # The deadlines of the call and of its connection fall into the same moment.
                assert {error.reason for error in errors} <= {"TimeoutError", "StalledConnection"}
                return proxy.connections_count >= 2  # a busy machine may leave time for fewer attempts

            await until(give_up)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        for writer in (1, 0):
            await asyncio.gather(
                *(direct_memory.session(session.id).append(user(writer), id=str(writer)) for session in sessions)
            )
        for session in sessions:
            first, *others = await contents(direct_memory.session(session.id))
            assert first == user("first")["content"]
            assert sorted(others) == [user(0)["content"], user(1)["content"]]


async def test_a_stall_within_the_deadline_is_not_noticed(server: RedisServer) -> None:
    async with Proxy(server.port) as proxy, Memory.connect(proxy.url, settings=QUICK) as memory:
        session = memory.session("a")
        await session.append(user(0))
        os.kill(server.pid, signal.SIGSTOP)
        try:
            appending = asyncio.create_task(session.append_and_read(user(1)))
            started_count = proxy.connections_count

            async def tried_again() -> bool:
                return proxy.connections_count > started_count

            await until(tried_again)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        context = await appending
        assert [message.content for message in context.messages] == [user(0)["content"], user(1)["content"]]
        assert await contents(session) == [user(0)["content"], user(1)["content"]]
