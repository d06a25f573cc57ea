"""Search the list of conversations by name, time, failing summaries and texts, with a bounded amount of work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redismem.context.info import SessionEntry, SessionInfo
from redismem.errors import CorruptSession, OwnerMismatch, SessionNotFound, UnsupportedFormat
from redismem.inspection.sessions import infos_of
from redismem.memory.memory import Memory
from redismem.messages.message import Message
from redismem.originals.fields import searchable_texts
from redismem.recall.recall import search_by_words
from redismem.store.sessions import cursor_after
from redismem.text.stems import QUESTION_STEMS, stems
from redismem.web.previews import PREVIEW_CHARS, describe_entries, preview

_PAGE_COUNT = 1_000
_PAGES_COUNT = 5
_INFOS_COUNT = 200
_TEXTS_COUNT = 20
_TEXT_PAGES_COUNT = 5
"""A search in texts reads this number of pages of `_TEXTS_COUNT` sessions."""
_WINDOW_COUNT = 200
_WINDOW_CHARS = 200_000
_STEMS_COUNT = 16
_HITS_COUNT = 16
_WORDS_BEFORE = 5

Rows = tuple[list[dict[str, Any]], str | None]
"""The rows that match, and the cursor of the sessions after the last one that was looked at."""


@dataclass(frozen=True, slots=True)
class Filters:
    """The conditions of a search; a session must meet all of them."""

    contains: str = ""
    """A part of the id, in any case."""
    text: str = ""
    """Words that one message of the session contains, in any inflected form."""
    failing: bool = False
    """True: the session's summary has failed, or its state cannot be read."""
    active_since_ms: int | None = None
    active_before_ms: int | None = None
    owner: str | None = None
    """Only sessions that were begun with this owner."""
    name: str = ""
    """Words, in any case; the title, the owner or the id contains each of them."""


async def search(memory: Memory, filters: Filters, limit: int, cursor: str | None) -> Rows:
    """Return the next sessions that match, most recently active first. A page may be short or empty.

    Raises:
        ValueError: The cursor is malformed.
        StoreUnavailable: Redis does not answer.
    """
    if cursor is None and filters.active_before_ms is not None:
        cursor = cursor_after(SessionEntry("", filters.active_before_ms))
    rows = list[dict[str, Any]]()
    words = _stems_of(filters.text)
    page_count, pages_count = (_TEXTS_COUNT, _TEXT_PAGES_COUNT) if filters.text else (_PAGE_COUNT, _PAGES_COUNT)
    if filters.failing or filters.name:
        page_count = min(page_count, _INFOS_COUNT)
    if filters == Filters(owner=filters.owner):
        page_count = limit
    for _ in range(pages_count):
        page = await memory.sessions(page_count, cursor, owner=filters.owner)
        entries, cursor = page.sessions, page.cursor
        since_ms = filters.active_since_ms
        if since_ms is not None and entries and entries[-1].active_ms < since_ms:
            entries, cursor = [entry for entry in entries if entry.active_ms >= since_ms], None
        rows += await _matching(memory, entries, filters, words)
        if len(rows) > limit:
            last = rows[limit - 1]
            return rows[:limit], cursor_after(SessionEntry(last["session_id"], last["active_ms"]))
        if cursor is None or len(rows) == limit:
            break
    return rows, cursor


async def _matching(
    memory: Memory, entries: Sequence[SessionEntry], filters: Filters, words: frozenset[str]
) -> list[dict[str, Any]]:
    part = filters.contains.casefold()
    entries = [entry for entry in entries if part in entry.session_id.casefold()]
    if filters.name:
        words_of_name = filters.name.casefold().split()
        described = await describe_entries(memory, entries, filters.owner)
        entries = [each for each in described if all(word in _name_of(each) for word in words_of_name)]
    rows: list[dict[str, Any]] = [{"session_id": each.session_id, "active_ms": each.active_ms} for each in entries]
    if filters.failing:
        failures = await failures_of(memory, entries)
        rows = [row | failure for row, failure in zip(rows, failures, strict=True) if failure["failing"]]
    if filters.text:
        hits = await asyncio.gather(*(_find(memory, row["session_id"], filters, words) for row in rows))
        rows = [row | {"match": hit} for row, hit in zip(rows, hits, strict=True) if hit is not None]
    return rows


def _name_of(entry: SessionEntry) -> str:
    return "\n".join((entry.session_id, entry.owner or "", entry.title or "")).casefold()


async def failures_of(
    memory: Memory, entries: Sequence[SessionEntry], owner: str | None = None
) -> list[dict[str, Any]]:
    """Return why each session's summary fails or its state cannot be read, and whether it is dead.

    With an owner, a session that belongs to another one by now has neither.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    return [_failure(info, owner) for info in await infos_of(memory.store, entries)]


def _failure(info: SessionInfo | str, owner: str | None) -> dict[str, Any]:
    if isinstance(info, str):
        return {"failing": None if info == "gone" or owner is not None else info, "dead": False}
    if owner not in (None, info.owner):
        return {"failing": None, "dead": False}
    is_dead = info.queued == "dead"
    return {"failing": info.failure or ("no reason recorded" if is_dead else None), "dead": is_dead}


async def _find(memory: Memory, session_id: str, filters: Filters, words: frozenset[str]) -> dict[str, Any] | None:
    """Return a preview of the newest message that contains all these words: of the window, else of the originals."""
    if not words:
        return None
    try:
        session = memory.session(session_id, owner=filters.owner)
        window = await session.messages(_WINDOW_COUNT)
        hit = await _newest_with(window, words)
        if hit is None:
            found = await search_by_words(memory.store, session_id, filters.text, _HITS_COUNT)
            await session.exists()  # it may have begun anew meanwhile, for another owner
            hit = await _newest_with(found, words)
    except (SessionNotFound, CorruptSession, UnsupportedFormat, OwnerMismatch):
        return None
    return hit


async def _newest_with(messages: Sequence[Message], words: frozenset[str]) -> dict[str, Any] | None:
    left_chars = _WINDOW_CHARS
    for message in reversed(messages):
        text = " ".join(searchable_texts(message))[:left_chars]
        left_chars -= len(text)
        if words.issubset(stems(text)):
            return preview(message, _excerpt(text, words))
        if left_chars <= 0:
            return None
        await asyncio.sleep(0)  # long texts take milliseconds
    return None


def _excerpt(text: str, words: frozenset[str]) -> str:
    """Return a part of the text that begins a little before the first of the words."""
    parts = text.split()
    at = next((at for at, part in enumerate(parts) if not words.isdisjoint(stems(part))), 0)
    begin = max(0, at - _WORDS_BEFORE)
    return ("… " if begin else "") + " ".join(parts[begin : at + 40])[:PREVIEW_CHARS]


def _stems_of(query: str) -> frozenset[str]:
    telling = (stem for stem in stems(query) if stem not in QUESTION_STEMS)
    return frozenset(islice(telling, _STEMS_COUNT))
