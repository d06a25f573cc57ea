"""A clear of a session of which something waits for its replay: that goes with it, once Redis has cleared it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from time import monotonic
from typing import Any

from redismem.store.fallback.backlog import Backlog

_LOOK_S = 0.002


@asynccontextmanager
async def clearing(
    backlog: Backlog,
    lock: AbstractContextManager[Any],
    session_id: str,
    sleep: Callable[[float], Awaitable[None]],
    patience_s: float,
) -> AsyncIterator[None]:
    """The clear is made within: if that raises, all waits on, as the session may stand.

    Nothing is replayed into the session meanwhile. What is on its way is waited for, as long as `patience_s`: it would
    come back behind the clear. `lock` guards the backlog.
    """
    with lock:
        waiting = backlog.begin_clear(session_id)
    is_cleared = False
    try:
        until_s = monotonic() + patience_s
        while backlog.is_replaying(session_id) and monotonic() < until_s:
            await sleep(_LOOK_S)
        yield
        is_cleared = True
    finally:
        with lock:
            backlog.end_clear(session_id, waiting, is_cleared=is_cleared)
