"""A primary behind sentinels: after a failover, calls go to the new primary and none to the old one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.callers import PATIENT, STEADY, Caller, open_caller
from support.checks import catch_unavailable, until, until_unavailable
from support.redis_server import RedisServer, free_port
from support.sentinel_servers import SERVICE, SentinelServers

from redismem import Memory, Settings
from redismem.transport.base import place_of
from redismem.transport.nodes.sentinel import Sentinels

CONFIRMING = PATIENT.model_copy(update={"confirm": 1, "confirm_timeout_s": 30, "reply_timeout_s": 30})
KINDS = ("asyncio", pytest.param("blocking", marks=pytest.mark.nightly))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelServers]:
    """Sentinels that fail over only on command, not because this machine is busy."""
    servers = SentinelServers(tmp_path_factory.mktemp("sentinel"), down_after_ms=60_000)
    try:
        yield servers.start()
    finally:
        servers.stop()


@pytest.fixture(autouse=True)
def well(servers: SentinelServers) -> Iterator[None]:
    yield
    servers.mend()


def place(node: RedisServer) -> str:
    return f"127.0.0.1:{node.port}"


async def check_goes_on(caller: Caller, servers: SentinelServers) -> None:
    """Check that the next appends go to the new primary, once and in order."""

    async def has_left() -> bool:
        await caller.count()  # until then, writes are lost with the old primary
        return place_of(caller.store.transport) == place(servers.primary)

    await until(has_left)
    for text in "bcd":
        await caller.append("user-42", text, id=text)
    assert await caller.texts("user-42") == ["a", "b", "c", "d"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_planned_failover_is_followed(kind: str, servers: SentinelServers, namespace: str) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        await caller.append("user-42", "a")
        assert place_of(caller.store.transport) == place(servers.primary)
        servers.until_in_step()
        await asyncio.to_thread(servers.fail_over)
        await check_goes_on(caller, servers)


@pytest.mark.parametrize("how", ["kill", pytest.param("stop_process", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_dead_primary_is_left(kind: str, how: str, servers: SentinelServers, namespace: str) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        was = servers.primary
        await caller.append("user-42", "a")
        servers.until_in_step()
        getattr(was, how)()
        going_on = asyncio.ensure_future(caller.append("user-42", "b", id="b"))
        await asyncio.to_thread(servers.fail_over)
        await going_on
        await check_goes_on(caller, servers)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_primary_that_is_made_a_replica_says_so_and_is_left(
    kind: str, servers: SentinelServers, namespace: str
) -> None:
    async with open_caller(kind, servers.url, namespace) as caller:
        was = servers.primary
        other = next(node for node in servers.nodes if node is not was)
        await caller.append("user-42", "a")
        servers.until_in_step()
        was.say("CONFIG", "RESETSTAT")
        # The sentinels do not know of it yet, but the node itself says that it is no primary.
        was.say("REPLICAOF", "127.0.0.1", other.port)
        waiting = asyncio.ensure_future(caller.append("user-42", "b", id="b"))

        await until(lambda: b"errorstat_READONLY" in was.say("INFO", "errorstats"))
        assert caller.memory.health().state == "closed"
        assert not waiting.done()
        was.say("REPLICAOF", "NO", "ONE")
        await waiting
        assert await caller.texts("user-42") == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_deposed_primary_that_still_answers_is_left(
    kind: str, servers: SentinelServers, namespace: str
) -> None:
    """The old primary notices nothing: it keeps its connections, and refuses no write."""
    async with open_caller(kind, servers.url, namespace) as caller:
        was = servers.primary
        await caller.append("user-42", "a")
        servers.until_in_step()
        servers.cut_off(was)
        await asyncio.to_thread(servers.fail_over)
        assert was.is_primary
        await check_goes_on(caller, servers)
        servers.join(was)


@pytest.mark.parametrize("kind", KINDS)
async def test_confirmed_appends_ask_the_sentinels_regularly_too(
    kind: str, servers: SentinelServers, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory that only makes confirmed appends would otherwise stay with a deposed primary."""
    async with open_caller(kind, servers.url, namespace) as caller:
        await caller.append_confirmed("user-42", "a")
        asked: list[bool] = []
        monkeypatch.setattr(Sentinels, "is_check_due", lambda _: asked.append(True))
        await caller.append_confirmed("user-42", "b")
        assert asked


@pytest.mark.parametrize("kind", KINDS)
async def test_the_replicas_of_the_primary_confirm(kind: str, servers: SentinelServers, namespace: str) -> None:
    async with open_caller(kind, servers.url, namespace, CONFIRMING) as caller:
        assert (await caller.append("user-42", "a", id="a")).replicas is not None
        servers.until_in_step()
        await asyncio.to_thread(servers.fail_over)
        receipt = await caller.append("user-42", "b", id="b")
        assert receipt.replicas is not None
        assert receipt.replicas >= 1
        assert await caller.texts("user-42") == ["a", "b"]


@pytest.mark.parametrize("kind", KINDS)
async def test_some_sentinels_may_be_down(kind: str, servers: SentinelServers, namespace: str) -> None:
    servers.sentinels[0].stop()  # two more are up
    async with open_caller(kind, servers.url, namespace, STEADY) as caller:
        await caller.append("user-42", "a")
        assert await caller.texts("user-42") == ["a"]
        assert caller.sent_counts() == [1]


async def test_an_unknown_service_is_refused(servers: SentinelServers, namespace: str) -> None:
    url = servers.url.replace(f"/{SERVICE}/", "/other/")
    memory = Memory.connect(url, namespace=namespace, settings=PATIENT)
    try:
        error = await catch_unavailable(memory.ping())
        assert "the sentinels monitor no service with the name in the URL" in str(error)
    finally:
        await memory.aclose()


async def test_sentinels_that_do_not_answer_are_named(namespace: str) -> None:
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    settings = Settings(deadline_s=0.1, reply_timeout_s=0.1)
    memory = Memory.connect(f"redis+sentinel://{','.join(places)}/chats", namespace=namespace, settings=settings)
    try:
        error = await until_unavailable(memory.ping, "ConnectionRefusedError")
        assert f"Redis behind the sentinels at {','.join(places)} " in str(error)
        assert error.reason == "ConnectionRefusedError"
    finally:
        await memory.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_passwords_of_sentinels_and_of_nodes(kind: str, tmp_path: Path, namespace: str) -> None:
    options = ("--requirepass", "n@de", "--masterauth", "n@de")
    servers = SentinelServers(tmp_path, nodes_count=1, options=options, password="guard:ian")
    try:
        await asyncio.to_thread(servers.start)
        open_url = servers.url.replace("://", "://:n%40de@")
        for url, word in ((servers.url, "NOAUTH"), (open_url, "NOAUTH")):
            memory = Memory.connect(url, namespace=namespace, settings=PATIENT)
            assert (await catch_unavailable(memory.ping())).reason == word
            await memory.aclose()
        async with open_caller(kind, f"{open_url}?sentinel_password=guard%3Aian", namespace) as caller:
            await caller.append("user-42", "a")
            assert await caller.texts("user-42") == ["a"]
    finally:
        await asyncio.to_thread(partial(servers.stop))
