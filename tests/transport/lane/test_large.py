"""Large calls go over a second connection, small ones do not wait behind them, and a session's calls stay in order."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.checks import until
from support.lanes import SilentServer, connection_number, lane_to
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Memory, Settings
from redismem.record import Change
from redismem.transport.lane.lane import Lane
from redismem.transport.url import Address

LARGE = "x" * 40_000
_NUMBERS = count()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def append(lane: Lane, name: str, size: int = 0) -> asyncio.Future[list[Any]]:
    return asyncio.ensure_future(lane.run([("EVALSHA", "sha", 1, name, "x" * size)], 60, None, name))


def read(lane: Lane, name: str) -> asyncio.Future[list[Any]]:
    reads = [("HGETALL", f"{name}-state"), ("LRANGE", name, 0, -1)]
    return asyncio.ensure_future(lane.run(reads, 60, None, name))


async def connections_of_lane(server: RedisServer) -> list[str]:
    async with lane_to(server.port) as other:
        (listed,) = await other.run([("CLIENT", "LIST")], 60)
    return [line for line in listed.decode().splitlines() if "name=large-test" in line]


async def test_small_calls_use_one_connection_and_a_large_one_opens_the_second(
    redis_server: RedisServer, namespace: str
) -> None:
    lane = Lane(Address.from_url(f"{redis_server.url}?client_name=large-test"), stall_s=60)
    try:
        first = await connection_number(lane)
        await lane.run([("RPUSH", namespace, b"x" * 30_000)], 60)
        assert len(await read(lane, namespace)) == 2
        assert len(await connections_of_lane(redis_server)) == 1
        await append(lane, namespace, 40_000)  # the server knows no such script: only its way counts
        assert len(await connections_of_lane(redis_server)) == 2
        assert await connection_number(lane) == first
    finally:
        await lane.aclose()

    async def all_are_closed() -> bool:
        return not await connections_of_lane(redis_server)

    await until(all_are_closed)


async def test_a_small_call_does_not_wait_behind_a_large_one_of_another_session() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        large = append(lane, "a", 40_000)
        await until(lambda: len(server.connections) == 1 and server.received.endswith(b"x\r\n"))
        small = append(lane, "b")
        follower = asyncio.ensure_future(lane.run([("HMGET", "a-state", "owner", "epoch")], 60, None, "a"))
        await until(lambda: len(server.connections) == 2 and server.has_received(b"\r\nb\r\n", 1))
        server.say(b":1\r\n")  # over the connection that came last, which has the small call alone
        assert await small == [1]
        assert not large.done()
        assert not follower.done()
        server.connections[0].write(b":2\r\n:3\r\n")  # the session's next call follows the large one
        assert (await large, await follower) == ([2], [3])
        assert lane.calls_count == 0


async def test_a_large_call_stays_behind_a_small_one_of_its_session() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:
        small = append(lane, "a")
        large = append(lane, "a", 40_000)
        await until(lambda: server.received.endswith(b"x\r\n"))
        assert len(server.connections) == 1
        server.say(b":1\r\n:2\r\n")
        assert (await small, await large) == ([1], [2])


async def test_a_read_goes_apart_after_a_large_reply_and_comes_back_after_a_small_one() -> None:
    async with SilentServer() as server, lane_to(server.port) as lane:

        async def reply_to(elements_bytes: int, connection: int) -> None:
            """Read, answer over this connection, and check that the read went over it."""
            asked = server.received.count(b"EXEC")
            reading = read(lane, "a")
            await until(lambda: server.has_received(b"EXEC", asked + 1))
            element = b"$%d\r\n%b\r\n" % (elements_bytes, b"x" * elements_bytes)
            words = b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n*0\r\n*1\r\n" + element
            server.connections[connection].write(words)
            assert len((await reading)[1][0]) == elements_bytes

        for elements_bytes, connection in ((100_000, 0), (100_000, 1), (100, 1), (100, 0), (100_000, 0), (100, 1)):
            await reply_to(elements_bytes, connection)
        assert len(server.connections) == 2


KINDS = ("small", "large", "read", "clear", "exists")
STEPS = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(KINDS)), min_size=2, max_size=12)


@given(steps=STEPS)
async def test_calls_of_a_session_take_effect_in_the_order_of_the_caller(proxy: Proxy, steps: Any) -> None:
    options = Settings(threshold=1_000, recent_limit=1_000, deadline_s=60, reply_timeout_s=60)
    async with Memory.connect(proxy.url, namespace=f"order-{next(_NUMBERS)}", settings=options) as memory:
        calls: list[tuple[asyncio.Future[Any], bool]] = []
        expected: dict[str, list[str]] = {"a": [], "b": []}
        for number, (name, kind) in enumerate(steps):
            session, numbers, message = (
                memory.session(name),
                expected[name],
                user(f"{number}" + (LARGE if kind == "large" else "")),
            )
            was_there = kind in ("small", "large", "read") or numbers != []
            if kind in ("clear", "exists"):
                call: Any = session.clear() if kind == "clear" else session.exists()
            else:
                call = session.append_and_read(message) if kind == "read" else session.append(message)
                numbers.append(str(number))
            if kind == "clear":
                numbers.clear()
            calls.append((asyncio.ensure_future(call), was_there))
        for call, was_there in calls:
            assert bool(await call) is was_there
        for name, numbers in expected.items():
            messages = (await memory.session(name).read()).messages
            assert [message.content.rstrip("x") for message in messages] == numbers


async def test_a_record_is_read_and_cleared_behind_a_large_write(proxy: Proxy, namespace: str) -> None:
    options = Settings(deadline_s=60, reply_timeout_s=60)
    async with Memory.connect(proxy.url, namespace=namespace, settings=options) as memory:
        record = memory.record("r")
        write = asyncio.ensure_future(record.write(Change(sets={b"large": LARGE.encode()})))
        exists, clear = asyncio.ensure_future(record.exists()), asyncio.ensure_future(record.clear())
        assert [await write, await exists, await clear, await record.exists()] == [True, True, True, False]
