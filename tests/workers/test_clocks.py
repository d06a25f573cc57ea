"""Pods whose clocks are an hour fast or slow, and change while they work: real processes, with what they take for the
time shifted beneath them. Nothing is lost, doubled or left waiting, for the time that counts is Redis'."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.checks import until, user
from support.commands import wait_for_exit
from support.forks import start_fresh
from support.pods import CAMPAIGN, read_ledger
from support.redis_server import RedisServer
from support.shifted import HOUR_S, ShiftedClock

from redismem import Memory
from redismem.inspection.check import check

NAMESPACE = "clocks"
pytestmark = pytest.mark.timeout(600)


class Pods:
    """Producers and workers on one server, each with a clock of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._running: list[subprocess.Popen[str]] = []

    def start(self, role: str, number: int, shift_s: int) -> ShiftedClock:
        folder = self._folder / f"{role}-{number}"
        folder.mkdir()
        clock = ShiftedClock(folder)
        clock.shift(shift_s)
        ledger = (number, self._folder / f"pod-{number}") if role == "producer" else ()
        pod = start_fresh("support.pods", f"campaign-{role}", self._url, NAMESPACE, *ledger, **clock.variables)
        self._running.append(pod)
        return clock

    def read_appends(self) -> list[Any]:
        """Read each append: its session, its text, and when it started and ended."""
        return [append for path in self._folder.glob("pod-*") for append in read_ledger(path)]

    async def until_more(self, count: int) -> None:
        """Wait until each producer has had this many more appends acknowledged."""
        before = Counter(append[1].partition(".")[0] for append in self.read_appends())

        async def reached() -> bool:
            assert all(pod.poll() is None for pod in self._running), "a pod has died"
            await asyncio.sleep(0.05)
            now = Counter(append[1].partition(".")[0] for append in self.read_appends())
            return len(now) == 2 and all(now[each] >= before[each] + count for each in now)

        await until(reached)

    def finish(self) -> None:
        for pod in self._running:
            assert wait_for_exit(pod).code == 0

    def close(self) -> None:
        for pod in self._running:
            with pod:
                pod.kill()


@pytest.fixture
async def pods(redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Pods]:
    pods = Pods(redis_server.url, tmp_path)
    yield pods
    pods.close()
    async with Memory.connect(redis_server.url, namespace=NAMESPACE, settings=CAMPAIGN) as memory:
        while found := (await memory.sessions()).sessions:
            await asyncio.gather(*(memory.session(each.session_id).clear() for each in found))


@pytest.mark.nightly
async def test_pods_whose_clocks_are_wrong_and_change_do_no_harm(pods: Pods, redis_server: RedisServer) -> None:
    fast, slow = (pods.start("producer", number, shift_s) for number, shift_s in enumerate((HOUR_S, -HOUR_S)))
    late, early = (pods.start("worker", number, shift_s) for number, shift_s in enumerate((-HOUR_S, HOUR_S)))
    await pods.until_more(60)
    for clock, shift_s in ((fast, -HOUR_S), (slow, HOUR_S), (late, HOUR_S), (early, -HOUR_S)):
        clock.shift(shift_s)
    await pods.until_more(60)
    await asyncio.to_thread(pods.finish)
    expected: dict[str, Counter[str]] = {}
    for session_id, text, *_ in pods.read_appends():
        expected.setdefault(session_id, Counter())[text] += 1
    async with Memory.connect(redis_server.url, namespace=NAMESPACE, settings=CAMPAIGN) as memory:
        time_ms, covered = await memory.server_time_ms(), 0
        assert await memory.count() == len(expected), "an index has lost one"
        for session_id, texts in expected.items():
            messages = await memory.session(session_id).messages(include_originals=True)
            assert Counter(str(message.content) for message in messages) == texts
            assert all(time_ms - HOUR_S * 1_000 < message.stored_ms <= time_ms for message in messages)
            covered += len((await memory.session(session_id).read()).summaries)
        assert covered, "the workers have worked"
        assert [violation async for violation in check(memory.store)] == []


async def test_a_worker_goes_on_ticking_when_its_clock_is_set(pods: Pods, redis_server: RedisServer) -> None:
    clock = pods.start("worker", 0, 0)
    async with Memory.connect(redis_server.url, namespace=NAMESPACE, settings=CAMPAIGN) as memory:
        for number, shift in enumerate((0, HOUR_S, HOUR_S, -HOUR_S, -HOUR_S)):
            clock.shift(shift)
            session = memory.session(f"s-{number}")
            await session.append(*(user(f"{number}.{at}") for at in range(30)))

            async def is_summarised() -> bool:
                return bool((await session.read()).summaries)  # noqa: B023 (awaited before the next round)

            await until(is_summarised)
