"""An outage with workers as real processes: no session is dead, no turn fails, all are summarised afterwards."""

from __future__ import annotations

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
from support.selection import EVERYTHING
from support.writers import chat_message

from redismem import Memory, Settings
from redismem.store.depths import depths_of

WORKERS, SESSIONS, OUTAGE_S = (3, 50, 21) if EVERYTHING else (2, 20, 4)
PATIENT = Settings(reply_timeout_s=10, deadline_s=60)
pytestmark = pytest.mark.timeout(600)


class Pods:
    """Processes of `redismem worker`, and what they log."""

    def __init__(self, url: str, namespace: str, provider: ProviderServer, folder: Path, **settings: str) -> None:
        self._command = [sys.executable, "-m", "redismem", "worker", "--nice", "0", "--url", url]
        self._command += ["--namespace", namespace]
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

    def are_started(self, count: int) -> bool:
        return self.log().count("started on ") == count

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


class Turns:
    """Turns in all sessions succeed throughout, and no session is dead in the meantime."""

    def __init__(self, memory: Memory, count: int) -> None:
        self.memory = memory
        self.sessions = [memory.session(f"s-{number}") for number in range(count)]
        self.count = 0

    async def one(self) -> None:
        await self.sessions[self.count % len(self.sessions)].append(chat_message(self.count))
        self.count += 1
        assert (await depths_of(self.memory.store)).total("dead").count == 0

    async def until_asked(self, provider: ProviderServer, count: int, seconds: float) -> None:
        """Make turns for this many seconds, and on until the provider was asked so often."""
        end_s = time.monotonic() + seconds

        async def over() -> bool:
            await self.one()
            return time.monotonic() > end_s and len(provider.asked) >= count

        await until(over, seconds + 120)

    async def waiting_count(self) -> int:
        """Count the sessions that wait for a summary; one that a worker tries at the moment is leased."""
        depths = await depths_of(self.memory.store)
        return depths.total("overdue").count + depths.total("leased").count

    async def settled(self) -> bool:
        return await self.waiting_count() == 0

    async def all_wait(self) -> bool:
        """Make a turn; True if each session waits."""
        await self.one()
        return await self.waiting_count() == len(self.sessions)


async def down_for_a_while(turns: Turns, provider: ProviderServer, pods: Pods) -> tuple[int, float]:
    """Count requests during an outage in which one process is killed, and time the recovery."""
    for session in turns.sessions:
        await session.append(*map(chat_message, range(11)))
    await until(turns.settled, 120)
    await until(partial(pods.are_started, WORKERS))
    provider.mode, asked_before = "503", len(provider.asked)
    await turns.until_asked(provider, asked_before + 1, OUTAGE_S / 2)
    pods.kill_one()
    await turns.until_asked(provider, asked_before + 2, OUTAGE_S / 2)
    asked_count = len(provider.asked) - asked_before
    await until(turns.all_wait, 120)
    provider.mode, over_s = "ok", time.monotonic()
    await until(turns.settled, 120)
    return asked_count, time.monotonic() - over_s


@pytest.mark.nightly  # test_outages.py shows it in one process
async def test_an_outage_with_several_processes(
    redis_server: RedisServer,
    namespace: str,
    provider: ProviderServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pods = Pods(redis_server.url, namespace, provider, tmp_path)
    try:
        async with Memory.connect(redis_server.url, namespace=namespace, settings=PATIENT) as memory:
            turns = Turns(memory, SESSIONS)
            asked_count, took_s = await down_for_a_while(turns, provider, pods)
            for session in turns.sessions:
                info = await session.info()
                assert (info.queued, info.attempts, info.failure) == (None, 0, None)
                assert {summary.model for summary in (await session.read()).summaries} == {"some-model"}
        await until(partial(pods.are_started, WORKERS + 1))  # before that, SIGTERM would kill the last one
        assert pods.stop() == [0] * WORKERS
    finally:
        pods.close()
    for said_there in ("is paused ", "openai answered 503 UNAVAILABLE", "openai/some-model answers again"):
        assert said_there in pods.log()
    assert "canary" not in pods.log()
    with capsys.disabled():
        sys.stdout.write(
            f"\n{OUTAGE_S} s of 503, {WORKERS} workers, {SESSIONS} sessions overdue, {turns.count} appends meanwhile: "
            f"{asked_count} requests, 0 dead; all summarised {took_s:.1f} s after it\n"
        )
    # Each process may have 16 under way when the first one fails; then it is asked once a pause, which doubles.
    assert asked_count <= min(SESSIONS, WORKERS * 16) + 16


@pytest.mark.nightly
async def test_an_outage_longer_than_the_setting_with_several_processes(
    redis_server: RedisServer, namespace: str, provider: ProviderServer, tmp_path: Path
) -> None:
    """Turns continue, and only the texts of the summaries differ."""
    provider.mode = "401"
    pods = Pods(redis_server.url, namespace, provider, tmp_path, extractive_after_s="4")
    try:
        async with Memory.connect(redis_server.url, namespace=namespace, settings=PATIENT) as memory:
            turns = Turns(memory, 5)

            async def models() -> list[set[str]]:
                await turns.one()
                return [{each.model for each in (await session.read()).summaries} for session in turns.sessions]

            async def written_instead() -> bool:
                return all(found == {"extractive"} for found in await models())

            async def by_the_model() -> bool:
                return all("some-model" in found for found in await models())

            await until(written_instead, 120)
            provider.mode = "ok"
            await until(by_the_model, 120)
        assert pods.stop() == [0] * WORKERS
    finally:
        pods.close()
    assert "the extractive summariser writes instead" in pods.log()
    assert "openai answered 401 invalid_api_key authentication_error" in pods.log()
