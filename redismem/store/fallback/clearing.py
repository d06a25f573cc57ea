"""Clear a session that has a backlog: its entries are dropped once Redis has cleared it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, TypeVar

from redismem.store.fallback.backlog import Backlog

T = TypeVar("T")
_LOOK_S = 0.002


async def clear_beside(
    backlog: Backlog,
    lock: AbstractContextManager[Any],
    session_id: str,
    sleep: Callable[[float], Awaitable[None]],
    patience_s: float,
    send: Callable[[], Awaitable[T]],
) -> T:
    """Send a clear of a session, and hold back the replay of the session meanwhile. Return the value of the clear.

    An entry that is being sent might reach Redis after the clear, so it is awaited first, for at most `patience_s`. If
    `send` raises, the session may still exist, and all entries stay in the backlog. `lock` guards the backlog.
    """
    with lock:
        waiting = backlog.begin_clear(session_id)
    is_cleared = False
    try:
        until_s = monotonic() + patience_s
        while backlog.is_replaying(session_id) and monotonic() < until_s:
            await sleep(_LOOK_S)
        value = await send()
        is_cleared = True
        return value
    finally:
        with lock:
            backlog.end_clear(session_id, waiting, is_cleared=is_cleared)
