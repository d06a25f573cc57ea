"""Outages under pods, which are processes that chat with the fallback, on any kind of Redis."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from redismem import Memory
from support.checks import until
from support.commands import wait_for_exit
from support.forks import Fork
from support.pods import CHATS, read_ledger, start_pod

PODS = 4 if "OUTAGE_SECONDS" in os.environ else 2
"""The number of pods that start before the outage."""
NAMESPACE = "outages"
SECONDS = [float(given) for given in os.environ.get("OUTAGE_SECONDS", "1").split()]
_SOME = 20 if "OUTAGE_SECONDS" in os.environ else 8
PATIENT_S = 1.0 if "OUTAGE_SECONDS" in os.environ else 5.0
"""The seconds after which a node counts as down. Ordinary tests may delay a healthy node by a second."""
Change = Callable[[], Awaitable[None]]


class Pods:
    """The pods, and their acknowledged turns."""

    def __init__(self, folder: Path, url: str, server_url: str = "", fallback_after_s: float = 1.0) -> None:
        """`url` is for the pods; `server_url` is for the check at the end, and defaults to `url`."""
        self._fallback_after_s = str(fallback_after_s)
        self._folder = folder
        self._url = url
        self._server_url = server_url or url
        self.pods: list[Fork] = []

    def start_pod(self) -> None:
        number = len(self.pods)
        given = (self._url, NAMESPACE, number, self._folder / f"pod-{number}")
        self.pods.append(start_pod("chat", *given, REDISMEM_FALLBACK_AFTER_S=self._fallback_after_s))

    def read_turns(self, at: int) -> list[Any]:
        """Return session, text, is degraded, start and end of each turn."""
        return read_ledger(self._folder / f"pod-{at}")

    def read_all_turns(self) -> list[Any]:
        return [turn for at in range(len(self.pods)) for turn in self.read_turns(at)]

    async def until_each(self, degraded: bool, is_hit: Callable[[str], bool]) -> None:
        """Wait until each pod has some more turns of this kind in sessions that are hit."""

        def counts() -> list[int]:
            pods = range(len(self.pods))
            return [sum(turn[2] is degraded and is_hit(turn[0]) for turn in self.read_turns(at)) for at in pods]

        wanted = [found + _SOME for found in counts()]

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self.pods), "a pod has died"
            await asyncio.sleep(0.05)
            return all(found >= least for found, least in zip(counts(), wanted, strict=True))

        await until(reached, 120)

    async def finish(self) -> list[Any]:
        """Stop the pods, and return the figures of each."""
        found = []
        for pod in self.pods:
            assert pod.stdin is not None
            pod.stdin.close()
        for pod in self.pods:
            ended = await asyncio.to_thread(wait_for_exit, pod)
            assert ended.code == 0
            found.append(ended.document)
        return found

    async def kill(self) -> None:
        for pod in self.pods:
            with pod:
                pod.kill()

    async def check(self) -> None:
        """Check that all acknowledged turns exist once, in each pod's order per session."""
        asked: dict[str, Counter[str]] = {}
        for session_id, text, *_ in self.read_all_turns():
            asked.setdefault(session_id, Counter())[text] += 1
        async with Memory.connect(self._server_url, namespace=NAMESPACE, settings=CHATS) as memory:
            for session_id, texts in asked.items():
                found = [message.content for message in await memory.session(session_id).messages()]
                assert Counter(found) == texts, session_id
                for at in range(len(self.pods)):
                    own = [int(text.partition(".")[2]) for text in found if text.partition(".")[0] == str(at)]
                    assert own == sorted(own), "overtaken"


async def outage(
    pods: Pods, kind: str, seconds: float, begin: Change, end: Change, is_hit: Callable[[str], bool] = lambda _: True
) -> str:
    """Run pods through an outage, and return its figures as a sentence.

    Checks that no message is lost or doubled, and that only the sessions that are hit are degraded.
    """
    for _ in range(PODS):
        pods.start_pod()
    await pods.until_each(degraded=False, is_hit=is_hit)
    begun_s = time.monotonic()
    await begin()
    pods.start_pod()  # this one starts during the outage
    await pods.until_each(degraded=True, is_hit=is_hit)
    await asyncio.sleep(max(0.0, begun_s + seconds - time.monotonic()))
    lasted_s = time.monotonic() - begun_s
    await end()
    await pods.until_each(degraded=False, is_hit=is_hit)
    ended_s = time.monotonic()
    seen = await pods.finish()
    await pods.check()
    assert all(pod["outages"] >= 1 and pod["replayed"] > 0 and pod["refused"] == 0 for pod in seen)
    turns = pods.read_all_turns()
    assert not any(turn[2] and not is_hit(turn[0]) for turn in turns), "degraded, although its node was up"
    healthy = [turn for turn in turns if not is_hit(turn[0]) and turn[3] < ended_s and turn[4] > begun_s]
    healthy_ms = max((turn[4] - turn[3] for turn in healthy), default=0) * 1000
    slowest_ms, replay_s = (max(pod[name] for pod in seen) for name in ("slowest_ms", "replay_s"))
    beside = f", slowest turn beside it {healthy_ms:.0f} ms" if healthy else ""
    degraded_count = sum(turn[2] for turn in turns)
    return (
        f"{kind} for {lasted_s:.1f} s: {len(turns)} turns, {degraded_count} degraded, 0 lost, 0 doubled, "
        f"slowest turn {slowest_ms:.0f} ms, replayed in {replay_s:.2f} s{beside}"
    )
