"""Read and extend the originals of a session, and quarantine unreadable blocks.

A block whose dictionary is missing stays where it is, since the dictionary may come back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from redismem.concurrency.offload import LARGE_BYTES, run_apart
from redismem.context.context import Context
from redismem.errors import StoreUnavailable
from redismem.events import facts
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.originals.dictionaries import Dictionary, DictionaryMissing
from redismem.protocol import layout
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.namespace.traces import owner_fields
from redismem.protocol.quarantine import set_block_aside
from redismem.protocol.session import pages
from redismem.protocol.session.edits import BlockChange, View
from redismem.protocol.session.leaving import Begun, blocks_to_extend, encode_leaving
from redismem.protocol.session.pages import Block, MessagePage
from redismem.protocol.session.replacing import Replacement, encode_block_change
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

log = logging.getLogger("redismem")


class Originals:
    """The originals of one session: its summarised messages in compressed blocks."""

    __slots__ = ("_keys", "_store")

    def __init__(self, store: Store, keys: SessionKeys) -> None:
        self._store = store
        self._keys = keys

    async def messages(self, page: MessagePage | None) -> list[Message]:
        """Return the readable messages of a page. Unreadable blocks are left out, stay as they are, and are logged.

        Raises CorruptSession, UnsupportedFormat, StoreUnavailable.
        """
        if page is None:
            return []
        page.dictionaries = await load_dictionaries(self._store, (block.stored for block in page.blocks))
        is_large = page.unpacked_bytes > LARGE_BYTES
        messages = await run_apart(self._store.transport, page.messages, is_much=is_large)
        self.note(page.unreadable)
        return messages

    async def block(self, seq: int) -> Block | None:
        """Return the block that contains a seq, or `None` if there is no such block. Raise StoreUnavailable."""
        return await self._store.run(pages.block(self._keys, block_number(seq)), quarantine=True)

    async def prepare_change(self, view: View, old: Message, changed: Replacement) -> BlockChange | None:
        """Return the change of the block of originals that contains this message. Raise StoreUnavailable."""
        if old.seq >= view.context.first_seq or layout.WITH_ORIGINALS not in view.fields:
            return None
        block = await self.block(old.seq)
        if block is None:
            return None
        dictionaries = await load_dictionaries(self._store, [block.stored])
        return await run_apart(
            self._store.transport, partial(encode_block_change, view, old, changed, block, dictionaries)
        )

    async def encode_leaving(
        self,
        context: Context,
        elements: Sequence[bytes],
        messages: Sequence[Message],
        with_originals: bool,
        dictionary: Dictionary | None = None,
    ) -> dict[bytes, bytes]:
        """Encode `messages`, the first of a window, as the fields of the originals to set when they leave it.

        If the last block is partly filled, reads it and returns it extended. Four blocks that are full thereby are
        merged into one, see `merged_number`. The script that moves the messages refuses a session that has changed
        since it was read, so no other process can have extended the block.

        Raises StoreUnavailable.
        """
        numbers = blocks_to_extend(context, elements, messages) if with_originals else range(0)
        begun = Begun()
        if numbers:
            blocks, signatures = await self._store.run(pages.read_for_merge(self._keys, numbers), quarantine=True)
            begun = Begun(blocks, signatures, await load_dictionaries(self._store, [each.stored for each in blocks]))
        encode = partial(encode_leaving, context, elements, messages, dictionary=dictionary)
        try:
            return await run_apart(self._store.transport, partial(encode, begun))
        except Undecodable:
            if not begun.blocks:
                raise
            await self.quarantine(begun.blocks[-1:], in_the_way=True)
            return await run_apart(self._store.transport, partial(encode, Begun()))

    def note(self, unreadable: Iterable[Block]) -> None:
        """Log each block that a read has left out, once per process. A read moves none into quarantine."""
        session, namespace = session_hash(self._keys.session_id), self._store.keys.namespace
        for block in unreadable:
            reason = pages.explain_unreadable(block, self._store.dictionaries)
            if isinstance(reason, DictionaryMissing):
                self._log_missing_dictionary(str(reason))
            elif (place := f"{session} {block.number} {hash(block.stored)}") not in self._store.passed_over:
                self._store.passed_over.add(place)
                error = type(reason).__name__
                extra = facts(op="read", session=session, namespace=namespace, error=error)
                text = "session %s: a block of originals is unreadable (%s): reads leave it out"
                log.error(f"{text}, see `redismem doctor --deep`", session, error, extra=extra)

    async def quarantine(self, unreadable: Iterable[Block], *, in_the_way: bool = False) -> None:
        """Move unreadable blocks into quarantine, and log each one.

        A block whose dictionary is missing stays, since the dictionary may come back. So does one that Redis cannot
        move, as its memory is full: reads go on without it. With `in_the_way` both go into quarantine or raise, because
        the caller is about to overwrite the block.

        Raises StoreUnavailable, CorruptSession, UnsupportedFormat.
        """
        session = session_hash(self._keys.session_id)
        for block in unreadable:
            reason = pages.explain_unreadable(block, self._store.dictionaries)
            error = type(reason).__name__
            if isinstance(reason, DictionaryMissing) and not in_the_way:
                self._log_missing_dictionary(str(reason))
                continue
            extra = facts(op="quarantine", session=session, namespace=self._store.keys.namespace, error=error)
            try:
                is_moved = await self._move(block)
            except StoreUnavailable as refused:
                if in_the_way:
                    raise
                text = "session %s: a block of originals is unreadable (%s) and could not be moved to quarantine: %s"
                log.error(text, session, error, refused.text, extra=extra)
                continue
            if is_moved:
                text = "session %s: a block of originals is unreadable (%s) and was moved to quarantine"
                log.error(text, session, error, extra=extra)

    async def _move(self, block: Block) -> bool:
        """Move a block into quarantine. False means that it has changed, or is gone."""
        (field,) = await self._store.run(owner_fields([self._keys.state]))
        time_ms, kept_ms = await self._store.server_time_ms(), self._store.settings.idle_timeout_ms
        beside = [f"s{block.number}", *(f"v{number}" for number in block.numbers)]
        call = set_block_aside(self._keys, time_ms, (block.number, block.stored), beside, field, kept_ms)
        return await self._store.run(call)

    def _log_missing_dictionary(self, reason: str) -> None:
        """Log a missing dictionary once per process, since many reads fail for the same reason."""
        if reason in self._store.passed_over:
            return
        self._store.passed_over.add(reason)
        extra = facts(op="read", namespace=self._store.keys.namespace, error=DictionaryMissing.__name__)
        text = "namespace %s: %s; blocks that need it are skipped until it is back"
        log.error(text, extra["namespace"], reason, extra=extra)
