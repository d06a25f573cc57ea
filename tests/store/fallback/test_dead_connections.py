"""Connections that answer nothing are replaced after `fallback_after_s`, however long `reply_timeout_s` is."""

from __future__ import annotations

from typing import Any

import pytest
from support.checks import contents, silent_logs, until, user  # noqa: F401 (an autouse fixture)
from support.faulty import wait_until_replayed
from support.proxy import How, Proxy

from redismem import Memory, Settings
from redismem.transport.connect import connect, connect_both

# No test waits for a reply timeout of this length.
SETTINGS = Settings(fallback_after_s=0.05, reply_timeout_s=120, deadline_s=120)


def open_memory(proxy: Proxy, namespace: str) -> Memory:
    url = f"{proxy.url}?client_name=dead-connections"
    return Memory.connect(url, namespace=namespace, settings=SETTINGS, fallback=True)


@pytest.mark.parametrize("how", ["freeze", "hole"])
@pytest.mark.parametrize("greetings_count", [0, 3])
async def test_a_connection_without_replies_does_not_delay_the_return(
    proxy: Proxy, direct_memory: Memory, how: How, greetings_count: int
) -> None:
    """With `greetings_count`, as many further connections are accepted and answer nothing."""
    async with open_memory(proxy, direct_memory.store.keys.namespace) as memory:
        session = memory.session("a")
        await session.append(user(1))
        await wait_until_replayed(memory)
        proxy.break_next(how, float("inf"), to=b"EVALSHA")
        assert (await session.append(user(2))).degraded
        proxy.break_next("hole", greetings_count, to=b"SETNAME")
        await wait_until_replayed(memory)
        assert await contents(direct_memory.session("a")) == [user(1)["content"], user(2)["content"]]


async def test_a_connection_may_take_longer_to_open_than_a_call(proxy: Proxy, direct_memory: Memory) -> None:
    proxy.break_next("delay", float("inf"), to=b"SETNAME", delay_s=0.3)
    async with open_memory(proxy, direct_memory.store.keys.namespace) as memory:
        await until(lambda: memory.health().state == "closed")


@pytest.mark.parametrize("kind", ["redis", "redis+cluster", "redis+sentinel"])
def test_the_fallback_alone_shortens_the_stall(kind: str) -> None:
    def stall_s(fallback: bool) -> float:
        url = f"{kind}://127.0.0.1:1" + ("/service" if kind == "redis+sentinel" else "")
        transport: Any = connect(url, None, Settings.given(SETTINGS, fallback))
        if kind == "redis+cluster":
            transport = transport._nodes.lane("127.0.0.1:1")
        assert transport._connect_s == 120
        return float(transport._stall_s)

    assert [stall_s(fallback) for fallback in (True, False)] == [0.05, 120]


def test_workers_beside_a_blocking_memory_have_no_fallback() -> None:
    _, connect_workers = connect_both("redis://127.0.0.1:1", Settings.given(SETTINGS, True))
    transport: Any = connect_workers()
    assert transport._stall_s == 120
