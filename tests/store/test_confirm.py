"""confirm=n acknowledges an append once n replicas have it, or not at all. On a primary with two replicas.

Redis 8 is tested too: there WAIT returns at once on a connection that has written nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from support.checks import until, user
from support.proxy import Proxy
from support.redis_server import ON_THE_PATH, REDIS_8, RedisServer, binary_of
from support.replicated import Replicated
from support.stores import short_deadlines

import redismem.blocking
from redismem import Context, InvalidMessage, InvalidSettings, Memory, Settings, StoreUnavailable, Unconfirmed

QUICK = Settings(shards=2, confirm_timeout_s=0.05)
PATIENT = Settings(shards=2, confirm_timeout_s=30, deadline_s=60, reply_timeout_s=30)


@pytest.fixture(scope="module", params=[ON_THE_PATH, REDIS_8])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    servers = Replicated(tmp_path_factory.mktemp("replicated"), binary_of(request.param))
    yield servers
    servers.stop()


@pytest.fixture
async def replicated(servers: Replicated) -> Replicated:
    await servers.wait_until_ready()
    return servers


@asynccontextmanager
async def open_memory(make: str, url: str, namespace: str, settings: Settings) -> AsyncIterator[Memory]:
    """A memory over each kind of transport; a blocking one in a thread of its own."""
    if make == "lane":
        async with Memory.connect(url, namespace=namespace, settings=settings) as memory:
            yield memory
    elif make == "redis-py":
        async with (
            redis.asyncio.Redis.from_url(url) as client,
            Memory.connect(client=client, namespace=namespace, settings=settings) as memory,
        ):
            yield memory
    elif make == "blocking lane":
        with redismem.blocking.Memory.connect(url, namespace=namespace, settings=settings) as blocking:
            yield blocking._twin
    else:
        with redis.Redis.from_url(url) as theirs:
            connected = redismem.blocking.Memory.connect(client=theirs, namespace=namespace, settings=settings)
            with connected as blocking:
                yield blocking._twin


def replicas_of(context: Context) -> int | None:
    assert context.receipt is not None
    return context.receipt.replicas


EVERY_WAY = pytest.mark.parametrize("make", ["lane", "redis-py", "blocking lane", "blocking redis-py"])


@EVERY_WAY
async def test_an_acknowledged_append_is_on_the_replicas(replicated: Replicated, namespace: str, make: str) -> None:
    async with open_memory(make, replicated.url, namespace, PATIENT) as memory:
        session = memory.session("a")
        assert (await session.append(user(1))).replicas is None
        assert (await session.append(user(2), confirm=2)).replicas == 2
        messages = memory.store.keys.session("a").messages
        assert [replicated.length_on_replica(number, messages) for number in range(2)] == [2, 2]
        context = await session.append_and_read(user(3), id="third", confirm=1)
        assert replicas_of(context) in (1, 2)
        assert [message.content for message in context.messages] == [user(n)["content"] for n in (1, 2, 3)]
        recalled = await session.append_and_read(user(4), recall=100, confirm=2)
        assert replicas_of(recalled) == 2
        with redis.Redis(port=replicated.primary.port) as client:
            client.script_flush()
        assert (await session.append(user(5), confirm=2)).replicas == 2
        assert (await session.append(user(6), confirm=0)).replicas is None


@EVERY_WAY
async def test_an_append_not_confirmed_in_time_raises(replicated: Replicated, namespace: str, make: str) -> None:
    async with (
        open_memory(make, replicated.url, namespace, QUICK) as quick,
        open_memory(make, replicated.url, namespace, PATIENT) as patient,
    ):
        session = quick.session("a")
        with replicated.stop_replicas(1):
            assert (await patient.session("a").append(user(1), id="one", confirm=1)).replicas == 1
            with pytest.raises(Unconfirmed, match=r"session a: [01] of 2 replicas .* same id") as refused:
                await session.append(user(2), id="two", confirm=2)
            assert (refused.value.replicas < 2, refused.value.wanted) == (True, 2)
            assert (await session.info()).total_messages == 2, "it stands in the primary"
            with pytest.raises(Unconfirmed):  # the append is known by now, and WAIT is sent all the same
                await session.append_and_read(user(2), id="two", confirm=2)
        receipt = await patient.session("a").append(user(2), id="two", confirm=2)
        assert (receipt.duplicate, receipt.last_seq, receipt.replicas) == (True, 2, 2)


async def test_the_setting_confirms_every_append(replicated: Replicated, namespace: str) -> None:
    quick, patient = (each.model_copy(update={"confirm": 2}) for each in (QUICK, PATIENT))
    async with (
        Memory.connect(replicated.url, namespace=namespace, settings=quick) as unlucky,
        Memory.connect(replicated.url, namespace=namespace, settings=patient) as memory,
    ):
        session = memory.session("a")
        assert (await session.append(user(1))).replicas == 2
        await session.merge({"size": "M"})
        assert replicas_of(await session.append_and_read(user(2))) == 2
        with replicated.stop_replicas(0, 1):
            session = unlucky.session("a")
            with pytest.raises(Unconfirmed):
                await session.append(user(3))
            with pytest.raises(Unconfirmed):
                await session.merge({"size": "L"})
            assert (await session.append(user(4), confirm=0)).replicas is None


async def test_concurrent_appends_share_one_wait(replicated: Replicated, namespace: str) -> None:
    async with (
        redis.asyncio.Redis(port=replicated.primary.port) as client,
        Memory.connect(replicated.url, namespace=namespace, settings=PATIENT) as memory,
    ):
        await client.config_resetstat()
        appends = [memory.session(f"s-{number}").append(user(number), confirm=2) for number in range(200)]
        assert {receipt.replicas for receipt in await asyncio.gather(*appends)} == {2}
        waits = (await client.info("commandstats"))["cmdstat_wait"]["calls"]
        assert waits <= 3


async def test_other_calls_do_not_wait_for_replicas(replicated: Replicated, namespace: str) -> None:
    """Redis runs nothing else on a connection in a WAIT, so confirmed appends have their own connection."""
    async with Memory.connect(replicated.url, namespace=namespace, settings=PATIENT) as memory:
        with replicated.stop_replicas(0, 1):
            waiting = [asyncio.create_task(memory.session("a").append(user(n), confirm=1)) for n in range(3)]

            async def is_written() -> bool:
                return await memory.session("a").exists()

            await until(is_written)
            assert (await memory.session("b").append(user(1))).last_seq == 1
            assert not any(task.done() for task in waiting)
        assert [receipt.replicas in (1, 2) for receipt in await asyncio.gather(*waiting)] == [True] * 3


async def test_a_connection_lost_in_a_wait_confirms_nothing(replicated: Replicated, namespace: str) -> None:
    """On another connection a WAIT would confirm nothing, so a known append is followed by a WAIT as well."""
    settings = PATIENT.model_copy(update={"confirm_timeout_s": 0.3})
    async with (
        redis.asyncio.Redis(port=replicated.primary.port) as client,
        Memory.connect(replicated.url, namespace=namespace, settings=settings) as memory,
    ):
        with replicated.stop_replicas(0, 1):
            waiting = asyncio.create_task(memory.session("a").append(user(1), confirm=1))

            async def blocked() -> bool:
                return int((await client.info("clients"))["blocked_clients"]) > 0

            await until(blocked)
            await client.client_kill_filter(_type="normal", skipme=True)
            with pytest.raises(Unconfirmed) as refused:
                await waiting
            assert refused.value.replicas == 0
            assert (await memory.session("a").info()).total_messages == 1, "sent again, and made once"


async def test_a_cancelled_wait_leaves_the_others(replicated: Replicated, namespace: str) -> None:
    async with Memory.connect(replicated.url, namespace=namespace, settings=PATIENT) as memory:
        with replicated.stop_replicas(0, 1):
            tasks = [asyncio.create_task(memory.session("a").append(user(n), confirm=1)) for n in range(4)]
            await until(memory.session("a").exists)
            late = [asyncio.create_task(memory.session("b").append(user(n), confirm=1)) for n in range(4)]
            await asyncio.sleep(0)
            for task in (tasks[0], late[0]):
                task.cancel()
        done = await asyncio.gather(*tasks, *late, return_exceptions=True)
        assert [type(each).__name__ for each in done] == ["CancelledError", *["Receipt"] * 3] * 2


async def test_a_client_without_a_timeout_is_abandoned(replicated: Replicated, namespace: str) -> None:
    """The primary is up, but does not answer."""
    async with (
        redis.asyncio.Redis.from_url(replicated.url, socket_timeout=None, retry=Retry(NoBackoff(), 0)) as client,
        Memory.connect(client=client, namespace=namespace, settings=PATIENT) as memory,
    ):
        replicated.primary.stop_process()
        try:
            with short_deadlines(memory), pytest.raises(StoreUnavailable) as refused:
                await asyncio.wait_for(memory.session("a").append(user(1), confirm=1), 60)
            assert refused.value.reason == "TimeoutError"
        finally:
            replicated.primary.go_on()


async def test_without_replicas_nothing_is_confirmed(redis_server: RedisServer, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace, settings=QUICK) as memory:
        for id, again in ((None, "no id: a retry would write it twice"), ("one", "a retry with the same id is safe")):
            with pytest.raises(Unconfirmed, match=f"0 of 1 replicas .*{again}$") as refused:
                await memory.session("a").append(user(1), confirm=1, id=id)
            assert (refused.value.replicas, refused.value.wanted) == (0, 1)


async def test_confirm_is_refused_before_the_write_where_replicas_cannot_exist(namespace: str) -> None:
    async with Memory.connect("memory://", namespace=namespace) as memory:
        with pytest.raises(InvalidSettings, match="embedded store has none"):
            await memory.session("a").append(user(1), confirm=1)
        assert not await memory.session("a").exists()
    with redismem.blocking.Memory.connect("memory://", namespace=namespace) as blocking:
        with pytest.raises(InvalidSettings, match="embedded store has none"):
            blocking.session("a").append(user(1), confirm=1)
        assert not blocking.session("a").exists()


@pytest.mark.parametrize("confirm", [-1, 65, True, 1.0, "1"])
async def test_an_invalid_number_of_replicas_is_refused(memory: Memory, confirm: Any) -> None:
    with pytest.raises(InvalidMessage, match="0 to 64"):
        await memory.session("a").append(user(1), confirm=confirm)
    assert not await memory.session("a").exists()


async def test_the_fallback_confirms_nothing(tmp_path: Path, namespace: str) -> None:
    server = RedisServer(tmp_path).start()
    settings = PATIENT.model_copy(update={"fallback_after_s": 20})
    try:
        async with Memory.connect(server.url, namespace=namespace, settings=settings, fallback=True) as memory:
            await memory.session("a").append(user(1))
            server.kill()
            with short_deadlines(memory):
                with pytest.raises(StoreUnavailable):
                    await memory.session("a").append(user(2), confirm=1)
                assert (await memory.session("a").append(user(3))).degraded
                with pytest.raises(StoreUnavailable, match="cannot be accepted without it"):
                    await memory.session("a").append(user(4), confirm=1)
            server.start()
    finally:
        server.stop()


async def test_confirmed_appends_go_on_at_the_new_primary_behind_one_address(tmp_path: Path, namespace: str) -> None:
    """A primary that is demoted keeps its connections, so only its refusals tell of it."""
    servers = Replicated(tmp_path)
    new, other = servers.replicas
    try:
        await servers.wait_until_ready()
        async with (
            Proxy(servers.primary.port) as proxy,
            Memory.connect(proxy.url, namespace=namespace, settings=PATIENT) as memory,
        ):
            session = memory.session("a")
            assert (await session.append(user(1), confirm=2)).replicas == 2
            proxy.lead_to(new.port)
            new.say("REPLICAOF", "NO", "ONE")
            for server in (other, servers.primary):
                server.say("REPLICAOF", "127.0.0.1", new.port)
            assert replicas_of(await session.append_and_read(user(2), confirm=1)) in (1, 2)
    finally:
        servers.stop()


async def test_a_confirmed_append_survives_the_primary(tmp_path: Path, namespace: str) -> None:
    """The primary is killed under load and has no log: a confirmed append is on a replica."""
    servers = Replicated(tmp_path)
    try:
        await servers.wait_until_ready()
        async with Memory.connect(servers.url, namespace=namespace, settings=PATIENT) as memory:
            acknowledged: list[str] = []

            async def writes(name: str) -> None:
                for number in range(10_000):
                    try:
                        await memory.session(name).append(user(number), id=str(number), confirm=1)
                    except Unconfirmed:
                        await memory.session(name).append(user(number), id=str(number), confirm=1)
                    acknowledged.append(f"{name} {number}")

            tasks = [asyncio.create_task(writes(f"s-{number}")) for number in range(8)]
            await until(lambda: asyncio.sleep(0, len(acknowledged) > 200))
            servers.primary.kill()
            with short_deadlines(memory):
                await asyncio.gather(*tasks, return_exceptions=True)
            keys = [memory.store.keys.session(f"s-{number}").messages for number in range(8)]
        kept = [max(servers.length_on_replica(replica, key) for replica in range(2)) for key in keys]
        for number, count in enumerate(kept):
            acknowledged_count = sum(each.startswith(f"s-{number} ") for each in acknowledged)
            assert acknowledged_count <= count <= acknowledged_count + 1
    finally:
        servers.stop()
