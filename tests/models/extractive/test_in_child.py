"""Extractive summaries from a child process: equal texts, a lower priority, and a child that dies and is replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checks import until
from support.redis_server import RedisServer

from redismem import Memory, Message
from redismem.models import open_extractive
from redismem.models.extractive.in_child import ExtractiveInChild
from redismem.text.word_counts import Sketch
from redismem.workers.scheduler import Scheduler
from redismem.workers.strategies import Summarize

SECRET = "the order canary-4711 was lost"
MESSAGES = [Message("user", f"{SECRET}, said caller {n}. I prefer the {n}th of May.") for n in range(20)]


async def text_by(extractive: Any, messages: list[Message] = MESSAGES, previous: str | None = "Ann is ill.") -> str:
    draft = await extractive.summarize(messages, previous, 200, Sketch())
    assert draft.model == "extractive"
    return str(draft.text)


def pid_of(extractive: ExtractiveInChild) -> int | None:
    return extractive.child.pid


def arguments_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


async def test_texts_are_equal_and_the_child_has_a_lower_priority_and_is_replaced_when_it_dies() -> None:
    extractive, expected = ExtractiveInChild(), await text_by(open_extractive())
    try:
        assert pid_of(extractive) is None
        assert await text_by(extractive) == expected
        pid = pid_of(extractive) or 0
        assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
        assert b"canary" not in arguments_of(pid)
        os.kill(pid, signal.SIGINT)  # Ctrl-C reaches the whole group
        assert await text_by(extractive) == expected
        assert pid_of(extractive) == pid
        os.kill(pid, signal.SIGKILL)
        assert await text_by(extractive) == expected
        assert pid_of(extractive) not in (None, pid)
    finally:
        await extractive.aclose()
    assert pid_of(extractive) is None


async def test_a_cancelled_summary_does_not_delay_the_next_one() -> None:
    extractive = ExtractiveInChild()
    try:
        await text_by(extractive)
        pid = extractive.child.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(text_by(extractive))
        await until(extractive.child._lock.locked)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await text_by(extractive) == await text_by(open_extractive())
        assert extractive.child.pid != pid
    finally:
        await extractive.aclose()


async def test_without_a_child_the_summary_is_written_here_and_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extractive = ExtractiveInChild()
    monkeypatch.setattr(sys, "executable", "/usr/sbin/uwsgi")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert await text_by(extractive) == await text_by(open_extractive())
    assert [record.getMessage() for record in caplog.records] == [
        "summaries are written in this process for 60 s: their child process failed: sys.executable is no Python"
    ]
    await extractive.aclose()


PROGRAM = """
import asyncio, os, sys
from redismem import Memory
from redismem.models.extractive.in_child import ExtractiveInChild
open(sys.argv[1], "a").write("run\\n")
extractive = ExtractiveInChild()
async def summarise():
    from redismem import Message
    await extractive.summarize([Message("user", "I prefer tea.")], None, 100)
    return extractive.child.pid
first = asyncio.run(summarise())
if forked := os.fork():
    os.waitpid(forked, 0)
    assert asyncio.run(summarise()) == first
    print(first, flush=True)
    os.kill(os.getpid(), 9)
assert asyncio.run(summarise()) != first
asyncio.run(extractive.aclose())
os._exit(0)
"""


async def test_the_child_ends_with_a_killed_parent_runs_no_program_of_its_and_a_fork_has_its_own(
    tmp_path: Path,
) -> None:
    program, runs = tmp_path / "program.py", tmp_path / "runs"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), str(runs)]
    ran = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    pid = int(ran.stdout)
    await until(lambda: not Path(f"/proc/{pid}").exists() or "(zombie)" in Path(f"/proc/{pid}/status").read_text())
    assert runs.read_text() == "run\n"


class Own:
    async def compact(self, messages: Any, previous: Any) -> Any:
        raise NotImplementedError


async def test_only_workers_beside_turns_on_a_server_have_a_child(redis_server: RedisServer, namespace: str) -> None:
    def model_of(memory: Memory) -> Any:
        scheduler: Any = memory.workers.current  # type: ignore[union-attr]
        strategy = scheduler.worker._writer.strategy
        return type(strategy._model) if isinstance(strategy, Summarize) else None

    url = redis_server.url
    async with (
        Memory.connect(url, namespace=namespace, workers=True) as on_server,
        Memory.connect("memory://", workers=True) as embedded,
        Memory.connect(url, namespace=namespace, workers=True, strategy=Own()) as own,
        Memory.connect(url, namespace=namespace, workers=Scheduler) as plain,
    ):
        assert model_of(on_server) is ExtractiveInChild
        assert model_of(embedded) is model_of(plain) is type(open_extractive())
        assert model_of(own) is None
