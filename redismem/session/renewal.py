"""Renew the expiry of a session behind a read that has found it aged."""

from __future__ import annotations

import contextlib
from functools import partial

from redismem.errors import RedismemError
from redismem.protocol.session.calls import SessionCalls
from redismem.store.store import Store


def renew_aged(store: Store, session_calls: SessionCalls) -> None:
    """Start a touch as side work if the last read has found the session aged. After a failure, the next read tries."""
    if session_calls.is_aged:
        session_calls.is_aged = False
        store.side_work.start(session_calls.keys.session_id, partial(_touch, store, session_calls))


async def _touch(store: Store, session_calls: SessionCalls) -> None:
    with contextlib.suppress(RedismemError):
        await store.run(session_calls.touch())
