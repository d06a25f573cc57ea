"""The contract of every transport: one suite runs on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
import redis
import redis.asyncio
from support.checks import until
from support.redis_server import free_port
from support.transports import ALL, EMBEDDED, NODE, OURS, OVER_A_SOCKET, SENTINEL, open_transport, url_of, url_of_one

from redismem import Memory, Settings
from redismem.blocking.memory import Memory as BlockingMemory
from redismem.errors import StoreUnavailable
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.store.store import Store
from redismem.transport.base import Transport
from redismem.transport.redis_py.client import RedisPy


@pytest.fixture
def url(request: pytest.FixtureRequest, name: str) -> str:
    return url_of(name, request)


@pytest.fixture(params=ALL)
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    async with open_transport(request.param, url_of(request.param, request)) as transport:
        yield transport


@pytest.fixture
def namespace(namespace: str) -> str:
    """The namespace as a hash tag, so that one node owns all keys of a test."""
    return f"{{{namespace}}}"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


async def outcome(transport: Transport, commands: Sequence[Command]) -> Any:
    """Return the first error, in place or raised, or else the replies."""
    try:
        replies = await transport.run(commands, 60)
    except ServerError as error:
        return error
    return next((reply for reply in replies if isinstance(reply, ServerError)), replies)


async def test_one_command_has_one_reply(transport: Transport, namespace: str) -> None:
    assert await transport.run([("SET", namespace, b"a")], 60) in ([b"OK"], [True])
    assert await transport.run([("GET", namespace)], 60) == [b"a"]
    assert await transport.run([("GET", f"{namespace}-missing")], 60) == [None]


@pytest.mark.parametrize("value", [b"", b"\r\n", bytes(range(256)), b"$3\r\nabc\r\n" * 200_000], ids=len)
async def test_bytes_pass_through_as_they_are(transport: Transport, namespace: str, value: bytes) -> None:
    replies = await transport.run([("RPUSH", namespace, value, b"-"), ("LRANGE", namespace, 0, -1)], 60)
    assert replies == [2, [value, b"-"]]


async def test_several_commands_are_answered_in_order(transport: Transport, namespace: str) -> None:
    pushed: list[Command] = [("RPUSH", namespace, "a", b"b", 3), ("LRANGE", namespace, 0, -1), ("LLEN", namespace)]
    commands = [*pushed, ("EXISTS", f"{namespace}-no")]
    assert await transport.run(commands, 60) == [3, [b"a", b"b", b"3"], 3, 0]


async def test_an_error_takes_its_place_among_the_replies(transport: Transport, namespace: str) -> None:
    commands = [("SET", namespace, 1), ("RPUSH", namespace, 1), ("INCR", namespace)]
    for send in (transport.run, transport.run_independent):
        _, error, counted = await send(commands, 60)
        assert isinstance(error, ServerError)
        assert error.word == "WRONGTYPE"
        assert counted == 2


async def test_no_command_runs_if_one_is_refused_when_queued(transport: Transport, namespace: str) -> None:
    with pytest.raises(ServerError):
        await transport.run([("SET", namespace, 1), ("RPUSH", namespace), ("INCR", namespace)], 60)
    assert await transport.run([("EXISTS", namespace)], 60) == [0]


async def test_no_commands_are_no_replies(transport: Transport) -> None:
    assert await transport.run_independent([], 60) == []


async def test_independent_commands_are_all_answered(transport: Transport, namespace: str) -> None:
    many = [("SET", f"{namespace.strip('{}')}-{at}", at) for at in range(100)]  # on all nodes
    await transport.run_independent(many, 60)
    replies = await transport.run_independent([("GET", command[1]) for command in many], 60)
    assert replies == [b"%d" % at for at in range(100)]


async def test_a_refused_command_raises_or_stands_in_its_place(transport: Transport, namespace: str) -> None:
    await transport.run([("SET", namespace, 1)], 60)
    error = await outcome(transport, [("RPUSH", namespace, 1)])
    assert (error.word, str(error).split()[0]) == ("WRONGTYPE", "WRONGTYPE")


async def test_a_script_is_known_once_it_is_loaded(transport: Transport, namespace: str) -> None:
    source = b"return {ARGV[1], '%s'}" % namespace.encode()
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
    unknown = await outcome(transport, [("EVALSHA", sha, 1, namespace, "a")])
    assert unknown.word == "NOSCRIPT"
    unknown = await outcome(transport, [("EVALSHA", sha, 1, namespace, "a"), ("EXISTS", namespace)])
    assert unknown.word == "NOSCRIPT"
    commands = [("EVALSHA", sha, 1, namespace, "a"), ("EXISTS", namespace)]
    replies = await transport.run(commands, 60, Script("known", source, sha))
    assert replies == [[b"a", namespace.encode()], 0]


@pytest.mark.parametrize("name", OVER_A_SOCKET)  # the embedded store compiles a script only when it runs
async def test_a_script_that_cannot_be_loaded_is_an_error(name: str, url: str, namespace: str) -> None:
    async with open_transport(name, url) as transport:
        command = ("EVALSHA", b"e" * 40, 1, namespace)
        with pytest.raises(ServerError):
            await transport.run([command], 60, Script("none", b"this is no Lua", b"e" * 40))


@pytest.mark.parametrize("name", OURS)
async def test_a_missing_reply_is_a_lost_connection(name: str, silent_port: int) -> None:
    async with open_transport(name, url_of_one(name, silent_port), 0.2) as transport:
        with pytest.raises(ConnectionLost):
            await transport.run([("PING",)], 0.05)
        with pytest.raises(ConnectionLost):
            await transport.run_independent([("PING",), ("PING",)], 0.05)


@pytest.mark.parametrize("name", OURS)
async def test_a_missing_server_is_a_lost_connection(name: str) -> None:
    async with open_transport(name, url_of_one(name, free_port())) as transport:

        async def is_refused() -> bool:
            """A busy machine may refuse the connection after the timeout."""
            with pytest.raises(ConnectionLost, match=r"Connect|TimeoutError") as lost:
                await transport.run([("PING",)], 0.05)
            return lost.value.reason != "TimeoutError"

        await until(is_refused)


@pytest.mark.parametrize("name", OURS)
async def test_a_late_reply_reaches_no_other_call(name: str, url: str, namespace: str) -> None:
    # redis-py's blocking client has only the timeout of its connections.
    async with open_transport(name, url, 0.2 if name == "redis-py blocking" else 60) as transport:

        async def reply(*words: str) -> list[Any]:
            while True:
                try:
                    return await transport.run([("ECHO", word) for word in words], 60)
                except ConnectionLost:
                    assert name == "redis-py blocking", "the server was just busy"

        with pytest.raises(ConnectionLost):
            await transport.run([("BLPOP", namespace, 0)], 0.05)
        async with open_transport(name, url) as other:
            await other.run([("RPUSH", namespace, "late")], 60)
        assert await reply("next") == [b"next"]
        assert await reply("a", "b") == [b"a", b"b"]


@pytest.mark.parametrize("name", [*NODE, *SENTINEL])  # a cluster would ask another node then
async def test_a_connection_that_the_server_closed_is_replaced(name: str, url: str) -> None:
    async with open_transport(name, url) as transport:
        (number,) = await transport.run([("CLIENT", "ID")], 60)
        async with open_transport(name, url) as other:
            await other.run([("CLIENT", "KILL", "ID", number)], 60)
        replies = None
        while replies is None:
            with contextlib.suppress(ConnectionLost):
                replies = await transport.run([("CLIENT", "ID")], 60)
        assert replies != [number]


@pytest.mark.parametrize("name", [name for name in ALL if "blocking" not in name])
async def test_each_of_many_callers_has_its_own_reply(name: str, url: str, namespace: str) -> None:
    async with open_transport(name, url) as transport:

        async def call(at: int) -> None:
            key = f"{{{namespace}-{at}}}"
            for turn in range(10):
                value = f"{at}-{turn}".encode()
                assert await transport.run([("RPUSH", key, value), ("LINDEX", key, turn)], 60) == [turn + 1, value]
                assert await transport.run([("LINDEX", key, turn)], 60) == [value]

        await asyncio.gather(*map(call, range(50)))


@pytest.mark.parametrize("name", [name for name in OVER_A_SOCKET if "blocking" in name])
def test_each_of_many_threads_has_its_own_reply(name: str, url: str, namespace: str) -> None:
    failures: list[BaseException] = []
    namespace = namespace.strip("{}")
    with BlockingMemory(Memory(Store(OVER_A_SOCKET[name](url, 60), namespace, Settings()))) as memory:

        def talk(at: int) -> None:
            try:
                session = memory.session(f"thread-{at}")
                for turn in range(20):
                    context = session.append_and_read({"role": "user", "content": f"{at}-{turn}"})
                    assert [m.content for m in context.messages] == [f"{at}-{seq}" for seq in range(turn + 1)]
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=talk, args=(at,)) for at in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


async def test_a_memory_works_over_each_transport(transport: Transport, namespace: str) -> None:
    memory = Memory(Store(transport, namespace.strip("{}"), Settings(deadline_s=60, reply_timeout_s=60)))
    session = memory.session("one")
    receipt = await session.append({"role": "user", "content": "a"}, merge={"x": [1]}, id="first")
    again = await session.append({"role": "user", "content": "a"}, merge={"x": [1]}, id="first")
    assert (receipt.last_seq, again.last_seq, again.duplicate) == (1, 1, True)
    context = await session.append_and_read({"role": "assistant", "content": "b"})
    assert [message.content for message in context.messages] == ["a", "b"]
    assert context.state.params == {"x": [1]}
    assert [message.content for message in await session.messages()] == ["a", "b"]
    assert [entry.session_id for entry in (await memory.sessions()).sessions] == ["one"]
    assert await memory.count() == 1
    assert await session.clear()
    assert not await session.exists()


def test_only_a_provided_client_may_send_a_command_twice() -> None:
    made = [OVER_A_SOCKET[name](url_of_one(name, 1), 1) for name in OURS] + [make() for make in EMBEDDED.values()]
    assert [transport.repeats for transport in made] == [False] * len(made)
    assert RedisPy(redis.asyncio.Redis(), owned=False).repeats
    assert RedisPy(redis.Redis(), owned=False, blocks=True).repeats


@pytest.mark.parametrize("name", OURS)
async def test_a_memory_raises_when_its_store_is_down(name: str, namespace: str) -> None:
    async with open_transport(name, url_of_one(name, free_port())) as transport:
        memory = Memory(Store(transport, namespace.strip("{}"), Settings(deadline_s=0.05, reply_timeout_s=0.05)))
        with pytest.raises(StoreUnavailable):
            await memory.session("one").append({"role": "user", "content": "a"})
