"""Batches of appends that replicas must confirm."""

from __future__ import annotations

import asyncio

from support.checks import until
from support.lanes import SilentServer, lane_to

from redismem.transport.replicas import Wanted


async def test_a_batch_waits_for_as_many_replicas_as_any_of_its_calls_wants() -> None:
    """The WAIT of the batch confirms all of its calls, so the number of its first call would be too small."""
    async with SilentServer() as server, lane_to(server.port) as lane:
        calls = [asyncio.ensure_future(lane.run_confirmed([("ECHO", "a")], 60, None, Wanted(1, 60)))]
        await until(lambda: server.has_received(b"WAIT", 1))
        calls += [
            asyncio.ensure_future(lane.run_confirmed([("ECHO", text)], 60, None, Wanted(count, 60)))
            for text, count in (("b", 1), ("c", 3), ("d", 2))
        ]
        server.say(b"$1\r\na\r\n:1\r\n")
        await until(lambda: server.has_received(b"WAIT", 2))
        assert b"WAIT\r\n$1\r\n3\r\n" in server.received.partition(b"d\r\n")[2]
        server.say(b"$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n:3\r\n")
        assert await asyncio.gather(*calls) == [[b"a", 1], [b"b", 3], [b"c", 3], [b"d", 3]]
