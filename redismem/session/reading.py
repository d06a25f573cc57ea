"""Read the messages of one conversation: its window, its newest messages, and its pages."""

from __future__ import annotations

import contextlib
from datetime import datetime
from functools import partial

from redismem.errors import SessionNotFound
from redismem.messages.message import Message
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.page_reads import PageRange
from redismem.recall.originals import Originals
from redismem.session.paging import PageReader, add_older, check, is_same_window, messages_in_order
from redismem.session.renewal import renew_aged
from redismem.store.pages import read_page
from redismem.store.store import Store


class Reader:
    """The part of a session that reads messages."""

    __slots__ = ("_calls", "_store")

    def __init__(self, store: Store, session_calls: SessionCalls) -> None:
        self._store = store
        self._calls = session_calls

    async def exists(self) -> bool:
        """Return True if the session exists."""
        return await self._store.run(self._calls.exists())

    async def tail(self, n: int, *, renew: bool = False) -> list[Message]:
        """Return the newest `n` messages as they are, in the order of their seqs. Fewer if there are no more.

        Pinned messages stand in their places, and a tool call may be separated from its results. Summarised messages
        are included as far as the session keeps them. All messages are from one moment. An unknown session has none.

        Args:
            n: The number of messages.
            renew: True counts as use, as in `read()`.

        Raises:
            ValueError: `n` is not an integer of 0 or more.
        """
        if type(n) is not int or n < 0:
            raise ValueError("n must be an integer, 0 or more")
        while n:
            for limit in (n, 2 * n + 1):  # gaps are elements, but no gap follows another
                context = await self._store.run(self._calls.read(limit, renew=renew))
                if renew:
                    renew_aged(self._store, self._calls)
                messages = messages_in_order(context)
                missing_count = n - sum(message.seq >= context.first_seq for message in messages)
                if missing_count <= 0 or not context.is_part:
                    break
            if context.degraded and not messages:
                # Refused if this process has never seen the session.
                await read_page(self._store.run, self._calls.keys, PageRange(n))
            if missing_count <= 0 or context.first_seq == 1 or context.degraded:
                return messages[-n:]
            reader = PageReader(self._calls, missing_count, context.first_seq, include_originals=True)
            with contextlib.suppress(SessionNotFound):  # cleared meanwhile
                await self._read_pages(reader)
            if is_same_window(context, await self._store.run(self._calls.read(0))):
                return add_older(messages, reader.messages())[-n:]
        return []

    async def messages(
        self, limit: int | None = None, before: int | datetime | None = None, include_originals: bool = False
    ) -> list[Message]:
        """Return the newest messages that no summary covers, oldest first. Pinned messages are included at their seqs.

        A message whose body has left the window (`Message.shortened`) is whole only with `include_originals`.

        Reads page by page, so messages that a worker summarises during the call may be missing.

        Args:
            limit: The number of messages. `None` means all.
            before: A seq, or a datetime with a time zone: leave out this message and all later ones.
            include_originals: True also returns summarised messages, if the session keeps them.

        Raises:
            SessionNotFound: The session does not exist.
            ValueError: `limit` is not an integer of 0 or more, or the datetime has no time zone.
            TypeError: `before` is neither a seq nor a datetime.
        """
        check(limit, before)
        reader = PageReader(self._calls, limit, before, include_originals)
        await self._read_pages(reader)
        if (call_for_pinned := reader.pinned_call()) is not None:
            reader.add_pinned(await self._store.run(call_for_pinned))
        return await self.with_bodies(reader.messages()) if include_originals else reader.messages()

    async def with_bodies(self, messages: list[Message]) -> list[Message]:
        """Return the messages with the whole ones in place of shortened ones. Raises StoreUnavailable."""
        if not any(message.shortened for message in messages):
            return messages
        from redismem.session.bodies import with_bodies

        return await with_bodies(partial(self._store.run, quarantine=True), self._calls, messages)

    async def _read_pages(self, reader: PageReader) -> None:
        originals = Originals(self._store, self._calls.keys)
        while (asked := reader.next_range()) is not None:
            page = await read_page(self._store.run, self._calls.keys, asked)
            reader.add_page(page, await originals.messages(page))
