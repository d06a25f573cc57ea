"""Answers by Celery: a task is retried, or redelivered when its process is killed; the turn is told and stored once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import wait_for_exit, wait_for_line
from support.example_processes import ROOT, Places, start_example
from support.redis_server import RedisServer

from redismem.blocking import Memory


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the worker's processes in /proc")
@pytest.mark.nightly
def test_a_turn_is_stored_once_whatever_happens_to_its_worker(places: Places, tmp_path: Path) -> None:
    server = RedisServer(tmp_path / "redis").start()
    provider = places.provider
    places.redis_url = server.url
    broker = {"CELERY_BROKER_URL": f"redis://{server.place}/1", "REDISMEM_LIVE_LEASE_S": "1"}
    provider.pieces = ["It ", "is ", "ready."]
    provider.modes.extend(["503", "silent"])
    try:
        with start_example("celery_chat.py", places, "--concurrency", "1", "--without-mingle", **broker) as worker:
            wait_for_line(worker.stdout, "ready.")
            words = [sys.executable, "-m", "examples.celery_chat", "anna", "Is my bike ready?"]
            environ = os.environ | places.environment | broker
            with subprocess.Popen(words, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as asking:
                provider.wait_for_asked(2)  # the first request has failed, and the second says nothing
                (child,) = children(worker.pid)
                os.kill(child, signal.SIGKILL)
                assert asking.communicate(timeout=300)[0] == "It is ready.\n"
            assert len(provider.asked) == 3
            with Memory.connect(server.url, namespace=places.namespace) as memory:
                contents = [message.content for message in memory.session("anna").messages()]
            assert contents == ["Is my bike ready?", "It is ready."]
            worker.terminate()
            output = wait_for_exit(worker).out
            assert "It is ready." not in output
            assert "Is my bike" not in output
    finally:
        server.stop()
