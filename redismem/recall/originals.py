"""The kept originals of a session: a block that cannot be read goes into quarantine, or waits for its dictionary."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, apart
from redismem.events import facts
from redismem.messages.message import Message
from redismem.originals.blocks import block_number
from redismem.originals.dictionaries import DictionaryMissing
from redismem.protocol import layout
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import pages
from redismem.protocol.session.edits import NOT_KEPT, Changed, KeptChange, View, kept_change
from redismem.protocol.session.pages import Block, Page
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

log = logging.getLogger("redismem")


class Originals:
    """The originals of one session: the summarised messages that are kept, in compressed blocks."""

    __slots__ = ("_keys", "_store")

    def __init__(self, store: Store, keys: SessionKeys) -> None:
        self._store = store
        self._keys = keys

    async def messages(self, page: Page | None) -> list[Message]:
        """The messages of a page. What of its blocks cannot be read is missing: see `quarantine`.

        Raises CorruptSession, UnsupportedFormat, StoreUnavailable.
        """
        if page is None:
            return []
        page.dictionaries = await load_dictionaries(self._store, (block.stored for block in page.blocks))
        is_large = page.unpacked_bytes > LARGE_BYTES
        found = await apart(self._store.transport, page.messages, is_much=is_large)
        await self.quarantine(page.unreadable)
        return found

    async def block(self, seq: int) -> Block | None:
        """The block that a seq belongs to, if it is kept. Raises StoreUnavailable."""
        return await self._store.run(pages.block(self._keys, block_number(seq)), quarantine=True)

    async def prepare_change(self, view: View, old: Message, changed: Changed) -> KeptChange:
        """How this change of a message reads among the originals, if it is there. Raises StoreUnavailable."""
        if old.seq >= view.context.first_seq or layout.WITH_ORIGINALS not in view.fields:
            return NOT_KEPT
        block = await self.block(old.seq)
        if block is None:
            return NOT_KEPT
        known = await load_dictionaries(self._store, [block.stored])
        return await apart(self._store.transport, partial(kept_change, view, old, changed, block, known))

    async def quarantine(self, unreadable: Iterable[Block], *, in_the_way: bool = False) -> None:
        """Puts these blocks into quarantine, and says so; those that lack their dictionary stay, as it may come back.

        `in_the_way`: those too, as others are written in their place. Raises StoreUnavailable.
        """
        settings, session = self._store.settings, session_hash(self._keys.session_id)
        for each in unreadable:
            why = pages.why_unreadable(each, self._store.dictionaries)
            error = type(why).__name__
            if isinstance(why, DictionaryMissing) and not in_the_way:
                self._pass_over(str(why))
                continue
            time_ms = await self._store.server_time_ms()
            if await self._store.run(pages.quarantine_block(self._keys, each, time_ms, settings.idle_timeout_ms)):
                known = facts(op="quarantine", session=session, namespace=self._store.keys.namespace, error=error)
                text = "session %s: a block of originals cannot be read (%s), and is in quarantine"
                log.error(text, session, error, extra=known)

    def _pass_over(self, why: str) -> None:
        """Said once by a process: each reading of each session meets them anew."""
        if why in self._store.passed_over:
            return
        self._store.passed_over.add(why)
        known = facts(op="read", namespace=self._store.keys.namespace, error=DictionaryMissing.__name__)
        text = "namespace %s: %s; blocks that need it are passed over until it is there"
        log.error(text, known["namespace"], why, extra=known)
