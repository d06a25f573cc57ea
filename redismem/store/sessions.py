"""Read a namespace's list of sessions, in round trips small enough not to delay a turn."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.info import SessionEntry, SessionPage
from redismem.protocol.keys import is_session_id
from redismem.protocol.namespace.sessions import SessionsReader, decode_cursor, encode_cursor, listed
from redismem.store.store import Store

_TOGETHER_COUNT = 256


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


async def keep_listed(store: Store, entries: Sequence[SessionEntry]) -> list[SessionEntry]:
    """Return the entries whose sessions have not ended since. Raises StoreUnavailable."""
    kept: list[SessionEntry] = []
    for at in range(0, len(entries), _TOGETHER_COUNT):
        part = [entry for entry in entries[at : at + _TOGETHER_COUNT] if is_session_id(entry.session_id)]
        if part:
            answers = await store.run(listed(store.keys, [entry.session_id for entry in part]))
            kept += [entry for entry, is_listed in zip(part, answers, strict=True) if is_listed]
    return kept


def entry_key(entry: SessionEntry) -> tuple[int, bytes]:
    """Return the sort key of a session; greater comes first."""
    return entry.active_ms, entry.session_id.encode("utf-8", "surrogateescape")


def cursor_key(cursor: str) -> tuple[int, bytes]:
    """Return the sort key of the last session before this cursor. Raises ValueError for a malformed cursor."""
    return decode_cursor(cursor)


def cursor_after(entry: SessionEntry) -> str:
    """Return the cursor of the sessions after this one."""
    return encode_cursor(entry)
