"""A process that is forked off while Redis is down, or about to count as down, finds Redis by itself."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.checks import silent_logs, user  # noqa: F401 (an autouse fixture)
from support.redis_server import RedisServer
from support.waiting import wait_until

from redismem import Settings, StoreUnavailable
from redismem.blocking.memory import Memory
from redismem.store.breaker import Breaker, BreakerState

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

PATIENT = Settings(deadline_s=60, reply_timeout_s=20)
HASTY = Settings(deadline_s=0.5, reply_timeout_s=0.5, fallback_after_s=0.3)


def status_of_child(is_well: Callable[[], bool], within_s: int = 30) -> int:
    """Run this in a forked process, and return its exit status; 0 means success."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(within_s)
        try:
            os._exit(0 if is_well() else 2)
        except BaseException:
            os._exit(1)
    return os.waitpid(child, 0)[1]


class HeldProbe:
    """An `on_event` that blocks the first probe of this process."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, event: Any) -> None:
        if event.outcome == BreakerState.HALF_OPEN and os.getpid() == self._parent:
            self.begun.set()
            assert self.may_end.wait(60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", aof=True, options=("--appendfsync", "no")).start()
    yield server
    server.stop()


@pytest.mark.parametrize("fallback", [False, True])
def test_a_child_forked_during_a_probe_finds_redis(server: RedisServer, namespace: str, fallback: bool) -> None:
    probe = HeldProbe()
    memory = Memory.connect(server.url, namespace=namespace, settings=HASTY, fallback=fallback, on_event=probe)
    session, theirs = memory.session("a"), memory.session("b")

    def append(said: Any, text: str) -> bool:
        """True if Redis has it."""
        with contextlib.suppress(StoreUnavailable):
            return not said.append(user(text), id=text).degraded
        return False

    def has_appended(said: Any, text: str) -> bool:
        wait_until(lambda: append(said, text))
        return True

    assert has_appended(session, "before")
    server.kill()
    assert not append(session, "parent")
    looking = threading.Thread(target=append, args=(session, "parent"))
    looking.start()
    assert probe.begun.wait(60)
    server.start()
    status, state = status_of_child(lambda: has_appended(theirs, "child")), memory.health().state
    probe.may_end.set()
    looking.join()
    assert (status, state) == (0, "half_open")
    assert has_appended(session, "parent")
    memory.close()
    with Memory.connect(server.url, namespace=namespace, settings=PATIENT) as direct:
        for name, texts in (("a", ("before", "parent")), ("b", ("child",))):
            assert [message.content for message in direct.session(name).messages()] == [
                user(t)["content"] for t in texts
            ]


def test_a_child_needs_no_lock_and_no_probe_of_another_process() -> None:
    breaker = Breaker()
    assert breaker.trip(time.monotonic(), "TimeoutError")
    with breaker._lock:  # as if a thread that the child lacks held it
        assert status_of_child(breaker.begin_probe) == 0
    assert breaker.begin_probe(), "nobody in this process has begun one"
    assert status_of_child(breaker.begin_probe) == 0
    assert not breaker.begin_probe(), "this process is at it"
    breaker.close()
    assert status_of_child(lambda: breaker.is_closed and not breaker.begin_probe()) == 0
