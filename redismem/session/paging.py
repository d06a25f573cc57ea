"""Parts of a conversation: what `limit`, `before` and `max_tokens` leave of it, and how a long one is paged. No I/O."""

from __future__ import annotations

from datetime import datetime

from redismem.context import Context
from redismem.errors import SessionNotFound
from redismem.formats.tool_groups import cut_after, cut_before, links, newest_within
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.protocol.call import Call
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.pages import Page

PAGE_COUNT = 500


def check_count(name: str, value: int | None) -> None:
    """Raises ValueError for what is no count."""
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} is an integer, 0 or more")


def check(limit: int | None, before: int | datetime | None = None, max_tokens: int | None = None) -> None:
    """Raises ValueError or TypeError for what is no count, seq or aware datetime."""
    check_count("limit", limit)
    check_count("max_tokens", max_tokens)
    if isinstance(before, datetime):
        if before.tzinfo is None:
            raise ValueError("before needs a time zone, this datetime has none")
    elif before is not None and type(before) is not int:
        raise TypeError(f"before is a seq or a datetime, not a {type(before).__name__}")


def is_before(message: Message, before: int | datetime) -> bool:
    """Whether a message comes before a seq, or a moment: by its own timestamp, else by when Redis took it."""
    if isinstance(before, datetime):
        return message.time_ms < before.timestamp() * 1000
    return message.seq < before


def narrowed(context: Context, limit: int | None, before: int | datetime | None, max_tokens: int | None) -> Context:
    """The context with fewer messages: of those before `before` the newest `limit` that fit `max_tokens`.

    Summaries and pinned messages count toward `max_tokens` and always stay. Changes and returns the context.
    """
    if limit is before is max_tokens is None:
        return context
    messages = whole = context.messages
    if before is not None:
        stop = next((at for at, message in enumerate(messages) if not is_before(message, before)), len(messages))
        messages = messages[: cut_before(messages, stop)]
    start = 0 if limit is None else max(0, len(messages) - limit)
    if max_tokens is not None:
        left = max_tokens - sum(summary.tokens for summary in context.summaries)
        left -= sum(message.tokens for message in context.pinned)
        start = max(start, newest_within(messages, left))
    if start or context.is_part:
        messages = messages[cut_after(messages, start, keeps_orphans=not context.is_part) :]
    context.messages = messages
    context.is_part = context.is_part or len(messages) < len(whole)
    return context


def lacks_others(context: Context) -> bool:
    """Whether a context with only the newest messages needs the others: calls of its results, or pinned ones."""
    return context.is_part and (context.is_mixed or any(call < 0 for call, _ in links(context.messages)))


class Reading:
    """Reads the newest `limit` messages before a seq or moment, a page at a time, newest page first.

    If the session is cleared meanwhile, what was read of it before is given.
    """

    def __init__(
        self, calls: SessionCalls, limit: int | None, before: int | datetime | None, include_originals: bool
    ) -> None:
        self._calls = calls
        self._limit = limit
        self._before = before
        self._include_originals = include_originals
        self._next_seq = before if isinstance(before, int) else None
        self._epoch: str | None = None
        self._pages: list[list[Message]] = []
        self._count = 0
        self._asked = 0
        self._finished = False

    def next(self) -> Call[Page | None] | None:
        """The call for the next page; None if all is read."""
        if self._finished:
            return None
        self._asked = PAGE_COUNT
        if self._limit is not None and not isinstance(self._before, datetime):
            self._asked = min(PAGE_COUNT, self._limit - self._count)
        return self._calls.page(self._asked, self._next_seq, self._include_originals)

    def take(self, page: Page | None, messages: list[Message]) -> None:
        """The page, and what could be read of it. Raises SessionNotFound if there never was a page."""
        if page is None and self._epoch is None:
            raise SessionNotFound("there is no such session", self._calls.keys.session_id)
        epoch = "" if page is None else page.epoch
        if page is None or (self._epoch is not None and epoch != self._epoch):
            self._finished = True
            self._epoch = epoch
            return
        self._epoch = epoch
        self._next_seq = page.start_seq
        kept = self._wanted(messages)
        self._pages.append(kept)
        self._count += len(kept)
        self._finished = page.count < self._asked or (self._limit is not None and self._count >= self._limit)

    def _wanted(self, messages: list[Message]) -> list[Message]:
        before = self._before
        return [each for each in messages if not is_gap(each) and (before is None or is_before(each, before))]

    def pinned(self) -> Call[list[Message]] | None:
        """The call for pinned messages that have left the window; None if what was read begins behind none.

        Originals begin with the first message, and may lack what was pruned or lies in quarantine: not what is pinned.
        """
        is_full = self._limit is not None and self._count >= self._limit
        is_whole = self._next_seq == 1 and not self._include_originals
        return None if is_full or is_whole else self._calls.pinned()

    def take_pinned(self, messages: list[Message]) -> None:
        """Puts these pinned messages in their places among the others."""
        known = {message.seq for page in self._pages for message in page}
        more = [each for each in self._wanted(messages) if each.seq not in known and each.epoch == self._epoch]
        self._pages = [
            sorted((message for page in (more, *self._pages) for message in page), key=lambda each: each.seq)
        ]

    def messages(self) -> list[Message]:
        """What was read, oldest first."""
        found = [message for page in reversed(self._pages) for message in page]
        return found if self._limit is None else found[max(0, len(found) - self._limit) :]
