"""Previews for the list of conversations: the beginning of each conversation's newest message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Any

from redismem.context.info import SessionEntry, SessionPage
from redismem.errors import CorruptSession, OwnerMismatch, SessionNotFound, UnsupportedFormat
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.session.listing import describe
from redismem.text.plain import pieces

PREVIEW_CHARS = 160
_NEWEST_COUNT = 4
_PIECES_COUNT = 20
_PREVIEWS_TOGETHER = 50
_PREVIEW_TOKENS = 1 << 20


def preview(message: Message, text: str) -> dict[str, Any]:
    """Return a preview of a message, with a part of its text."""
    role = message.role
    return {"seq": message.seq, "role": role if isinstance(role, str) else "", "text": text}


async def titles_of(memory: Memory, rows: Sequence[dict[str, Any]], owner: str) -> list[dict[str, Any]]:
    """Return the title of each session of an owner, and role and beginning of its last message.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    entries = [SessionEntry(row["session_id"], row["active_ms"]) for row in rows]
    page = await describe(memory.store, SessionPage(entries, None), owner)
    return [
        {"title": entry.title, "last_role": entry.last_role, "last_text": entry.last_text} for entry in page.sessions
    ]


async def newest_of(
    memory: Memory, session_ids: Sequence[str], owner: str | None = None
) -> list[dict[str, Any] | None]:
    """Return a preview of each session's newest message, by a user if the last few messages have one.

    With an owner, a session that belongs to another one by now has none. `None` means that there is none, or that the
    messages read for the sessions before were too large.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    previews: list[dict[str, Any] | None] = []
    tokens = 0
    for at in range(0, len(session_ids), _PREVIEWS_TOGETHER):
        if tokens > _PREVIEW_TOKENS:
            break
        part = session_ids[at : at + _PREVIEWS_TOGETHER]
        for newest, read_tokens in await asyncio.gather(*(_newest(memory, each, owner) for each in part)):
            previews.append(newest)
            tokens += read_tokens
    return previews + [None] * (len(session_ids) - len(previews))


async def _newest(memory: Memory, session_id: str, owner: str | None) -> tuple[dict[str, Any] | None, int]:
    """Return a preview, and the tokens of the messages read for it."""
    try:
        messages = await memory.session(session_id, owner=owner).messages(_NEWEST_COUNT)
    except (SessionNotFound, CorruptSession, UnsupportedFormat, OwnerMismatch):
        return None, 0
    if not messages:
        return None, 0
    # What a user said tells conversations apart; answers often begin alike, and a tool's result is no user's words.
    texts = [(message, *_text_of(message)) for message in reversed(messages)]
    shown = [each for each in texts if each[2]] or texts
    message, _, text = next((each for each in shown if each[0].role == "user" and each[1]), shown[0])
    return preview(message, text), sum(each.tokens for each in messages)


def _text_of(message: Message) -> tuple[bool, str]:
    """Return whether somebody said it, as opposed to a tool, and its text, whatever the form of the message."""
    found = list(islice(pieces(message, 4 * PREVIEW_CHARS), _PIECES_COUNT))
    text = " ".join(" ".join(text for _, text in found).split())[:PREVIEW_CHARS]
    return any(kind in ("text", "part") for kind, _ in found), text
