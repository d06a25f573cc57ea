"""The nodes of a cluster: calls to a node that has lost its slots."""

from __future__ import annotations

import asyncio

import pytest
from support.answering import AnsweringServer, slots_at
from support.checks import until
from support.lanes import SilentServer

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport.nodes.nodes import Nodes
from redismem.transport.nodes.seeds import parse_cluster
from redismem.transport.nodes.sides import LoopSide

LONG_S = 3_600


async def test_calls_to_a_silent_node_end_as_soon_as_its_slots_have_another_owner() -> None:
    """Their deadline is an hour away."""
    async with SilentServer() as silent, AnsweringServer(lambda _: b"") as node:
        node.answer = lambda _: slots_at(node.port, silent.port)
        nodes = Nodes(parse_cluster(f"redis+cluster://127.0.0.1:{node.port}"), LoopSide(LONG_S), LONG_S)
        await nodes.get_topology(60)
        place = f"127.0.0.1:{silent.port}"
        waiting = asyncio.ensure_future(nodes.lane(place).run([("GET", "a")], LONG_S))
        await until(lambda: silent.has_received(b"GET", 1))
        node.answer = lambda _: slots_at(node.port)
        nodes.note_lost(ConnectionLost("TimeoutError"), place)
        with pytest.raises(ConnectionLost) as lost:
            await asyncio.wait_for(waiting, 30)
        assert lost.value.reason == "closed"
        await nodes.aclose()


async def test_calls_to_a_node_that_answers_may_end_though_it_has_lost_its_slots() -> None:
    async with SilentServer() as slow, AnsweringServer(lambda _: b"") as node:
        node.answer = lambda _: slots_at(node.port, slow.port)
        nodes = Nodes(parse_cluster(f"redis+cluster://127.0.0.1:{node.port}"), LoopSide(LONG_S), LONG_S)
        await nodes.get_topology(60)
        waiting = asyncio.ensure_future(nodes.lane(f"127.0.0.1:{slow.port}").run([("GET", "a")], LONG_S))
        await until(lambda: slow.has_received(b"GET", 1))
        node.answer = lambda _: slots_at(node.port)
        assert len((await nodes.refresh_topology(60)).primaries) == 1
        slow.say(b"$1\r\nb\r\n")
        assert await asyncio.wait_for(waiting, 30) == [b"b"]
        await nodes.aclose()
