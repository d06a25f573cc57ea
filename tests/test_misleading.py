"""Common mistakes: the error comes at once, names the real cause, and says where it is."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio
from support.conversations import user_message
from support.redis_server import RedisServer, free_port
from support.stored import read_namespace
from support.stores import Store

from redismem import InvalidSettings, InvalidState, Memory, Session, Settings, StoreUnavailable
from redismem.blocking import memory as blocking

PATIENT = Settings(deadline_s=60, reply_timeout_s=20)
SHORT = Settings(deadline_s=0.3, reply_timeout_s=0.1)


def error_at(url: str, settings: Settings = PATIENT) -> StoreUnavailable:
    """Return the error that a caller of either memory gets."""

    async def call() -> None:
        async with Memory.connect(url, settings=settings) as memory:
            await memory.session("s").exists()

    with pytest.raises(StoreUnavailable) as first:
        asyncio.run(call())
    with pytest.raises(StoreUnavailable) as second, blocking.Memory.connect(url, settings=settings) as memory:
        memory.session("s").exists()
    reasons = {first.value.reason, second.value.reason}
    if "TimeoutError" in reasons and settings.deadline_s < 60:  # too short for a busy machine
        return error_at(url, Settings(deadline_s=settings.deadline_s * 2, reply_timeout_s=settings.reply_timeout_s * 2))
    assert len(reasons) == 1
    return second.value


def test_a_database_that_does_not_exist(redis_server: RedisServer) -> None:
    told = error_at(f"redis://127.0.0.1:{redis_server.port}/999")
    assert told.text == (
        f"Redis at 127.0.0.1:{redis_server.port} refused the call: ERR, it has no database with the number in the URL"
    )


def test_a_password_where_none_is_set(redis_server: RedisServer) -> None:
    told = error_at(f"redis://:CANARY@127.0.0.1:{redis_server.port}/0")
    assert "a password is given, but the server has none" in told.text
    assert "CANARY" not in told.text


def test_a_password_that_is_wrong_or_missing(tmp_path: Path) -> None:
    server = RedisServer(tmp_path).start()
    try:
        with redis.Redis(port=server.port) as raw:
            raw.config_set("requirepass", "secret")
        told = error_at(f"redis://:CANARY@127.0.0.1:{server.port}/0")
        assert "WRONGPASS, it does not accept the user and password" in told.text
        assert "CANARY" not in told.text
        assert "NOAUTH, it requires a password" in error_at(server.url).text
    finally:
        server.stop()


def test_the_error_names_host_and_port() -> None:
    port = free_port()
    told = error_at(f"redis://127.0.0.1:{port}/0", SHORT)
    assert f"Redis at 127.0.0.1:{port} " in told.text
    assert told.reason == "ConnectionRefusedError"
    assert "ConnectionRefusedError, nothing listens there" in told.text
    assert not told.may_be_done, "no server has received it"
    assert "carried out" not in told.text
    assert "Redis at /nowhere/redis.sock" in error_at("unix:///nowhere/redis.sock", SHORT).text


def test_a_server_without_tls(redis_server: RedisServer) -> None:
    told = error_at(f"rediss://127.0.0.1:{redis_server.port}/0", SHORT)
    assert (
        "HandshakeTimeout, the TLS handshake timed out: if the server has no TLS, its URL begins with redis://"
        in told.text
    )
    assert not told.may_be_done


@pytest.mark.parametrize("login", ["", ":CANARY@"])
def test_an_http_port_instead_of_redis(login: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            told = error_at(f"redis://{login}127.0.0.1:{server.server_port}/0", SHORT)
        finally:
            server.shutdown()
            thread.join()
    assert told.text == (
        f"Redis at 127.0.0.1:{server.server_port} cannot be called: ProtocolError, "
        "the server there is not a Redis: is it the port of something else, such as HTTP?"
    )
    assert not told.may_be_done


def test_a_redis_instead_of_a_sentinel(redis_server: RedisServer) -> None:
    told = error_at(f"redis+sentinel://127.0.0.1:{redis_server.port}/chats", SHORT)
    assert "it is not a sentinel: the URL of a single Redis begins with redis://" in told.text


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "redis://:CANARY@h:1,h:2/0",
            "it names several hosts, which only redis+cluster:// and redis+sentinel:// accept",
        ),
        ("redis://:CANARY@h:99999", "its port is not a number up to 65535"),
        ("redis://:CANARY@[::1]:99999", "its port is not a number up to 65535"),
        ("redis://CANARY:CAN/ARY@h", "percent-encode"),
        ("unix://CANARY/x", "its scheme, host or port is not valid"),
    ],
)
def test_an_invalid_host_or_port(url: str, said: str) -> None:
    for kind in (Memory, blocking.Memory):
        with pytest.raises(InvalidSettings, match="the Redis URL is not usable") as refused:
            kind.connect(url)
        assert said in str(refused.value)
        assert "CAN" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["reddis://:CANARY@h", "redis:/CANARY", "http://u:CANARY@127.0.0.1", "CANARY:6379", "CANARY@127.0.0.1:6379"]
)
def test_an_unknown_scheme(url: str) -> None:
    """The error must not repeat text that may be a password."""
    for kind in (Memory, blocking.Memory):
        with pytest.raises(InvalidSettings, match=r"begin with one of .*: for example redis://") as no:
            kind.connect(url)
        assert "CANARY" not in str(no.value)


def test_an_unknown_host() -> None:
    told = error_at("redis://no-such-host.invalid:7000/0", SHORT)
    assert "Redis at no-such-host.invalid:7000" in told.text
    assert "the host name cannot be resolved" in told.text


async def test_a_client_of_the_other_kind_is_refused() -> None:
    for client in (redis.Redis(port=1), fakeredis.FakeRedis()):
        with pytest.raises(InvalidSettings, match=r"one of redis\.asyncio"):
            Memory.connect(client=client)
    async with redis.asyncio.Redis(port=1) as real, fakeredis.FakeAsyncRedis() as fake:
        for other in (real, fake):
            with pytest.raises(InvalidSettings, match=r"redismem\.Memory takes this one"):
                blocking.Memory.connect(client=other)


async def test_arguments_are_named_as_the_caller_knows_them(
    memory: Memory, session: Session, raw: Any, namespace: str
) -> None:
    await session.append(user_message("a"))
    before = await read_namespace(raw, namespace)
    wrong: Any
    for wrong in (-1, 1.0, True, "1"):
        with pytest.raises(ValueError, match=r"^max_messages must be an integer, 0 or more"):
            await session.prune(wrong)
    for wrong in (2.0, 0, True, 10_001, "2"):
        with pytest.raises(ValueError, match=r"^limit is an integer, from 1 to 10000"):
            await memory.sessions(limit=wrong)
    deep, far = ("[" * 200_000, json.dumps([1, "a", 10**30]))
    crafted = [base64.urlsafe_b64encode(each.encode()).decode() for each in (deep, far)]
    for wrong in (3, b"x", "x", *crafted):
        with pytest.raises(ValueError, match="this cursor was not returned"):
            await memory.sessions(cursor=wrong)
    for wrong in (["a"], "a", [], 0, ("a", 1)):
        with pytest.raises(InvalidState, match="merge takes a mapping"):
            await session.merge(wrong)
        with pytest.raises(InvalidState, match="merge takes a mapping"):
            await session.append(user_message("b"), merge=wrong)
    with pytest.raises(InvalidState, match="pass None to wait for no param"):
        await session.set_waiting("")
    with pytest.raises(InvalidState, match="a param name is a string, not a int"):
        await session.merge({1: 1})  # type: ignore[dict-item]
    assert await read_namespace(raw, namespace) == before


async def test_a_closed_memory_says_so(store: Store, namespace: str) -> None:
    """This also holds with a client that is still open, and with the embedded store, which would go on working."""
    async with store.client() as client:
        memory = Memory.connect(client=client, namespace=namespace)
        session = memory.session("s")
        await session.append(user_message("a"))
        await memory.aclose()
        for call in (session.append(user_message("b")), session.read(), memory.ping(), memory.count()):
            with pytest.raises(RuntimeError, match="this memory is closed"):
                await call
        await memory.aclose()
        assert await client.ping()


@pytest.mark.parametrize("url", ["real", "memory://"])
def test_a_closed_blocking_memory_says_so(url: str, redis_server: RedisServer, namespace: str) -> None:
    memory = blocking.Memory.connect(redis_server.url if url == "real" else url, namespace=namespace)
    session = memory.session("s")
    session.append(user_message("a"))
    memory.close()
    for call in (session.read, memory.ping, memory.count):
        with pytest.raises(RuntimeError, match="this memory is closed"):
            call()
    memory.close()


async def test_close_does_not_wait_for_a_call_that_retries(redis_server: RedisServer, namespace: str) -> None:
    memory = Memory.connect(f"redis://127.0.0.1:{free_port()}/0", namespace=namespace, settings=Settings(deadline_s=60))
    call = asyncio.create_task(memory.session("s").read())
    await asyncio.sleep(0)
    began_s = time.monotonic()
    await memory.aclose()
    with pytest.raises((RuntimeError, StoreUnavailable)):
        await call
    assert time.monotonic() - began_s < 30
