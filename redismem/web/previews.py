"""Describe the sessions of a list: owner, title, and the beginning of the last message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context.info import SessionEntry, SessionPage
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.session.listing import describe

PREVIEW_CHARS = 160


def preview(message: Message, text: str) -> dict[str, Any]:
    """Return a preview of a message, with a part of its text."""
    role = message.role
    return {"seq": message.seq, "role": role if isinstance(role, str) else "", "text": text}


async def describe_rows(
    memory: Memory, rows: Sequence[dict[str, Any]], owner: str | None = None
) -> list[dict[str, Any]]:
    """Return the rows of a list with owner, title, and role and beginning of the last message of each session.

    With an owner, nothing is told of a session that belongs to another one by now.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    entries = await describe_entries(memory, [SessionEntry(row["session_id"], row["active_ms"]) for row in rows], owner)
    return [row | _make_row(entry) for row, entry in zip(rows, entries, strict=True)]


async def describe_entries(
    memory: Memory, entries: Sequence[SessionEntry], owner: str | None = None
) -> Sequence[SessionEntry]:
    """Return these entries with owner, title and last message. Raises StoreUnavailable."""
    return (await describe(memory.store, SessionPage(entries, None), owner)).sessions


def _make_row(entry: SessionEntry) -> dict[str, Any]:
    return {
        "owner": entry.owner,
        "title": entry.title,
        "last_role": entry.last_role,
        "last_text": entry.last_text,
    }
