"""Clear a session that has a backlog: its entries are dropped once Redis has cleared it."""

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
    """Hold back the replay of a session while the body of the `with` block clears it.

    An entry that is being sent might reach Redis after the clear, so it is awaited first, for at most `patience_s`. If
    the body raises, all entries stay in the backlog, because the session may still exist. `lock` guards the backlog.
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
