"""The blocking lane: threads that share sockets, broken connections, signals, forks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from support.checks import until
from support.lanes import SilentServer
from support.proxy import How, Proxy
from support.redis_server import RedisServer

from redismem import Memory, Settings, StoreUnavailable
from redismem.blocking.memory import Memory as BlockingMemory
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost
from redismem.store.store import Store
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.url import Address


def finish(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that must never suspend, and return its value."""
    with pytest.raises(StopIteration) as stop:
        coroutine.send(None)
    return stop.value.value


def lane_to(port: int, max_connections: int = 4) -> BlockingLane:
    return BlockingLane(Address("127.0.0.1", port), max_connections=max_connections)


@pytest.fixture
def lane(redis_server: RedisServer) -> Iterator[BlockingLane]:
    lane = lane_to(redis_server.port)
    yield lane
    finish(lane.aclose())


def ask(lane: BlockingLane, word: str) -> None:
    assert finish(lane.run([("ECHO", word)], 60)) == [word.encode()]


def run_in_threads(*works: Any) -> None:
    """Run functions in threads at once. Raises the first error."""
    failures: list[BaseException] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("how", ["reset", "close", "half_close", "truncate", "freeze", "swallow"])
async def test_a_broken_connection_fails_its_call_and_no_later_one(how: How, redis_server: RedisServer) -> None:
    async with Proxy(redis_server.port) as proxy:
        lane = lane_to(proxy.port)

        def talk() -> None:
            ask(lane, "warm")
            proxy.break_next(how)
            with pytest.raises(ConnectionLost) as lost:
                finish(lane.run([("ECHO", "a"), ("ECHO", "b")], 0.05 if how in ("freeze", "swallow") else 60))
            assert lost.value.sent
            ask(lane, "later")

        await asyncio.to_thread(talk)
        assert proxy.connections_count == 2
        await lane.aclose()


@pytest.mark.parametrize(
    "words", [b"+OK\r\n", b">2\r\n+a\r\n+b\r\n", b"$1", b"*1\rx", b"?\r\n", b"-ERR who are you\r\n"]
)
async def test_an_unexpected_reply_ends_the_connection(words: bytes) -> None:
    """The extra bytes are a whole reply, or the beginning of one."""
    async with SilentServer() as server:
        lane = lane_to(server.port)
        stray = asyncio.create_task(asyncio.to_thread(ask, lane, "a"))
        await until(lambda: server.received.endswith(b"a\r\n"))
        server.say(b"$1\r\na\r\n" + words)
        with pytest.raises(ConnectionLost, match=r"OutOfStep|ProtocolError"):
            await stray
        later = asyncio.create_task(asyncio.to_thread(ask, lane, "b"))
        await until(lambda: server.received.endswith(b"b\r\n"))
        assert len(server.connections) == 2
        server.say(b"$1\r\nb\r\n")
        await later
        await lane.aclose()


@pytest.mark.parametrize("steps", [[b"LOAD"], [b"LOAD", b"return 0"]], ids=["load", "probe"])
async def test_a_lost_reply_to_a_load_is_no_loaded_script(steps: list[bytes]) -> None:
    """The call ends without another attempt: its store decides whether there is time for one."""
    script = Script("any", b"return 1", b"0" * 40)
    async with SilentServer() as server:
        lane = lane_to(server.port)
        call = asyncio.create_task(
            asyncio.to_thread(finish, lane.run([("EVALSHA", script.sha, 0)], 60, script)),
        )
        await until(lambda: b"EVALSHA" in server.received)
        server.say(b"-NOSCRIPT No matching script\r\n")
        for answered, step in enumerate(steps):
            if answered:
                server.say(b"-NOPERM this user has no permissions to run the 'script|load' command\r\n")
            await until(partial(server.has_received, step, 1))
        server.connections[-1].close()
        with pytest.raises(ConnectionLost):
            await call
        assert len(server.connections) == 1
        assert server.has_received(b"EVALSHA", 1)
        await lane.aclose()


@pytest.mark.parametrize("how", ["reset", "close", "half_close", "truncate", "freeze", "swallow"])
async def test_an_append_whose_reply_is_lost_is_stored_once(
    how: How, redis_server: RedisServer, namespace: str
) -> None:
    async with Proxy(redis_server.port) as proxy:

        def talk() -> None:
            twin = Memory(Store(lane_to(proxy.port), namespace, Settings(deadline_s=60, reply_timeout_s=0.05)))
            with BlockingMemory(twin) as memory:
                session = memory.session("one")
                for text in "abcd":
                    proxy.break_next(how, 2)
                    context = session.append_and_read({"role": "user", "content": text})
                assert [message.content for message in context.messages] == list("abcd")

        await asyncio.to_thread(talk)
        assert proxy.connections_count > 4


async def test_replies_a_byte_at_a_time_are_the_same(redis_server: RedisServer, namespace: str) -> None:
    async with Proxy(redis_server.port) as proxy:

        def talk() -> None:
            with BlockingMemory(Memory(Store(lane_to(proxy.port), namespace, Settings()))) as memory:
                session = memory.session("one")
                session.append({"role": "user", "content": "a"})
                proxy.break_next("split")
                context = session.append_and_read({"role": "user", "content": "b"})
                assert [message.content for message in context.messages] == ["a", "b"]

        await asyncio.to_thread(talk)
        assert proxy.connections_count == 1


async def test_threads_take_turns_on_a_few_connections(redis_server: RedisServer) -> None:
    async with Proxy(redis_server.port) as proxy:
        lane = lane_to(proxy.port, max_connections=3)

        def talk(at: int) -> None:
            for turn in range(20):
                ask(lane, f"{at}-{turn}")

        await asyncio.to_thread(run_in_threads, *(lambda at=at: talk(at) for at in range(16)))
        assert 1 <= proxy.connections_count <= 3
        await lane.aclose()


def test_a_call_that_waits_too_long_for_a_connection_sends_nothing(redis_server: RedisServer, namespace: str) -> None:
    lane = lane_to(redis_server.port, max_connections=1)
    blocked = threading.Thread(target=lambda: finish(lane.run([("BLPOP", namespace, 0)], 60)))
    blocked.start()
    lost = None
    while lost is None or lost.sent:  # until the other thread has the connection
        with contextlib.suppress(TimeoutError):
            try:
                finish(lane.run([("RPUSH", f"{namespace}-other", "a")], 0.05))
            except ConnectionLost as failure:
                lost = failure
    assert lost.reason == "TimeoutError"
    other = lane_to(redis_server.port)
    finish(other.run([("RPUSH", namespace, "go on")], 60))
    blocked.join()
    ask(lane, "free again")
    finish(lane.aclose())
    finish(other.aclose())


def last_commands(admin: Any, name: str) -> list[str]:
    """Return the last commands of the connections with this name."""
    return [client["cmd"] for client in admin.client_list() if client["name"] == name]


def test_an_interrupted_call_leaves_no_reply_for_the_next(redis_server: RedisServer, namespace: str) -> None:
    lane = BlockingLane(Address.from_url(f"{redis_server.url}?client_name={namespace}"), max_connections=4)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupt_when_it_waits() -> None:
        with redis.Redis(port=redis_server.port) as admin:
            asyncio.run(until(lambda: last_commands(admin, namespace) == ["blpop"]))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        ask(lane, "warm")
        interrupting = threading.Thread(target=interrupt_when_it_waits)
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            lane.run([("BLPOP", namespace, 0)], 60).send(None)
        interrupting.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    ask(lane, "next")
    finish(lane.aclose())


def test_connections_that_died_while_idle_cost_one_attempt(tmp_path: Path, namespace: str) -> None:
    server = RedisServer(tmp_path).start()
    lane = lane_to(server.port)
    gate = threading.Barrier(4)

    def hold() -> None:
        gate.wait()
        finish(lane.run([("BLPOP", namespace, "0.1")], 60))

    run_in_threads(hold, hold, hold, hold)
    server.kill()
    server.start()
    try:
        with pytest.raises(ConnectionLost):
            ask(lane, "dead")
        ask(lane, "new")
    finally:
        finish(lane.aclose())
        server.stop()


FORKING = """
import asyncio, os, sys
from redismem.transport.lane.blocking import BlockingLane
from redismem.transport.url import Address

def ask(word):
    try:
        lane.run([("ECHO", word), ("CLIENT", "ID")], 60).send(None)
    except StopIteration as stop:
        echoed, number = stop.value
        assert echoed == word.encode()
        return number

lane = BlockingLane(Address.from_url(sys.argv[1]), max_connections=1)
number = ask("before")
child = os.fork()
for turn in range(200):
    assert (ask(f"{child}-{turn}") == number) == bool(child)
if not child:
    os._exit(0)
_, status = os.waitpid(child, 0)
print("child", status)
"""


def test_both_sides_of_a_fork_go_on_with_connections_of_their_own(redis_server: RedisServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, redis_server.url], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.stdout, done.stderr) == ("child 0\n", "")


def test_a_closed_lane_takes_no_more(redis_server: RedisServer) -> None:
    lane = BlockingLane(Address.from_url(redis_server.url), max_connections=1)
    ask(lane, "a")
    finish(lane.aclose())
    with pytest.raises(RuntimeError, match="closed"):
        lane.run([("PING",)], 60).send(None)


async def test_calls_that_outlive_their_lane_leave_no_socket_open(redis_server: RedisServer, namespace: str) -> None:
    lane = BlockingLane(Address.from_url(f"{redis_server.url}?client_name={namespace}"), max_connections=4)

    def wait() -> list[Any]:
        answers: list[Any] = finish(lane.run([("BLPOP", namespace, 0)], 60))
        return answers

    with redis.Redis(port=redis_server.port) as admin:
        waiting = [asyncio.create_task(asyncio.to_thread(wait)) for _ in range(3)]
        await until(lambda: last_commands(admin, namespace) == ["blpop"] * 3)
        await lane.aclose()
        admin.rpush(namespace, 1, 2, 3)
        answers = await asyncio.gather(*waiting)
        assert sorted(value for ((_, value),) in answers) == [b"1", b"2", b"3"], "they are answered all the same"
        await until(lambda: not last_commands(admin, namespace))


def test_the_memory_raises_that_the_store_is_down(namespace: str) -> None:
    lane = lane_to(1)
    with pytest.raises(StoreUnavailable):
        BlockingMemory(Memory(Store(lane, namespace, Settings(deadline_s=0.1, reply_timeout_s=0.1)))).ping()
