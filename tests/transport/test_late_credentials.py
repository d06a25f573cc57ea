"""A function for user and password that never returns does not use up the threads of the process."""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from types import SimpleNamespace

import pytest

from redismem.protocol.server_errors import ConnectionLost
from redismem.transport import credentials as module
from redismem.transport.credentials import Login

LOGIN = None, "of no server"


def _ask(asker: module.Asker, kind: str) -> Login:
    return asyncio.run(asker.login()) if kind == "asyncio" else asker.login_blocking(monotonic() + 0.01)


@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_a_function_that_never_returns_leaves_one_thread_a_minute(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_S", 0.01)
    released, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> Login:
        begun.release()
        released.wait()
        return LOGIN

    asker = module.Asker(hang)
    for _ in range(20):
        with pytest.raises(ConnectionLost, match=module.FAILED):
            _ask(asker, kind)
    assert begun.acquire(timeout=60)
    assert not begun.acquire(blocking=False), "a thread for each attempt would use up the process"
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: monotonic() + 61))
    with pytest.raises(ConnectionLost, match=module.FAILED):
        asker.login_blocking(0)
    assert begun.acquire(timeout=60), "the first call may never return"
    released.set()
    monkeypatch.undo()
    assert asker.login_blocking(monotonic() + 60) == LOGIN


def test_an_async_function_that_never_returns_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_S", 0.01)
    cancelled = threading.Event()

    async def hang() -> Login:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return LOGIN

    with pytest.raises(ConnectionLost, match=module.FAILED):
        module.Asker(hang).login_blocking(monotonic())
    assert cancelled.wait(60), "its thread and its event loop would stay for ever"
