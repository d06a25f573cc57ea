"""hold.lua: one pod polls for all pods, as long as it renews its hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from support.clock import T0, Clock
from support.redis_server import RedisServer

from redismem import Memory
from redismem.protocol.namespace import holds
from redismem.protocol.namespace.holds import Hold, Ticking

HOLD_MS = 1_750


@pytest.fixture
def hold(memory: Memory, clock: Clock) -> Any:
    async def held(holder: str, hold_ms: int = HOLD_MS, **works: bool) -> dict[str, tuple[str, int, bool]]:
        call = holds.hold(memory.store.keys, clock, holder, hold_ms, works)
        first = await memory.store.run(call)
        assert await memory.store.run(call.again()) == first, "sent again it answers the same"
        return {work: (each.holder, each.until_ms - clock.now_ms, each.is_crowded) for work, each in first.items()}

    return held


async def test_a_hold_lasts_until_it_is_no_longer_renewed(hold: Any, clock: Clock) -> None:
    assert await hold("a", sweep=False) == {"sweep": ("a", HOLD_MS, False)}
    clock.now_ms += 1_000
    assert await hold("b", sweep=False) == {"sweep": ("a", 750, False)}
    assert await hold("a", sweep=False) == {"sweep": ("a", HOLD_MS, False)}
    clock.now_ms += HOLD_MS - 1
    assert await hold("b", sweep=False) == {"sweep": ("a", 1, False)}
    clock.now_ms += 1
    assert await hold("b", sweep=False) == {"sweep": ("b", HOLD_MS, False)}
    assert await hold("a", sweep=False) == {"sweep": ("b", HOLD_MS, False)}


async def test_each_work_has_its_own_holder(hold: Any) -> None:
    assert set(await hold("a", sweep=False)) == {"sweep"}
    found = await hold("b", sweep=True, nap=True)
    assert found == {"sweep": ("a", HOLD_MS, False), "nap": ("b", HOLD_MS, True)}, (
        "what it says of another's counts not"
    )
    assert await hold("a", sweep=True, nap=False) == {"sweep": ("a", HOLD_MS, True), "nap": ("b", HOLD_MS, True)}


async def test_a_pod_gives_up_only_its_own_holds(hold: Any) -> None:
    await hold("a", sweep=False)
    assert await hold("b", 0, sweep=False) == {"sweep": ("a", HOLD_MS, False)}
    await hold("a", 0, sweep=False)
    assert await hold("b", sweep=False) == {"sweep": ("b", HOLD_MS, False)}


async def test_a_hold_longer_than_the_callers_own_is_ignored(hold: Any, clock: Clock) -> None:
    await hold("slow", 60_000, sweep=False)
    assert (await hold("quick", sweep=False))["sweep"][0] == "quick"
    assert (await hold("slow", 60_000, sweep=False))["sweep"][0] == "quick"
    clock.now_ms -= 3_600_000
    assert (await hold("other", sweep=False))["sweep"][0] == "other"


@pytest.mark.parametrize(
    "stored", ["", "x", "12", "9 crowded ", "1800000000000 Crowded a", "\xff", "9" * 400 + " quiet a"]
)
async def test_an_unreadable_hold_is_ignored(hold: Any, raw: Any, memory: Memory, stored: str) -> None:
    await raw.hset(memory.store.keys.ticks, "sweep", stored.encode("latin-1"))
    found = await memory.store.run(holds.ticking(memory.store.keys))
    assert found.holds.keys() <= {"sweep"}
    assert (await hold("a", sweep=False))["sweep"][0] == "a"


async def test_a_pod_gets_a_hold_when_redis_is_out_of_memory(tmp_path: Path, namespace: str) -> None:
    """The pods would poll all queues, each of them, when Redis is least able to bear it."""
    server = RedisServer(tmp_path).start()
    try:
        async with (
            Memory.connect(server.url, namespace=namespace) as memory,
            redis.asyncio.Redis(port=server.port) as raw,
        ):
            await memory.store.run(holds.hold(memory.store.keys, None, "a", HOLD_MS, {"sweep": False}))
            await raw.config_set("maxmemory", 1)
            renewed = await memory.store.run(holds.hold(memory.store.keys, None, "a", HOLD_MS, {"sweep": False}))
            assert renewed["sweep"].holder == "a"
    finally:
        server.stop()


async def test_holds_expire_when_no_pod_ticks(hold: Any, raw: Any, memory: Memory) -> None:
    await hold("a", sweep=True)
    assert 0 < await raw.pttl(memory.store.keys.ticks) <= 86_400_000
    assert 0 < await raw.pttl(memory.store.keys.processes) <= 86_400_000
    stored = {"sweep": Hold("a", T0 + HOLD_MS, True)}
    assert await memory.store.run(holds.ticking(memory.store.keys)) == Ticking(stored, {"a": T0 + 2 * HOLD_MS}, T0)


async def test_each_pod_that_ticks_is_listed_until_it_stops_or_is_gone(hold: Any, memory: Memory, clock: Clock) -> None:
    async def listed() -> tuple[set[str], int | None]:
        ticking = await memory.store.run(holds.ticking(memory.store.keys))
        return set(ticking.processes), ticking.last_ms

    for pod in ("a", "b", "c"):
        await hold(pod, sweep=False)
    assert await listed() == ({"a", "b", "c"}, T0)
    await hold("c", 0)
    assert await listed() == ({"a", "b"}, T0), "c has stopped; it led nothing"
    clock.now_ms += 1_000
    await hold("b", sweep=False)
    assert await listed() == ({"a", "b"}, T0), "b does not lead, so it has not polled"
    clock.now_ms += 2 * HOLD_MS - 1_000
    await hold("b", sweep=False)
    assert await listed() == ({"b"}, clock.now_ms), "a was killed, and b took it off the list"
    await hold("b", 0, sweep=False)
    assert await listed() == (set(), clock.now_ms)
