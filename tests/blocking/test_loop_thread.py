"""Threads with an event loop: start, stop, forks, and coroutines that ignore being cancelled."""

import asyncio
import contextlib
import gc
import os
import threading
import time
from collections.abc import AsyncIterator

import pytest
from support.waiting import wait_until

from redismem.blocking.loop_thread import LoopThread

NAME = "loop-under-test"


def loop_threads_count() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


async def thread_name() -> str:
    return threading.current_thread().name


def test_the_thread_starts_on_first_use_and_again_after_a_stop() -> None:
    thread = LoopThread(NAME)
    thread.stop()
    assert loop_threads_count() == 0
    for _ in range(2):
        assert [thread.run(thread_name) for _ in range(3)] == [NAME] * 3
        assert loop_threads_count() == 1
        thread.stop()
        assert loop_threads_count() == 0


def test_the_resource_is_open_while_the_loop_runs() -> None:
    steps: list[str] = []

    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        steps.append("open")
        yield
        steps.append("closed")

    thread = LoopThread(NAME, resource)
    assert steps == []
    thread.run(thread_name)
    assert steps == ["open"]
    thread.stop()
    assert steps == ["open", "closed"]


def test_a_resource_that_cannot_be_opened_is_tried_again() -> None:
    failures = [OSError("not yet")]

    @contextlib.asynccontextmanager
    async def resource() -> AsyncIterator[None]:
        if failures:
            raise failures.pop()
        yield

    thread = LoopThread(NAME, resource)
    with pytest.raises(OSError, match="not yet"):
        thread.start()
    assert thread.run(thread_name) == NAME
    thread.stop()


def test_a_coroutine_that_ignores_being_cancelled_does_not_keep_the_caller_of_stop() -> None:
    thread, may_end, begun = LoopThread(NAME), threading.Event(), threading.Event()

    async def deaf() -> str:
        begun.set()
        while not may_end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "late"

    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(thread.run(deaf)))
    asking.start()
    assert begun.wait(60)
    begun_s = time.monotonic()
    thread.stop(0.1)
    assert time.monotonic() - begun_s < 30
    may_end.set()
    asking.join(60)
    assert answers == ["late"]


def test_a_thread_without_an_owner_ends() -> None:
    thread = LoopThread(NAME)
    thread.start()
    del thread

    def has_ended() -> bool:
        gc.collect()
        return not loop_threads_count()

    wait_until(has_ended)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_starts_its_own() -> None:
    thread = LoopThread(NAME)
    thread.start()
    with thread._lock:  # as if another thread were starting it
        child = os.fork()
        if not child:
            os._exit(0 if thread.run(thread_name) == NAME else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert thread.run(thread_name) == NAME
    thread.stop()
