"""Servers and proxies without some commands: the error names the command, and optional ones are done without."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from support.callers import Awaiting, Caller, open_caller
from support.checks import until_unavailable
from support.redis_server import RedisServer

import redismem.blocking
from redismem import Memory, NotAllowed, RedismemError, Settings, Unconfirmed
from redismem.protocol import permissions, replies, scripts
from redismem.protocol.server_errors import ServerError
from redismem.transport import resp

SETTINGS = Settings(shards=16, deadline_s=60, reply_timeout_s=20, confirm_timeout_s=0.001)
KINDS = ("asyncio", "blocking")
CLIENTS = ("redis-py", "redis-py blocking")


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], RedisServer]]:
    """A function that returns a server without this command, as `rename-command` of a provider makes it."""
    servers: dict[str, RedisServer] = {}

    def start(command: str) -> RedisServer:
        if command not in servers:
            options = ("--rename-command", command, "")
            servers[command] = RedisServer(tmp_path_factory.mktemp(command), options=options).start()
        return servers[command]

    yield start
    for server in servers.values():
        server.stop()


@contextlib.asynccontextmanager
async def open_by(way: str, url: str, namespace: str, settings: Settings = SETTINGS) -> AsyncIterator[Caller]:
    """Open a memory by URL, or over a redis-py client."""
    if way in KINDS:
        async with open_caller(way, url, namespace, settings) as caller:
            yield caller
    elif way == "redis-py":
        async with redis.asyncio.Redis.from_url(url) as client:
            yield Caller(Memory.connect(client=client, namespace=namespace, settings=settings), [])
    else:
        with redis.Redis.from_url(url, socket_timeout=20) as client:
            memory = redismem.blocking.Memory.connect(client=client, namespace=namespace, settings=settings)
            yield Caller(Awaiting(memory, Memory), [])


CASES = [
    ("EVALSHA", "", KINDS + CLIENTS),
    ("MULTI", "", KINDS),
    ("SELECT", "/1", KINDS),
    ("HELLO", "/0?protocol=3", KINDS),
    ("TIME", "", KINDS + CLIENTS),
    ("HSET", "", KINDS + CLIENTS),
]


@pytest.mark.parametrize(
    ("command", "options", "way"), [(name, options, way) for name, options, ways in CASES for way in ways]
)
async def test_a_command_that_the_server_does_not_have_is_named(
    command: str, options: str, way: str, without: Callable[[str], RedisServer], namespace: str
) -> None:
    url = f"redis://{without(command).place}{options}"
    with pytest.raises(NotAllowed) as refused:
        async with open_by(way, url, namespace) as caller:
            await caller.turn("user-42", "secret")
    text = str(refused.value)
    assert refused.value.command == command.lower()
    assert f"does not have {command}" in text
    assert ("within a script" in text) == (command in ("TIME", "HSET"))
    assert "ACL" not in text
    assert "secret" not in text


@pytest.mark.parametrize("kind", KINDS)
async def test_the_error_says_that_a_call_without_multi_may_have_been_made(
    kind: str, redis_server: RedisServer, user: Callable[..., str], namespace: str
) -> None:
    """The server refuses MULTI, and then runs the commands of the transaction as they come."""
    async with open_caller(kind, redis_server.url, namespace, SETTINGS) as caller:
        await caller.append("user-42", "a")
        async with open_caller(kind, user("-multi"), namespace, SETTINGS) as other:
            with pytest.raises(NotAllowed, match="the commands of this call ran one by one, so it may have been made"):
                await other.turn("user-42", "b")
        assert await caller.texts("user-42") == ["a", "b"]


@pytest.mark.parametrize("way", KINDS + CLIENTS)
async def test_without_script_the_source_is_sent(
    way: str, without: Callable[[str], RedisServer], namespace: str
) -> None:
    server = without("SCRIPT")
    async with open_by(way, f"redis://{server.place}", namespace) as caller:
        await check_turns(caller)


async def check_turns(caller: Caller) -> None:
    """Check operations that run scripts alone, in a transaction, with WAIT, and several at once."""
    await caller.append("user-42", "a")
    assert [message.content for message in (await caller.turn("user-42", "b")).messages] == ["a", "b"]
    with pytest.raises(Unconfirmed):
        await caller.memory.session("user-42").append({"role": "user", "content": "c"}, confirm=1)
    assert await caller.texts("user-42") == ["a", "b", "c"]
    await asyncio.gather(*(caller.turn(f"user-{number}", "a") for number in range(8)))
    assert await caller.memory.session("user-42").prune(1) == 2
    assert await caller.texts("user-42") == ["c"]


@pytest.fixture
def user(redis_server: RedisServer, namespace: str) -> Iterator[Callable[..., str]]:
    """A function that makes a user with the documented permissions and these changes. Returns the user's URL."""

    def make(*changes: str) -> str:
        line = f"ACL SETUSER {namespace} reset on >pw {permissions.acl(namespace)}"
        redis_server.say(*line.split(), *changes)
        return redis_server.url.replace("redis://", f"redis://{namespace}:pw@")

    yield make
    redis_server.say("ACL", "DELUSER", namespace)


@pytest.mark.parametrize("way", KINDS + CLIENTS)
async def test_a_user_that_may_not_load_scripts_sends_the_source(
    way: str, user: Callable[..., str], redis_server: RedisServer, namespace: str
) -> None:
    url = user("-script|load", "+eval")
    redis_server.say("SCRIPT", "FLUSH")
    async with open_by(way, url, namespace) as caller:
        await check_turns(caller)


@pytest.mark.parametrize("way", KINDS + CLIENTS)
async def test_a_user_that_may_neither_is_told_to_deploy(
    way: str, user: Callable[..., str], redis_server: RedisServer, namespace: str
) -> None:
    url = user("-script|load")
    redis_server.say("SCRIPT", "FLUSH")
    hasty = SETTINGS.model_copy(update={"deadline_s": 0.1, "reply_timeout_s": 0.1, "confirm_timeout_s": 0.1})
    calls: list[Callable[[Any], Any]] = [
        lambda session: session.append({"role": "user", "content": "a"}),
        lambda session: session.append_and_read({"role": "user", "content": "a"}),
        lambda session: session.append({"role": "user", "content": "a"}, confirm=1),
    ]
    async with open_by(way, redis_server.url, namespace) as caller:
        await caller.append("user-42", "first")
    for call in calls:

        async def connect_and_call(call: Callable[[Any], Any] = call) -> None:
            redis_server.say("SCRIPT", "FLUSH")
            async with open_by(way, url, namespace, hasty) as caller:
                await call(caller.memory.session("user-42"))

        refused = await until_unavailable(
            connect_and_call, "this user may not load them: run `redismem repair scripts`"
        )
        assert refused.reason == "NOSCRIPT"


@pytest.mark.parametrize("protocol", ["2", "3"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_needs_no_name(
    kind: str, protocol: str, without: Callable[[str], RedisServer], user: Callable[..., str], namespace: str
) -> None:
    options = f"/1?client_name=pod&protocol={protocol}"
    for url in (f"redis://{without('CLIENT').place}{options}", user("-client|setname").removesuffix("/0") + options):
        async with open_caller(kind, url, namespace, SETTINGS) as caller:
            await caller.turn("user-42", "a")
            assert await caller.texts("user-42") == ["a"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_that_is_not_valid_is_an_error(kind: str, redis_server: RedisServer, namespace: str) -> None:
    with pytest.raises(RedismemError):
        async with open_caller(kind, f"{redis_server.url}?client_name=two%20words", namespace, SETTINGS):
            pass


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("ERR unknown command 'EVALSHA', with args beginning with: 'secret' ", "evalsha"),
        ("ERR unknown command `MULTI`, with args beginning with: ", "multi"),
        ("ERR unknown subcommand 'SETNAME'. Try CLIENT HELP.", "setname"),
        ("unsupported command 'select'", "select"),  # Envoy
        ("ERR Unsupported subcommand 'LOAD' for command SCRIPT", "load"),  # redis-cluster-proxy
        ("ERR Command is not available: 'TIME'. See https://upstash.com/docs", "time"),
        (
            f"ERR Unknown Redis command called from script script: {scripts.load('touch').sha.decode()}, "
            "on @user_script:1.",
            "",
        ),
    ],
)
def test_the_texts_of_servers_and_proxies_are_understood(text: str, command: str) -> None:
    refused = replies.refusal(resp.server_error(text), "user-42")
    assert isinstance(refused, NotAllowed)
    assert (refused.command, refused.session_id) == (command, "user-42")
    assert "secret" not in str(refused)
    assert command.upper() in str(refused)


def test_a_server_that_is_no_sentinel_keeps_its_own_explanation() -> None:
    assert replies.refusal(ServerError("ERR", "ERR unknown command 'SENTINEL'"), None) is None
