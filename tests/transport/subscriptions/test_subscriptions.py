"""Subscriptions to one server: order, lost connections, refusals, event loops and forks."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checks import until
from support.proxy import Proxy
from support.redis_server import PASSWORD, GuardedServer, RedisServer, TlsServer
from support.subscribed import SETTINGS, Hearer, links_count, publish, subscribed, subscribers_count
from support.transports import over_redis_py
from support.waiting import SOON_S, wait_until

from redismem.transport.connect import connect
from redismem.transport.redis_py.embedded import embedded
from redismem.transport.subscriptions import keeper, link
from redismem.transport.subscriptions.subscriptions import Subscriptions

SECRET = "p%3Aa%2Fs%40s%25%3F"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let links ping, and a refused subscription be tried again, every tenth of a second."""
    assert 2 * link._PING_EVERY_S <= 4, "a dead server is noticed within 4 s"
    monkeypatch.setattr(link, "_PING_EVERY_S", 0.1)
    monkeypatch.setattr(keeper, "_REFUSED_S", 0.1)


@pytest.fixture
def channel(namespace: str) -> bytes:
    return b"rm:{%b}:live:a" % namespace.encode()


@pytest.fixture
def may_subscribe(guarded: GuardedServer) -> Iterator[None]:
    guarded.password = PASSWORD
    guarded.say("ACL", "SETUSER", "app", "allchannels")
    yield
    guarded.say("ACL", "SETUSER", "app", "resetchannels")


@pytest.mark.usefixtures("may_subscribe")
@pytest.mark.parametrize("kind", ["plain", "RESP3", "user on a unix socket", "TLS"])
async def test_messages_come_in_order_to_each_listener(
    kind: str, redis_server: RedisServer, guarded: GuardedServer, tls_server: TlsServer, certificates: Path,
    channel: bytes,
) -> None:  # fmt: skip
    files = {"ssl_ca_certs": "ca.crt", "ssl_certfile": "pod.crt", "ssl_keyfile": "pod.key"}
    options = "&".join(f"{name}={certificates / file}" for name, file in files.items())
    url, server = {
        "plain": (redis_server.url, redis_server),
        "RESP3": (f"{redis_server.url}?protocol=3", redis_server),
        "user on a unix socket": (f"unix://app:{SECRET}@{guarded.socket_path}?db=3", guarded),
        "TLS": (f"rediss://127.0.0.1:{tls_server.tls_port}?{options}", tls_server),
    }[kind]
    one, other, third = Hearer(), Hearer(), Hearer()
    async with subscribed(url) as (subscriptions, transport):
        added = [subscriptions.add(channel, one), subscriptions.add(channel, other), subscriptions.add(b"b", third)]
        assert await asyncio.gather(*added) == [True] * 3
        assert (links_count(server), subscribers_count(server, channel)) == (1, 1)
        payloads = [b"%d" % number for number in range(200)]
        await publish(transport, channel, *payloads)
        await publish(transport, b"b", b"for b")
        await until(lambda: third.payloads)
        assert one.payloads == other.payloads == payloads

        subscriptions.remove(channel, one)
        await publish(transport, channel, b"more")
        await until(lambda: other.payloads[-1] == b"more")
        assert one.payloads == payloads
        subscriptions.remove(channel, other)
        assert not subscriptions.is_on(channel)
        await until(lambda: subscribers_count(server, channel) == 0)
        assert subscriptions.refusal == ""
        assert [each.gaps_count for each in (one, other, third)] == [0, 0, 0]
    await until(lambda: links_count(server) == 0)


@pytest.mark.usefixtures("quick")
async def test_a_thousand_channels_share_a_connection_that_closes_when_it_carries_none(
    redis_server: RedisServer, namespace: str
) -> None:
    names = [b"%b-%d" % (namespace.encode(), number) for number in range(1_000)]
    hearers = {name: Hearer() for name in names}
    async with subscribed(f"{redis_server.url}?client_name={namespace}") as (subscriptions, transport):
        added = await asyncio.gather(*(subscriptions.add(name, hearer) for name, hearer in hearers.items()))
        assert all(added)
        assert links_count(redis_server) == 1
        for name in names:
            await publish(transport, name, name)
        await until(lambda: all(hearer.payloads == [name] for name, hearer in hearers.items()))
        for name, hearer in hearers.items():
            subscriptions.remove(name, hearer)
        await until(lambda: redis_server.say("CLIENT", "LIST").count(namespace.encode()) == 1)  # that of the calls
        assert await subscriptions.add(names[0], hearers[names[0]]), "the next channel has a new connection"


async def test_a_lost_connection_is_replaced_and_its_listeners_read(proxy: Proxy, channel: bytes) -> None:
    hearer, late = Hearer(), Hearer()
    async with subscribed(proxy.url) as (subscriptions, transport):
        assert await subscriptions.add(channel, hearer)
        proxy.break_next("reset", 1, to=b"SSUBSCRIBE")  # of the next channel, which takes the connection with it
        await subscriptions.add(b"another", Hearer())
        await until(lambda: hearer.gaps_count)
        assert subscriptions.is_on(channel)
        await publish(transport, channel, b"a")
        await until(lambda: hearer.payloads == [b"a"])

        await proxy.refuse()
        await until(lambda: hearer.gaps_count == 2)
        assert not subscriptions.is_on(channel), "its listener polls"
        assert not await subscriptions.add(channel, late)
        assert not await subscriptions.add(b"new", late)
        await proxy.accept_again()
        await until(lambda: late.gaps_count == 2 and hearer.gaps_count == 3)
        await publish(transport, channel, b"b")
        await until(lambda: hearer.payloads == [b"a", b"b"])
        assert late.payloads == [b"b"]


@pytest.mark.usefixtures("quick")
async def test_a_silent_connection_is_replaced(proxy: Proxy, channel: bytes) -> None:
    hearer = Hearer()
    async with subscribed(proxy.url) as (subscriptions, _):
        assert await subscriptions.add(channel, hearer)
        await until(lambda: proxy.count(b"PING") > 3)
        assert (proxy.connections_count, hearer.gaps_count) == (1, 0), "it lives: it answers"
        proxy.break_next("hole", 1, to=b"PING")
        await until(lambda: hearer.gaps_count)
        assert subscriptions.is_on(channel)
        proxy.break_next("freeze", 100, to=b"SUBSCRIBE")  # neither confirmed nor refused
        assert not await subscriptions.add(b"another", Hearer())


async def test_an_add_waits_no_longer_than_its_timeout(proxy: Proxy, channel: bytes) -> None:
    hearer = Hearer()
    async with subscribed(proxy.url, timeout_s=0.05) as (subscriptions, _):
        proxy.break_next("hold", 1, to=b"SSUBSCRIBE")
        assert not await subscriptions.add(channel, hearer)
        assert hearer.gaps_count == 0
        proxy.heal()
        await until(lambda: hearer.gaps_count)
        assert subscriptions.is_on(channel)


async def test_an_add_ends_when_it_is_cancelled_or_all_is_closed(
    proxy: Proxy, redis_server: RedisServer, channel: bytes
) -> None:
    async with subscribed(proxy.url) as (subscriptions, _):
        proxy.break_next("hold", 1, to=b"SSUBSCRIBE")
        adding = asyncio.ensure_future(subscriptions.add(channel, Hearer()))
        await until(lambda: proxy.broken_count)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        proxy.heal()
        assert await subscriptions.add(b"another", Hearer())
        assert subscribers_count(redis_server, channel) == 0

        proxy.break_next("swallow", 1, to=b"SSUBSCRIBE")
        adding = asyncio.ensure_future(subscriptions.add(channel, Hearer()))
        await until(lambda: proxy.broken_count == 2)
        await subscriptions.aclose()
        async with asyncio.timeout(SOON_S):
            assert not await adding, "a close ends its wait"


async def test_a_user_with_a_part_of_the_channels_has_those(
    guarded: GuardedServer, channel: bytes, quick: None
) -> None:
    guarded.password = PASSWORD
    guarded.say("ACL", "SETUSER", "app", "resetchannels", b"&" + channel + b"*")
    try:
        async with subscribed(f"redis://app:{SECRET}@127.0.0.1:{guarded.port}") as (subscriptions, _):
            assert not await subscriptions.add(b"another", Hearer())
            polled = Hearer()
            assert not await subscriptions.add(channel, polled), "not asked for yet"
            await until(lambda: polled.gaps_count)
            for number in range(20):
                assert await subscriptions.add(channel + b"%d" % number, Hearer())
                assert not await subscriptions.add(b"another%d" % number, Hearer())
            assert subscriptions.refusal == "NOPERM"
    finally:
        guarded.say("ACL", "SETUSER", "app", "resetchannels")


@pytest.mark.usefixtures("quick")
async def test_a_user_without_the_channel_polls_until_it_is_allowed(
    guarded: GuardedServer, channel: bytes, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.password = PASSWORD
    url = f"redis://app:{SECRET}@127.0.0.1:{guarded.port}"
    hearer = Hearer()

    guarded.say("CONFIG", "RESETSTAT")
    async with subscribed(url) as (subscriptions, transport):
        monkeypatch.setattr(keeper, "_REFUSED_S", 3_600)
        async with asyncio.timeout(SOON_S):
            for name in (channel, channel, b"another"):
                assert not await subscriptions.add(name, Hearer())
        assert subscriptions.refusal == "NOPERM"
        for _ in range(10):
            await transport.run([("PING",)], SOON_S)  # what would be asked at once has been asked
        assert b"errorstat_NOPERM:count=1\r" in guarded.say("INFO", "errorstats"), "the server is asked once"
    monkeypatch.setattr(keeper, "_REFUSED_S", 0.1)
    async with subscribed(url) as (subscriptions, transport):
        assert not await subscriptions.add(channel, hearer)
        guarded.say("ACL", "SETUSER", "app", "allchannels")
        await until(lambda: subscriptions.is_on(channel))
        assert (hearer.gaps_count, subscriptions.refusal) == (1, "")
        await publish(transport, channel, b"a")
        await until(lambda: hearer.payloads)
        guarded.say("ACL", "SETUSER", "app", "resetchannels")
        await until(lambda: subscriptions.refusal)
        assert (hearer.gaps_count, subscriptions.is_on(channel)) == (2, False), "its listener polls"
        guarded.say("CONFIG", "RESETSTAT")
        await until(lambda: b"errorstat_NOPERM:count=2\r" in guarded.say("INFO", "errorstats"))
        assert hearer.gaps_count == 2
    warnings = [record.getMessage()[-6:] for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["NOPERM"] * 3, "one for each change"


async def test_a_server_without_the_command_and_a_wrong_password_are_refusals(
    tmp_path: Path, guarded: GuardedServer
) -> None:
    server = RedisServer(tmp_path, options=("--rename-command", "SSUBSCRIBE", ""))
    server.start()
    try:
        for url, reason in (
            (server.url, "unknown command"),
            (f"{guarded.url}?protocol=3", "NOAUTH"),
            (f"redis://app:wrong@127.0.0.1:{guarded.port}", "WRONGPASS"),
        ):
            async with subscribed(url) as (subscriptions, _):
                assert not await subscriptions.add(b"a", Hearer())
                assert subscriptions.refusal == reason
    finally:
        server.stop()


async def test_channels_of_a_client_and_of_the_embedded_store_are_polled(redis_server: RedisServer) -> None:
    transports = {
        "a client of your own": over_redis_py(redis_server.url, 60),
        "embedded": embedded(),
        "a blocking caller": connect(redis_server.url, None, SETTINGS, blocks=True),
    }
    for reason, transport in transports.items():
        subscriptions = Subscriptions(transport, 60)
        assert (await subscriptions.add(b"a", Hearer()), subscriptions.refusal) == (False, reason)
        await subscriptions.aclose()
        await transport.aclose()


def test_connections_end_with_their_event_loop_and_each_loop_has_its_own(
    redis_server: RedisServer, channel: bytes
) -> None:
    transport = connect(redis_server.url, None, SETTINGS)
    subscriptions = Subscriptions(transport, 60)

    async def hear() -> None:
        hearer = Hearer()
        assert await subscriptions.add(channel, hearer)
        await publish(transport, channel, b"a")
        await until(lambda: hearer.payloads)

    async def hear_twice() -> None:
        await hear()
        await asyncio.to_thread(asyncio.run, hear())
        assert subscriptions.is_on(channel)

    for _ in range(2):
        asyncio.run(hear_twice())
        wait_until(lambda: links_count(redis_server) == 0)

    async def leave_open() -> None:
        await hear()
        with pytest.warns(ResourceWarning, match="a memory was not closed"):
            subscriptions.drop()
        await until(lambda: links_count(redis_server) == 0)
        with pytest.raises(RuntimeError, match="this memory is closed"):
            await hear()

    asyncio.run(leave_open())
    asyncio.run(transport.aclose())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio does not know that its socket is closed
def test_an_event_loop_closed_without_a_shutdown_leaves_no_connection(
    redis_server: RedisServer, channel: bytes
) -> None:
    transport = connect(redis_server.url, None, SETTINGS)
    subscriptions = Subscriptions(transport, 60)
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(subscriptions.add(channel, Hearer()))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert asyncio.run(subscriptions.add(channel, Hearer()))
    wait_until(lambda: links_count(redis_server) == 0)
    asyncio.run(subscriptions.aclose())
    asyncio.run(transport.aclose())
    del loop, task
    gc.collect()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_forked_process_has_no_listener_and_connections_of_its_own(
    redis_server: RedisServer, channel: bytes
) -> None:
    hearer = Hearer()
    async with subscribed(redis_server.url) as (subscriptions, transport):
        assert await subscriptions.add(channel, hearer)
        child = os.fork()
        if not child:
            try:
                assert not subscriptions._keepers

                async def hear() -> None:
                    own = Hearer()
                    assert await subscriptions.add(channel, own)
                    await publish(transport, channel, b"of the child")
                    await until(lambda: own.payloads)

                asyncio.run(hear())
                assert not hearer.payloads
                os._exit(0)
            except BaseException:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await until(lambda: hearer.payloads == [b"of the child"])
        assert (hearer.gaps_count, links_count(redis_server)) == (0, 1)
