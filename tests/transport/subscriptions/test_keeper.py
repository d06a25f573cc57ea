"""A keeper while its nodes cannot be reached: few attempts, and no wait for a node that is well."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from support.checks import until
from support.redis_server import RedisServer, free_port
from support.subscribed import Hearer

from redismem.protocol.server_errors import ConnectionLost, ServerError
from redismem.transport.lane import opening
from redismem.transport.subscriptions import keeper as keepers
from redismem.transport.subscriptions import link as links
from redismem.transport.subscriptions.keeper import Keeper
from redismem.transport.url import Address


class Map:
    """Addresses of channels by the first byte of their names; those that it does not know are nowhere."""

    def __init__(self, **ports: int) -> None:
        self.ports = ports
        self.is_away = False
        self.asked_count = 0

    async def channel_addresses(self, channels: Sequence[bytes], timeout_s: float) -> list[Address | None]:
        del timeout_s
        self.asked_count += 1
        if self.is_away:
            raise ConnectionLost("TimeoutError")
        ports = [self.ports.get(chr(name[0])) for name in channels]
        return [None if port is None else Address("127.0.0.1", port) for port in ports]

    def note_channel_trouble(self, trouble: ServerError | ConnectionLost, place: str) -> None:
        del trouble, place


async def test_a_dead_node_gets_few_attempts_and_delays_no_other(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    async def connect(link: Any, address: Address, timeout_s: float) -> Any:
        attempts.append(address.port)
        return await opening.connect(link, address, timeout_s)

    monkeypatch.setattr(keepers, "connect", connect)
    dead, nodes = Hearer(), Map(a=free_port(), b=redis_server.port)
    keeper = Keeper(nodes, 60, lambda refusal: None)
    try:
        assert not await keeper.add(b"a", dead)
        await until(lambda: len(attempts) > 5)  # the pauses are long now
        before = len(attempts)
        for number in range(200):
            assert not await keeper.add(b"a%d" % number, dead)
            assert await keeper.add(b"b%d" % number, Hearer())
        assert attempts.count(redis_server.port) == 1
        assert len(attempts) - before < 10
        assert not await keeper.add(b"c", dead), "no node has it"
        nodes.ports["a"] = nodes.ports["c"] = redis_server.port
        await until(lambda: keeper.is_on(b"a") and keeper.is_on(b"a199") and keeper.is_on(b"c"))
        assert dead.gaps_count == 202
    finally:
        await keeper.aclose()


async def test_a_node_whose_place_nobody_names_keeps_its_channels(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepers, "_CHECK_EVERY_S", 0.01)
    nodes, hearer = Map(a=redis_server.port), Hearer()
    keeper = Keeper(nodes, 60, lambda refusal: None)
    try:
        assert await keeper.add(b"a", hearer)
        nodes.is_away = True
        waiting = [asyncio.ensure_future(keeper.add(b"a%d" % number, Hearer())) for number in range(20)]
        assert not any(await asyncio.gather(*waiting))
        nodes.is_away, nodes.ports = False, {}
        before = nodes.asked_count
        await until(lambda: nodes.asked_count > before + 5)
        assert (keeper.is_on(b"a"), hearer.gaps_count) == (True, 0)
    finally:
        await keeper.aclose()


async def test_a_connection_that_worked_for_a_while_forgets_the_failures_before_it(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "_PING_EVERY_S", 0.01)
    nodes, hearer = Map(a=redis_server.port), Hearer()
    keeper = Keeper(nodes, 60, lambda refusal: None)
    try:
        for gaps_count in range(3):
            assert await keeper.add(b"a", hearer)
            (link,) = keeper._links.values()
            await until(lambda link=link: link.is_proven)  # type: ignore[misc]
            redis_server.say("CLIENT", "KILL", "TYPE", "pubsub")
            await until(lambda gaps_count=gaps_count: hearer.gaps_count > gaps_count)  # type: ignore[misc]
        (pauses,) = keeper._pauses.values()
        assert pauses._count == 1
    finally:
        await keeper.aclose()
