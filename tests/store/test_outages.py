"""Redis goes away under four pods, real processes with the fallback: nothing is lost, nothing doubled, all in order.

An outage here is over when each pod has served turns without Redis, and no sooner than a second. `make outages` has
longer ones, and prints what they took.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support import outage_pod
from support.checks import until
from support.proxy import Proxy
from support.redis_server import RedisServer

from redismem import Memory

PODS = 4
NAMESPACE = "outages"
SECONDS = [float(given) for given in os.environ.get("OUTAGE_SECONDS", "1").split()]
pytestmark = pytest.mark.timeout(600)


class Scene:
    """The server, the way to it, and the pods."""

    def __init__(self, server: RedisServer, proxy: Proxy, folder: Path) -> None:
        self.server = server
        self.proxy = proxy
        self._folder = folder
        self.pods: list[subprocess.Popen[bytes]] = []

    def start_pod(self) -> None:
        number = str(len(self.pods))
        command = [sys.executable, outage_pod.__file__, self.proxy.url, NAMESPACE, number, str(self._ledger(number))]
        self.pods.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))

    def _ledger(self, number: str) -> Path:
        return self._folder / f"pod-{number}"

    def acked(self, at: int) -> list[Any]:
        """Session, text, and whether it was degraded, of each turn."""
        path = self._ledger(str(at))
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    async def until_each(self, degraded: bool, count: int) -> None:
        """Until each pod has had so many more turns of the kind."""

        def counts() -> list[int]:
            return [sum(turn[2] is degraded for turn in self.acked(at)) for at in range(len(self.pods))]

        wanted = [found + count for found in counts()]

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self.pods), "a pod has died"
            await asyncio.sleep(0.05)
            return all(found >= least for found, least in zip(counts(), wanted, strict=True))

        await until(reached, 120)

    async def finish(self) -> list[Any]:
        """Lets the pods end, and gives what each of them saw."""
        found = []
        for pod in self.pods:
            assert pod.stdin is not None
            pod.stdin.close()
            pod.stdin = None
        for pod in self.pods:
            out, _ = await asyncio.to_thread(pod.communicate, timeout=90)
            assert pod.returncode == 0
            found.append(json.loads(out))
        return found

    async def check(self) -> int:
        """What was acknowledged is there, once, and in order a pod and session. Gives how many turns there were."""
        asked: dict[str, Counter[str]] = {}
        for at in range(len(self.pods)):
            for session_id, text, _ in self.acked(at):
                asked.setdefault(session_id, Counter())[text] += 1
        async with Memory.connect(self.server.url, namespace=NAMESPACE, settings=outage_pod.SETTINGS) as memory:
            for session_id, texts in asked.items():
                found = [message.content for message in await memory.session(session_id).messages()]
                assert Counter(found) == texts, session_id
                for at in range(len(self.pods)):
                    own = [int(text.partition(".")[2]) for text in found if text.partition(".")[0] == str(at)]
                    assert own == sorted(own), "overtaken"
        return sum(map(Counter.total, asked.values()))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "always")).start()
    async with Proxy(server.port) as proxy:
        scene = Scene(server, proxy, tmp_path)
        yield scene
        for pod in scene.pods:
            pod.kill()
            await asyncio.to_thread(pod.communicate)
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
    """Comes back, and is killed again when the replays have begun."""
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
@pytest.mark.parametrize("way", WAYS)
async def test_an_outage_loses_and_doubles_nothing(scene: Scene, way: str, seconds: float) -> None:
    begin, end = WAYS[way]
    for _ in range(PODS):
        scene.start_pod()
    await scene.until_each(degraded=False, count=20)
    begun_s = time.monotonic()
    await begin(scene)
    scene.start_pod()  # one that begins during the outage
    await scene.until_each(degraded=True, count=20)
    await asyncio.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    lasted_s = time.monotonic() - begun_s
    await end(scene)
    await scene.until_each(degraded=False, count=20)
    seen = await scene.finish()
    turns = await scene.check()
    assert all(pod["outages"] >= 1 and pod["replayed"] > 0 and pod["refused"] == 0 for pod in seen)
    degraded = sum(turn[2] for at in range(len(scene.pods)) for turn in scene.acked(at))
    slowest_ms, replay_s = (max(pod[name] for pod in seen) for name in ("slowest_ms", "replay_s"))
    print(  # noqa: T201 (with `make outages`)
        f"\n| {way} | {lasted_s:.1f} | {turns} | {degraded} | 0 | 0 | {slowest_ms:.0f} | {replay_s:.2f} |"
    )
