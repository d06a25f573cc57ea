"""The list of conversations: search by id, and a preview of each conversation's newest message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redismem.errors import CorruptSession, SessionNotFound, UnsupportedFormat
from redismem.info import SessionEntry
from redismem.memory import Memory

_PAGE_COUNT = 1_000
_PAGES_COUNT = 5
_PREVIEW_CHARS = 160
_NEWEST_COUNT = 4


async def page(
    memory: Memory, limit: int, cursor: str | None, contains: str | None
) -> tuple[Sequence[SessionEntry], str | None]:
    """Return the next sessions, and the cursor for the sessions after them.

    Raises:
        ValueError: The cursor is malformed.
        StoreUnavailable: Redis does not answer.
    """
    if contains is None:
        first = await memory.sessions(limit, cursor)
        return first.sessions, first.cursor
    part, matches = contains.casefold(), list[SessionEntry]()
    for _ in range(_PAGES_COUNT):
        sessions = await memory.sessions(_PAGE_COUNT, cursor)
        matches += [entry for entry in sessions.sessions if part in entry.session_id.casefold()]
        cursor = sessions.cursor
        if cursor is None or len(matches) >= limit:
            break
    # Matches beyond the limit are dropped: a search with so many matches needs a longer part of the id.
    return matches[:limit], cursor


async def newest_of(memory: Memory, session_ids: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return a preview of each session's newest message, by a user if the last few messages have one.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return await asyncio.gather(*(_newest(memory, session_id) for session_id in session_ids))


async def _newest(memory: Memory, session_id: str) -> dict[str, Any] | None:
    try:
        messages = await memory.session(session_id).messages(_NEWEST_COUNT)
    except (SessionNotFound, CorruptSession, UnsupportedFormat):
        return None
    if not messages:
        return None
    # A user's message tells conversations apart; answers often begin alike.
    message = next((each for each in reversed(messages) if each.role == "user"), messages[-1])
    content, role = message.content, message.role
    text = " ".join(content[: 4 * _PREVIEW_CHARS].split())[:_PREVIEW_CHARS] if isinstance(content, str) else ""
    return {"seq": message.seq, "role": role if isinstance(role, str) else "", "text": text}
