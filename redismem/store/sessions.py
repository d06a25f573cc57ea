"""Read a namespace's list of sessions, in round trips small enough not to delay a turn."""

from __future__ import annotations

from redismem.context.info import SessionEntry, SessionPage
from redismem.protocol.namespace.sessions import SessionsReader, encode_cursor
from redismem.store.store import Store


async def read_sessions(store: Store, limit: int, cursor: str | None, since_ms: int) -> SessionPage:
    """Return a page of the sessions active after `since_ms`, most recently active first.

    Raises:
        ValueError: The cursor was not returned by a page, or the limit is out of range.
        StoreUnavailable: Redis did not answer in time.
    """
    reader = SessionsReader(store.keys, limit, cursor, since_ms)
    while (call := reader.next_call()) is not None:
        await store.run(call)
    return reader.page()


def cursor_after(entry: SessionEntry) -> str:
    """Return the cursor of the sessions after this one."""
    return encode_cursor(entry)
