"""The list of conversations: those with something in their id, and how what was said last in each begins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redismem.errors import CorruptSession, SessionNotFound, UnsupportedFormat
from redismem.info import SessionEntry
from redismem.memory import Memory

_LOOKED_AT_COUNT = 1_000
_LOOKS_COUNT = 5
_SHOWN_CHARS = 160
_NEWEST_COUNT = 4


async def page(
    memory: Memory, limit: int, cursor: str | None, contains: str | None
) -> tuple[Sequence[SessionEntry], str | None]:
    """The next sessions, and the cursor after them. Raises ValueError, StoreUnavailable."""
    if contains is None:
        whole = await memory.sessions(limit, cursor)
        return whole.sessions, whole.cursor
    wanted, found = contains.casefold(), list[SessionEntry]()
    for _ in range(_LOOKS_COUNT):
        looked = await memory.sessions(_LOOKED_AT_COUNT, cursor)
        found += [entry for entry in looked.sessions if wanted in entry.session_id.casefold()]
        cursor = looked.cursor
        if cursor is None or len(found) >= limit:
            break
    # Beyond the limit they are given up: who finds so many asks for more of the id.
    return found[:limit], cursor


async def newest_of(memory: Memory, session_ids: Sequence[str]) -> list[dict[str, Any] | None]:
    """How what was said last in each begins: by a user, if that is among the last few. Raises StoreUnavailable."""
    return await asyncio.gather(*(_newest(memory, session_id) for session_id in session_ids))


async def _newest(memory: Memory, session_id: str) -> dict[str, Any] | None:
    try:
        found = await memory.session(session_id).messages(_NEWEST_COUNT)
    except (SessionNotFound, CorruptSession, UnsupportedFormat):
        return None
    if not found:
        return None
    # What a person said tells conversations apart; answers often begin alike.
    message = next((each for each in reversed(found) if each.role == "user"), found[-1])
    content, role = message.content, message.role
    text = " ".join(content[: 4 * _SHOWN_CHARS].split())[:_SHOWN_CHARS] if isinstance(content, str) else ""
    return {"seq": message.seq, "role": role if isinstance(role, str) else "", "text": text}
