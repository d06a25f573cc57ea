"""The list of conversations: pages, search by id, and a preview of each conversation's newest message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from redismem.errors import CorruptSession, SessionNotFound, UnsupportedFormat
from redismem.info import SessionEntry
from redismem.memory import Memory
from redismem.messages.message import Message
from redismem.store.sessions import cursor_after, cursor_key, entry_key, keep_listed
from redismem.text.plain import pieces

Page = tuple[Sequence[SessionEntry], str | None]
"""Sessions, and the cursor of the sessions after them."""

_FEW_SHARDS = 128
"""Up to this number of shards, each page is read from Redis."""
_COPY_S = 1.0
_COPIES_COUNT = 8
_PAGE_COUNT = 1_000
_PAGES_COUNT = 5
_SEARCH_COMMANDS_COUNT = 10_000
_PREVIEW_CHARS = 160
_NEWEST_COUNT = 4
_PIECES_COUNT = 20
_PREVIEWS_TOGETHER = 50
_PREVIEW_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """Sessions that were read at once, in their order."""

    start: str | None
    entries: Sequence[SessionEntry]
    cursor: str | None

    def after(self, cursor: str | None) -> Sequence[SessionEntry] | None:
        """Return the sessions after the cursor; `None` if the copy has no session there."""
        if cursor == self.start:
            return self.entries
        if cursor is None or (self.start is not None and cursor_key(cursor) > cursor_key(self.start)):
            return None
        last = cursor_key(cursor)
        return [entry for entry in self.entries if entry_key(entry) < last] or None


class Listing:
    """The list of a memory's live sessions, most recently active first.

    A page asks every shard. With many shards that costs more than the page, so pages come from copies that are read at
    once, one at a time, and are forgotten after a second: however many clients list, Redis is asked at most that often.
    A session that has ended meanwhile is left out; a new one may be a second late.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._copies: list[_Copy] = []
        self._reading = asyncio.Lock()

    async def page(self, limit: int, cursor: str | None) -> Page:
        """Return the next sessions.

        Raises:
            ValueError: The cursor is malformed.
            StoreUnavailable: Redis does not answer.
        """
        entries, cursor = await self._read(limit, cursor)
        return await self._keep_listed(entries), cursor

    async def search(self, contains: str, limit: int, cursor: str | None) -> Page:
        """Return those of the next sessions whose id contains this text, in any case.

        A search looks at a bounded number of sessions, so a page may be short or empty; the cursor continues it.

        Raises:
            ValueError: The cursor is malformed.
            StoreUnavailable: Redis does not answer.
        """
        part, matches = contains.casefold(), list[SessionEntry]()
        pages_count = min(_PAGES_COUNT, _SEARCH_COMMANDS_COUNT // (2 * self._memory.settings.shards))
        for _ in range(max(1, pages_count)):
            entries, cursor = await self._read(_PAGE_COUNT, cursor)
            matches += [entry for entry in entries if part in entry.session_id.casefold()]
            if cursor is None or len(matches) >= limit:
                break
        if len(matches) > limit:
            matches, cursor = matches[:limit], cursor_after(matches[limit - 1])
        return await self._keep_listed(matches), cursor

    @property
    def _has_copies(self) -> bool:
        return self._memory.settings.shards > _FEW_SHARDS

    async def _keep_listed(self, entries: Sequence[SessionEntry]) -> Sequence[SessionEntry]:
        return await keep_listed(self._memory.store, entries) if self._has_copies else entries

    async def _read(self, limit: int, cursor: str | None) -> Page:
        """Return the next sessions; one from a copy may have ended. Raises the errors of `page`."""
        if not self._has_copies:
            page = await self._memory.sessions(limit, cursor)
            return page.sessions, page.cursor
        entries: list[SessionEntry] = []
        while True:
            copy, rest = await self._copy_after(cursor)
            wanted = limit - len(entries)
            entries += rest[:wanted]
            cursor = copy.cursor if len(rest) <= wanted else cursor_after(entries[-1])
            if cursor is None or len(entries) >= limit:
                return entries, cursor

    async def _copy_after(self, cursor: str | None) -> tuple[_Copy, Sequence[SessionEntry]]:
        """Return a copy with the sessions after the cursor, and these sessions. Raises the errors of `page`."""
        async with self._reading:
            for copy in self._copies:
                if (rest := copy.after(cursor)) is not None:
                    return copy, rest
            page = await self._memory.sessions(_PAGE_COUNT, cursor)
            copy = _Copy(cursor, page.sessions, page.cursor)
            self._copies = [*self._copies[1 - _COPIES_COUNT :], copy]
            asyncio.get_running_loop().call_later(_COPY_S, self._forget, copy)
            return copy, copy.entries

    def _forget(self, copy: _Copy) -> None:
        self._copies = [each for each in self._copies if each is not copy]


async def newest_of(memory: Memory, session_ids: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return a preview of each session's newest message, by a user if the last few messages have one.

    `None` means that there is none, or that the messages read for the sessions before were too large.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    previews: list[dict[str, Any] | None] = []
    tokens = 0
    for at in range(0, len(session_ids), _PREVIEWS_TOGETHER):
        if tokens > _PREVIEW_TOKENS:
            break
        part = session_ids[at : at + _PREVIEWS_TOGETHER]
        for preview, read_tokens in await asyncio.gather(*(_newest(memory, session_id) for session_id in part)):
            previews.append(preview)
            tokens += read_tokens
    return previews + [None] * (len(session_ids) - len(previews))


async def _newest(memory: Memory, session_id: str) -> tuple[dict[str, Any] | None, int]:
    """Return a preview, and the tokens of the messages read for it."""
    try:
        messages = await memory.session(session_id).messages(_NEWEST_COUNT)
    except (SessionNotFound, CorruptSession, UnsupportedFormat):
        return None, 0
    if not messages:
        return None, 0
    # What a user said tells conversations apart; answers often begin alike, and a tool's result is no user's words.
    texts = [(message, *_text_of(message)) for message in reversed(messages)]
    shown = [each for each in texts if each[2]] or texts
    message, _, text = next((each for each in shown if each[0].role == "user" and each[1]), shown[0])
    role = message.role
    preview = {"seq": message.seq, "role": role if isinstance(role, str) else "", "text": text}
    return preview, sum(each.tokens for each in messages)


def _text_of(message: Message) -> tuple[bool, str]:
    """Return whether somebody said it, as opposed to a tool, and its text, whatever the form of the message."""
    found = list(islice(pieces(message, 4 * _PREVIEW_CHARS), _PIECES_COUNT))
    text = " ".join(" ".join(text for _, text in found).split())[:_PREVIEW_CHARS]
    return any(kind in ("text", "part") for kind, _ in found), text
