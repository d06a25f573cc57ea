"""What every transport must do, whatever carries it: one suite over all of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest
import redis
import redis.asyncio
from support.redis_server import free_port

from redismem import Memory, Settings
from redismem.blocking import Memory as BlockingMemory
from redismem.errors import ConnectionLost, ServerError, StoreUnavailable
from redismem.protocol.call import Command
from redismem.protocol.scripts import Script
from redismem.store.store import Store
from redismem.transport import embedded
from redismem.transport.base import Transport
from redismem.transport.connect import connect, connect_blocking
from redismem.transport.redis_py import BlockingRedisPy, RedisPy

Make = Callable[[str, float], Transport]


def _by_url(make: Callable[[str | None, Any, Settings], Transport], options: str = "") -> Make:
    def made(url: str, reply_timeout_s: float) -> Transport:
        settings = Settings(reply_timeout_s=reply_timeout_s, deadline_s=60, max_connections=16)
        return make(url + options, None, settings)

    return made


def _cluster_client(url: str, reply_timeout_s: float) -> Transport:
    client = redis.asyncio.RedisCluster.from_url(_first_of(url), socket_timeout=reply_timeout_s)
    return _Owned(RedisPy(client, owned=False), client)


def _blocking_cluster_client(url: str, reply_timeout_s: float) -> Transport:
    client = redis.RedisCluster.from_url(_first_of(url), socket_timeout=reply_timeout_s)
    return _Owned(BlockingRedisPy(client, owned=False), client)


def _first_of(url: str) -> str:
    return url.replace("+cluster", "").partition(",")[0]


class _Owned:
    """A transport over a client of the caller's, and the caller, who closes it."""

    def __init__(self, transport: Transport, client: Any) -> None:
        self._client = client
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    async def aclose(self) -> None:
        await self._transport.aclose()
        closed = self._client.aclose() if hasattr(self._client, "aclose") else self._client.close()
        if closed is not None:
            await closed


NODE: dict[str, Make] = {
    "redis-py": lambda url, reply_timeout_s: RedisPy.from_url(url, max_connections=16, reply_timeout_s=reply_timeout_s),
    "redis-py blocking": lambda url, reply_timeout_s: BlockingRedisPy.from_url(
        url, max_connections=16, reply_timeout_s=reply_timeout_s
    ),
    "lane": _by_url(connect),
    "lane RESP3": _by_url(connect, "?protocol=3"),
    "lane blocking": _by_url(connect_blocking),
    "lane blocking RESP3": _by_url(connect_blocking, "?protocol=3"),
}
CLUSTER: dict[str, Make] = {
    "cluster": _by_url(connect),
    "cluster RESP3": _by_url(connect, "?protocol=3"),
    "cluster blocking": _by_url(connect_blocking),
    "redis-py cluster": _cluster_client,
    "redis-py cluster blocking": _blocking_cluster_client,
}
SENTINEL: dict[str, Make] = {
    "sentinel": _by_url(connect),
    "sentinel RESP3": _by_url(connect, "?protocol=3"),
    "sentinel blocking": _by_url(connect_blocking),
}
OVER_A_SOCKET = NODE | CLUSTER | SENTINEL
EMBEDDED: dict[str, Callable[[], Transport]] = {
    "embedded": embedded.embedded,
    "embedded blocking": embedded.blocking_embedded,
}
ALL = [*OVER_A_SOCKET, *EMBEDDED]
# redis-py's cluster client connects when it is made, tries by itself for long, and takes any node for what has no key.
OURS = [name for name in OVER_A_SOCKET if "redis-py cluster" not in name]


@contextlib.asynccontextmanager
async def to(name: str, url: str, reply_timeout_s: float = 60) -> AsyncIterator[Transport]:
    transport = OVER_A_SOCKET[name](url, reply_timeout_s) if name in OVER_A_SOCKET else EMBEDDED[name]()
    try:
        yield transport
    finally:
        await transport.aclose()


def alone(name: str, port: int) -> str:
    """A URL of its kind that leads to this port alone."""
    if name in SENTINEL:
        return f"redis+sentinel://127.0.0.1:{port}/chats"
    return f"redis{'+cluster' if name in CLUSTER else ''}://127.0.0.1:{port}"


def url_of(name: str, request: pytest.FixtureRequest) -> str:
    """Of the servers of its kind."""
    if name in EMBEDDED:
        return ""
    kind = "cluster_servers" if name in CLUSTER else "sentinel_servers" if name in SENTINEL else "redis_server"
    url: str = request.getfixturevalue(kind).url
    return url


@pytest.fixture
def url(request: pytest.FixtureRequest, name: str) -> str:
    return url_of(name, request)


@pytest.fixture(params=ALL)
async def transport(request: pytest.FixtureRequest) -> AsyncIterator[Transport]:
    async with to(request.param, url_of(request.param, request)) as transport:
        yield transport


@pytest.fixture
def namespace(namespace: str) -> str:
    """As a key: one hash tag, so that all of a test lies on one node."""
    return f"{{{namespace}}}"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


async def outcome(transport: Transport, commands: Sequence[Command]) -> Any:
    """The first error, in place or raised, else the replies."""
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


async def test_an_error_stands_in_its_place_and_the_others_are_run(transport: Transport, namespace: str) -> None:
    commands = [("SET", namespace, 1), ("RPUSH", namespace, 1), ("INCR", namespace)]
    for send in (transport.run, transport.run_independent):
        _, error, counted = await send(commands, 60)
        assert isinstance(error, ServerError)
        assert error.word == "WRONGTYPE"
        assert counted == 2


async def test_nothing_is_run_where_one_command_is_refused_beforehand(transport: Transport, namespace: str) -> None:
    with pytest.raises(ServerError):
        await transport.run([("SET", namespace, 1), ("RPUSH", namespace), ("INCR", namespace)], 60)
    assert await transport.run([("EXISTS", namespace)], 60) == [0]


async def test_no_commands_are_no_replies(transport: Transport) -> None:
    assert await transport.run_independent([], 60) == []


async def test_independent_commands_are_all_answered(transport: Transport, namespace: str) -> None:
    many = [("SET", f"{namespace.strip('{}')}-{at}", at) for at in range(100)]  # on all nodes
    await transport.run_independent(many, 60)
    found = await transport.run_independent([("GET", command[1]) for command in many], 60)
    assert found == [b"%d" % at for at in range(100)]


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


@pytest.mark.parametrize("name", OVER_A_SOCKET)  # the embedded store compiles a script when it is called
async def test_a_script_that_cannot_be_loaded_is_an_error(name: str, url: str, namespace: str) -> None:
    async with to(name, url) as transport:
        command = ("EVALSHA", b"e" * 40, 1, namespace)
        with pytest.raises(ServerError):
            await transport.run([command], 60, Script("none", b"this is no Lua", b"e" * 40))


@pytest.mark.parametrize("name", OURS)
async def test_no_answer_in_time_is_a_lost_connection(name: str, silent_port: int) -> None:
    async with to(name, alone(name, silent_port), 0.2) as transport:
        with pytest.raises(ConnectionLost):
            await transport.run([("PING",)], 0.05)
        with pytest.raises(ConnectionLost):
            await transport.run_independent([("PING",), ("PING",)], 0.05)


@pytest.mark.parametrize("name", OURS)
async def test_nobody_there_is_a_lost_connection(name: str) -> None:
    async with to(name, alone(name, free_port())) as transport:
        with pytest.raises(ConnectionLost, match="Connect"):
            await transport.run([("PING",)], 1)


@pytest.mark.parametrize("name", OURS)
async def test_a_late_reply_is_given_to_nobody_else(name: str, url: str, namespace: str) -> None:
    # redis-py's blocking client knows no other time than that of a connection's attempts.
    async with to(name, url, 1 if name == "redis-py blocking" else 60) as transport:
        with pytest.raises(ConnectionLost):
            await transport.run([("BLPOP", namespace, 0)], 0.05)
        async with to(name, url) as other:
            await other.run([("RPUSH", namespace, "late")], 60)
        assert await transport.run([("ECHO", "next")], 60) == [b"next"]
        assert await transport.run([("ECHO", "a"), ("ECHO", "b")], 60) == [b"a", b"b"]


@pytest.mark.parametrize("name", [*NODE, *SENTINEL])  # of a cluster's nodes, another would be asked then
async def test_a_connection_that_the_server_closed_is_replaced(name: str, url: str) -> None:
    async with to(name, url) as transport:
        (number,) = await transport.run([("CLIENT", "ID")], 60)
        async with to(name, url) as other:
            await other.run([("CLIENT", "KILL", "ID", number)], 60)
        replies = None
        while replies is None:
            with contextlib.suppress(ConnectionLost):
                replies = await transport.run([("CLIENT", "ID")], 60)
        assert replies != [number]


@pytest.mark.parametrize("name", [name for name in ALL if "blocking" not in name])
async def test_each_of_many_callers_has_its_own_reply(name: str, url: str, namespace: str) -> None:
    async with to(name, url) as transport:

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


async def test_a_memory_lives_on_it(transport: Transport, namespace: str) -> None:
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


def test_only_a_client_of_the_callers_may_send_a_command_twice() -> None:
    made = [OVER_A_SOCKET[name](alone(name, 1), 1) for name in OURS] + [make() for make in EMBEDDED.values()]
    assert [transport.repeats for transport in made] == [False] * len(made)
    assert RedisPy(redis.asyncio.Redis(), owned=False).repeats
    assert BlockingRedisPy(redis.Redis(), owned=False).repeats


@pytest.mark.parametrize("name", OURS)
async def test_a_memory_says_when_its_store_is_away(name: str, namespace: str) -> None:
    async with to(name, alone(name, free_port())) as transport:
        memory = Memory(Store(transport, namespace.strip("{}"), Settings(deadline_s=0.2, reply_timeout_s=0.1)))
        with pytest.raises(StoreUnavailable):
            await memory.session("one").append({"role": "user", "content": "a"})
