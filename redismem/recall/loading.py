"""Bring the index of a session up to date: signatures of new blocks first, then of older ones, newest first.

The index of a long session takes several searches. Each reads older blocks page by page for a bounded time, and the
search covers what the index has by then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from redismem.concurrency.offload import run_apart
from redismem.errors import UnsupportedFormat
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_parts
from redismem.originals.fields import sign_parts
from redismem.originals.signatures import Signature
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import pages
from redismem.protocol.session.pages import Signatures
from redismem.recall.cached import CachedSession, decode_or_none
from redismem.recall.segments import SEGMENT_BLOCKS
from redismem.recall.semantic import BLOCKS_LIMIT as VECTORS_LIMIT
from redismem.recall.semantic import Meaning
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store

_FIRST_SEGMENTS = 4
"""The number of segments that the first search in a session reads in one round trip, at least: 16,384 messages."""
_SIGNED_COUNT = 64
"""The number of blocks to sign again at once."""
_MANY_BLOCKS = 16
"""The number of signatures from which their decoding takes over a millisecond, and so runs in a thread."""


class IndexLoader:
    """Reads the signatures of one session into its cache entry."""

    def __init__(self, store: Store, keys: SessionKeys, max_bytes: int, meaning: Meaning | None) -> None:
        """Prepare to load. The index takes at most `max_bytes`; its oldest part is left out beyond that."""
        self._store = store
        self._keys = keys
        self._max_bytes = max_bytes
        self._meaning = meaning
        self._signed = Signatures("", 1, False, ())

    async def load(
        self,
        cached: CachedSession | None,
        signed: Signatures,
        numbers: Sequence[int],
        vector_numbers: Sequence[int],
        within_s: float,
    ) -> CachedSession:
        """Return the session's cache entry with all new blocks before the window. Replaces an outdated entry.

        Reads older blocks for `within_s`, at least one page of them. Raises StoreUnavailable, CorruptSession,
        UnsupportedFormat.
        """
        self._signed = signed
        until_s = time.monotonic() + within_s
        if cached is None or self._meaning is not None or cached.validator != (numbers, signed):
            cached = await self._add_newer(cached, numbers, vector_numbers)
            cached.validator = numbers, signed
        while cached.start > 0 and not cached.is_full and await self._add_older(cached):
            if time.monotonic() >= until_s:
                break
        return cached

    async def _add_newer(
        self, cached: CachedSession | None, numbers: Sequence[int], vector_numbers: Sequence[int]
    ) -> CachedSession:
        """Add the blocks that follow those in the entry. Without a current entry, begins a new one."""
        signed = self._signed
        stored = dict(zip(numbers, signed.signatures, strict=False))
        stop = block_number(signed.first_seq)
        is_current = cached is not None and cached.is_current(signed.epoch, signed.version, signed.zone, stored)
        start = max(0, stop // SEGMENT_BLOCKS - _FIRST_SEGMENTS + 1) * SEGMENT_BLOCKS
        if cached is None or not is_current or cached.stop < start:
            cached = CachedSession(signed.epoch, signed.version, start, signed.zone)
        new = range(cached.stop, block_number(signed.first_seq - 1) + 1)
        missing = [number for number in new if number not in stored]
        vectors = dict(zip(vector_numbers, signed.signatures[len(numbers) :], strict=False))
        without = [] if self._meaning is None else [number for number in new[-VECTORS_LIMIT:] if number not in vectors]
        if missing or without:
            more = await self._store.run(pages.read_signatures(self._keys, missing, without), quarantine=True)
            stored.update(zip(missing, more.signatures, strict=False))
            vectors.update(zip(without, more.signatures[len(missing) :], strict=False))
        while cached.stop < stop:
            full = range(cached.stop, min(stop, cached.stop + SEGMENT_BLOCKS))
            signatures = await self._decode(full, stored)
            add = partial(cached.add_signatures, signatures, stored, full.stop)
            await run_apart(self._store.transport, add, is_much=len(full) > _MANY_BLOCKS)
        growing = await self._decode(new[-1:], stored) if new.stop > stop else {}
        cached.grow(stop, stored.get(stop) if new.stop > stop else None, growing.get(stop))
        cached.limit_index(self._max_bytes)
        if self._meaning is not None:
            self._meaning.add_vectors(cached, vectors, new.stop)
        return cached

    async def _add_older(self, cached: CachedSession) -> bool:
        """Add the page before the first block of the entry. False if the session has changed meanwhile."""
        signed, start = self._signed, cached.start  # read once: another search may lower it in a thread
        if start == 0:
            return True
        page = range(max(0, start - SEGMENT_BLOCKS), start)
        more = await self._store.run(pages.read_signatures(self._keys, page), quarantine=True)
        if (more.epoch, more.version, more.has_originals) != (signed.epoch, signed.version, True):
            return False
        signatures = await self._decode(page, dict(zip(page, more.signatures, strict=True)))
        await run_apart(self._store.transport, partial(cached.add_older, signatures, page))
        cached.limit_index(self._max_bytes)
        return True

    async def _decode(self, numbers: Sequence[int], stored: Mapping[int, bytes | None]) -> dict[int, Signature]:
        """Decode the signatures of these blocks. Those that cannot be read are made anew from the messages."""
        decode = partial(_decode_all, numbers, stored)
        signatures = await run_apart(self._store.transport, decode, is_much=len(numbers) > _MANY_BLOCKS)
        unreadable = [number for number in numbers if number not in signatures and stored.get(number) is not None]
        for at in range(0, len(unreadable), _SIGNED_COUNT):
            signatures |= await self._sign_again(unreadable[at : at + _SIGNED_COUNT])
        return signatures

    async def _sign_again(self, numbers: Sequence[int]) -> dict[int, Signature]:
        """Return new signatures of blocks, made from their messages. Leaves out a block that cannot be read."""
        renewed: dict[int, bytes] = {}
        blocks = await self._store.run(pages.blocks(self._keys, numbers), quarantine=True)
        dictionaries = await load_dictionaries(self._store, (block.stored for block in blocks))
        for block in blocks:
            with suppress(Undecodable, UnsupportedFormat):  # the search quarantines or refuses such a block
                parts = decode_parts(*block, dictionaries)
                sign = partial(sign_parts, parts, self._signed.epoch, self._signed.zone)
                renewed |= await run_apart(self._store.transport, sign)
        return _decode_all(numbers, renewed)


def _decode_all(numbers: Iterable[int], stored: Mapping[int, bytes | None]) -> dict[int, Signature]:
    decoded = ((number, decode_or_none(stored.get(number))) for number in numbers)
    return {number: signature for number, signature in decoded if signature is not None}
