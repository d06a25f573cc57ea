"""An outage of 21 s with workers as real processes: nobody is dead, nobody is refused, all is summarised after it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.checks import until
from support.provider_server import ProviderServer
from support.redis_server import RedisServer
from support.writers import said

from redismem import Memory, Settings
from redismem.inspection.depths import depths_of

WORKERS, SESSIONS, OUTAGE_S = 3, 50, 21
pytestmark = pytest.mark.timeout(600)


class Pods:
    """Processes of `redismem worker`, and what they log."""

    def __init__(self, url: str, namespace: str, provider: ProviderServer, folder: Path, **settings: str) -> None:
        self._command = [sys.executable, "-m", "redismem", "worker", "--url", url, "--namespace", namespace]
        self._environment = os.environ | {
            "REDISMEM_MODEL_PROVIDER": "openai",
            "REDISMEM_MODEL": "some-model",
            "REDISMEM_MODEL_API_KEY": "canary-key",
            "REDISMEM_MODEL_BASE_URL": provider.base_url,
            "REDISMEM_MODEL_ALLOW_HTTP": "true",
            "REDISMEM_TICK_S": "0.2",
            "REDISMEM_LEASE_S": "2",
            **{f"REDISMEM_{name.upper()}": value for name, value in settings.items()},
        }
        self._folder = folder
        self.running = [self._start() for _ in range(WORKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(self._command, env=self._environment, stderr=log, stdin=subprocess.DEVNULL)

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def kill_one(self) -> None:
        self.running[0].kill()
        self.running[0].wait(60)
        self.running[0] = self._start()

    def stop(self) -> list[int]:
        for process in self.running:
            process.terminate()
        return [process.wait(60) for process in self.running]

    def close(self) -> None:
        for process in self.running:
            process.kill()
            process.wait(60)


@pytest.fixture
def provider() -> Iterator[ProviderServer]:
    with ProviderServer() as provider:
        yield provider


async def test_an_outage_with_several_processes(
    redis_server: RedisServer,
    namespace: str,
    provider: ProviderServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods = Pods(redis_server.url, namespace, provider, tmp_path)
    settings = Settings(reply_timeout_s=10, deadline_s=60)
    try:
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
            sessions = [memory.session(f"s-{number}") for number in range(SESSIONS)]

            async def settled() -> bool:
                depths = await depths_of(memory.store)
                assert depths.total("dead").count == 0
                return depths.total("overdue").count == depths.total("leased").count == 0

            for session in sessions:
                await session.append(*map(said, range(11)))
            await until(settled, 120)
            provider.mode = "503"
            asked_before, began_s, turns = len(provider.asked), time.monotonic(), itertools.count()

            async def been_down_for(seconds: float) -> bool:
                number = next(turns)  # turns go on
                await sessions[number % SESSIONS].append(said(number))
                assert (await depths_of(memory.store)).total("dead").count == 0
                return time.monotonic() - began_s > seconds

            await until(partial(been_down_for, OUTAGE_S / 2), 120)
            pods.kill_one()
            await until(partial(been_down_for, OUTAGE_S), 120)
            asked_count = len(provider.asked) - asked_before
            overdue_count = (await depths_of(memory.store)).total("overdue").count
            assert overdue_count == SESSIONS
            provider.mode, over_s = "ok", time.monotonic()
            await until(settled, 120)
            took_s = time.monotonic() - over_s
            for session in sessions:
                info = await session.info()
                assert (info.queued, info.attempts, info.failure) == (None, 0, None)
                assert {summary.model for summary in (await session.read()).summaries} == {"some-model"}
        assert pods.stop() == [0] * WORKERS
    finally:
        pods.close()
    log = pods.log()
    assert "openai/some-model is paused for " in log
    assert "openai answered 503 UNAVAILABLE" in log
    assert "openai/some-model answers again" in log
    assert "canary" not in log
    with capsys.disabled():
        sys.stdout.write(
            f"\n{OUTAGE_S} s of 503, {WORKERS} workers, {SESSIONS} sessions overdue, {next(turns)} appends meanwhile: "
            f"{asked_count} requests, 0 dead; all summarised {took_s:.1f} s after it\n"
        )
    # Each process may have 16 under way when the first one fails; then it is asked once a pause, which doubles.
    assert asked_count <= WORKERS * 16 + 16


async def test_an_outage_longer_than_the_setting_with_several_processes(
    redis_server: RedisServer, namespace: str, provider: ProviderServer, tmp_path: Path
) -> None:
    """Turns go on, and nobody notices but who reads the summaries."""
    provider.mode = "401"
    pods = Pods(redis_server.url, namespace, provider, tmp_path, extractive_after_s="4", max_window_count="2000")
    settings = Settings(reply_timeout_s=10, deadline_s=60, max_window_count=2000)
    try:
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
            sessions = [memory.session(f"s-{number}") for number in range(5)]
            began_s, turns = time.monotonic(), itertools.count()

            async def been_down() -> bool:
                number = next(turns)
                await sessions[number % 5].append(said(number))
                written = [{each.model for each in (await session.read()).summaries} for session in sessions]
                assert set().union(*written) <= {"extractive"}
                return time.monotonic() - began_s > 10 and all(written)

            await until(been_down, 120)
            assert (await depths_of(memory.store)).total("dead").count == 0
            provider.mode = "ok"

            async def by_the_model() -> bool:
                number = next(turns)
                await sessions[number % 5].append(said(number))
                models = [{each.model for each in (await session.read()).summaries} for session in sessions]
                return all("some-model" in found for found in models)

            await until(by_the_model, 120)
        assert pods.stop() == [0] * WORKERS
    finally:
        pods.close()
    assert "the extractive summariser writes instead" in pods.log()
    assert "openai answered 401 invalid_api_key authentication_error" in pods.log()
