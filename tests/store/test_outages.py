"""Redis fails under pods, which are real processes with the fallback: nothing is lost or doubled, all is in order.

An outage here ends once each pod has served turns without Redis, and after a second at the earliest. `make outages`
runs longer ones, and prints their durations.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from support.checks import until
from support.claims import printed_by
from support.outages import SECONDS, Pods, outage
from support.proxy import Proxy
from support.redis_server import RedisServer

pytestmark = pytest.mark.timeout(600)


class Scene:
    """The server, its proxy, and the pods."""

    def __init__(self, server: RedisServer, proxy: Proxy, folder: Path) -> None:
        self.server = server
        self.proxy = proxy
        self.pods = Pods(folder, proxy.url, server.url)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    async with Proxy(server.port) as proxy:
        scene = Scene(server, proxy, tmp_path)
        yield scene
        await scene.pods.kill()
    server.stop()


async def kill(scene: Scene) -> None:
    scene.server.kill()


async def start(scene: Scene) -> None:
    await asyncio.to_thread(scene.server.start)


async def stop(scene: Scene) -> None:
    os.kill(scene.server.pid, signal.SIGSTOP)


async def go_on(scene: Scene) -> None:
    os.kill(scene.server.pid, signal.SIGCONT)


async def refuse(scene: Scene) -> None:
    await scene.proxy.refuse()


async def accept(scene: Scene) -> None:
    await scene.proxy.accept_again()


async def swallow(scene: Scene) -> None:
    scene.proxy.break_next("hole", float("inf"))


async def heal(scene: Scene) -> None:
    scene.proxy.heal()


async def flap(scene: Scene) -> None:
    """Come back, and be killed again once the replays have begun."""
    for _ in range(3):
        await start(scene)
        received = len(scene.proxy.received)

        async def replaying(before: int = received) -> bool:
            return len(scene.proxy.received) > before + 40

        await until(replaying)
        await kill(scene)
    await start(scene)


Change = Callable[[Scene], Awaitable[None]]
WAYS: dict[str, tuple[Change, Change]] = {
    "killed": (kill, start),
    "stopped": (stop, go_on),
    "refused": (refuse, accept),
    "swallowed": (swallow, heal),
    "killed again while it is replayed to": (kill, flap),
}


@pytest.mark.parametrize("seconds", SECONDS)
@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=[] if way == "swallowed" else pytest.mark.nightly) for way in WAYS]
)
async def test_an_outage_loses_and_doubles_nothing(scene: Scene, way: str, seconds: float) -> None:
    begin, end = WAYS[way]
    figures = await outage(scene.pods, way, seconds, partial(begin, scene), partial(end, scene))
    assert printed_by("make outages").search(figures)
    print(f"\n{figures}")  # noqa: T201 (with `make outages`)
