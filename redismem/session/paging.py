"""Read part of a session: narrow a context to its newest messages, or read a long session page by page. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from redismem.context.context import Context
from redismem.errors import InvalidSessionId, SessionNotFound
from redismem.formats.tool_groups import begins_inside, cut_after, cut_before, links, newest_within
from redismem.messages.decoding import is_gap
from redismem.messages.message import Message
from redismem.protocol.call import Call
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.page_reads import PageRange
from redismem.protocol.session.pages import MessagePage, Window

Scope = Literal["session", "owner"]
"""The messages that recall searches: those of the session, or of all sessions of its owner."""

PAGE_COUNT = 500
_EMPTY_PAGE_COUNT = 8000
"""Seqs of a page that follows a page without a message: a gap may stand for very many seqs."""


def check_count(name: str, value: int | None) -> None:
    """Raise ValueError unless the value is None or an integer of 0 or more."""
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} must be an integer, 0 or more")


def check(limit: int | None, before: int | datetime | None = None, max_tokens: int | None = None) -> None:
    """Raise ValueError for an invalid count or a datetime without a time zone, TypeError for any other `before`."""
    check_count("limit", limit)
    check_count("max_tokens", max_tokens)
    if isinstance(before, datetime):
        if before.tzinfo is None:
            raise ValueError("before must be a datetime with a time zone")
    elif before is not None and type(before) is not int:
        raise TypeError(f"before must be a seq or a datetime, not {type(before).__name__}")


def check_scope(scope: Scope, owner: str | None, session_id: str, *, has_budget: bool = True) -> None:
    """Raise ValueError for an unknown scope, or one without a budget, InvalidSessionId for a missing owner."""
    if scope not in ("session", "owner"):
        raise ValueError("the scope of recall is 'session' or 'owner'")
    if not has_budget:
        raise ValueError("recall_scope needs recall, a token budget")
    if scope == "owner" and owner is None:
        raise InvalidSessionId(
            "recall over all sessions of an owner needs the owner: memory.session(id, owner=…)", session_id
        )


def is_before(message: Message, before: int | datetime) -> bool:
    """True if the message comes before this seq or time. For a message without a timestamp, its append time counts."""
    if isinstance(before, datetime):
        return message.time_ms < before.timestamp() * 1000
    return message.seq < before


def narrow(context: Context, limit: int | None, before: int | datetime | None, max_tokens: int | None) -> Context:
    """Reduce the context to the newest `limit` messages before `before` that fit `max_tokens`, and return it.

    Summaries and pinned messages always stay, and count toward `max_tokens`. Modifies the context in place.
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


def needs_whole_window(context: Context) -> bool:
    """True if a partial context lacks messages that belong to it.

    Older messages may contain the calls of its results, the beginning of its first group, or pinned messages.
    """
    return context.is_part and (
        context.is_mixed or begins_inside(context.messages) or any(call < 0 for call, _ in links(context.messages))
    )


def messages_in_order(context: Context) -> list[Message]:
    """Return pinned and other messages of a context in the order of their seqs."""
    return sorted((*context.pinned, *context.messages), key=lambda message: message.seq)


def is_same_window(before: Context, after: Context) -> bool:
    """Return True if messages were at most appended between two reads."""
    parts = [(read.epoch, read.first_seq, read.window_version) for read in (before, after)]
    return parts[0] == parts[1]


def add_older(messages: list[Message], older: list[Message]) -> list[Message]:
    """Add originals to the messages of a context, and return all in the order of their seqs.

    A pinned message that has left the window may be in both, and may have been replaced or unpinned since it left.
    """
    both = {message.seq: message for message in (*older, *messages)}
    return [both[seq] for seq in sorted(both)]


class PageReader:
    """Read the newest `limit` messages before a seq or time, page by page, newest page first.

    If the session is cleared meanwhile, the result is the pages that were read before the clear.
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
        self._page_count = 0
        self._window: Window | None = None
        self._is_finished = False

    def next_range(self) -> PageRange | None:
        """Return the range of the next page; `None` if there are no more pages."""
        if self._is_finished:
            return None
        self._page_count = PAGE_COUNT
        if self._limit is not None and not isinstance(self._before, datetime):
            self._page_count = min(PAGE_COUNT, self._limit - self._count)
        if self._pages and not self._pages[-1]:
            self._page_count = _EMPTY_PAGE_COUNT
        return PageRange(self._page_count, self._next_seq, self._include_originals, self._window)

    def add_page(self, page: MessagePage | None, messages: list[Message]) -> None:
        """Add a page and its readable messages. Raise SessionNotFound if the first page is missing."""
        if page is None and self._epoch is None:
            raise SessionNotFound("there is no such session", self._calls.keys.session_id)
        epoch = "" if page is None else page.epoch
        if page is None or (self._epoch is not None and epoch != self._epoch):
            self._is_finished = True
            self._epoch = epoch
            return
        self._epoch = epoch
        self._next_seq, self._window = page.start_seq, page.window
        selected = self._select(messages)
        if page.count:
            self._pages.append(selected)
        self._count += len(selected)
        is_last = page.start_seq <= 1 or page.count < self._page_count
        self._is_finished = is_last or (self._limit is not None and self._count >= self._limit)

    def _select(self, messages: list[Message]) -> list[Message]:
        before = self._before
        return [
            message for message in messages if not is_gap(message) and (before is None or is_before(message, before))
        ]

    def pinned_call(self) -> Call[list[Message]] | None:
        """Return a call that reads pinned messages that have left the window; `None` if the result cannot contain any.

        Even a read of all originals needs this call: originals lack pruned and quarantined messages, which may be
        pinned.
        """
        is_full = self._limit is not None and self._count >= self._limit
        is_whole = self._next_seq == 1 and not self._include_originals
        return None if is_full or is_whole else self._calls.pinned()

    def add_pinned(self, messages: list[Message]) -> None:
        """Insert the pinned messages that no page has returned, in the order of their seqs."""
        read = [message for page in self._pages for message in page]
        seqs = {message.seq for message in read}
        missing = [
            message for message in self._select(messages) if message.seq not in seqs and message.epoch == self._epoch
        ]
        self._pages = [sorted(missing + read, key=lambda message: message.seq)]

    def messages(self) -> list[Message]:
        """Return the newest `limit` messages, oldest first."""
        messages = [message for page in reversed(self._pages) for message in page]
        return messages if self._limit is None else messages[max(0, len(messages) - self._limit) :]
