"""Recall by meaning, beside the words: the vector of a question, and which messages' vectors lie nearest to it.

Of a session that is known, it runs beside the first round trip to Redis. What goes wrong with it costs nothing but
itself: then the words decide. Of a long session, the server compares those vectors that are in its vector set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from redismem.concurrency.offload import apart
from redismem.errors import CorruptSession, ModelFailed, NotAllowed, StoreUnavailable
from redismem.events import Op
from redismem.originals.vectors import SCALE_BYTES, Embeds, model_of
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import vectors
from redismem.recall.cache import CachedSession
from redismem.store.store import Store

BLOCKS_LIMIT = 256
"""Blocks whose vectors are searched, the newest: 4,096 messages."""
_LACKING_COUNT = 3
_MUCH_WORK = 500_000
"""A search of more products than that takes more than a millisecond, and is made in a thread."""


class Meaning:
    """What one question to one session means: its vector, and the messages whose vectors lie near it."""

    def __init__(self, store: Store, keys: SessionKeys, query: str, embedder: Embeds) -> None:
        self._store = store
        self._keys = keys
        self._query = query
        self._embedder = embedder
        self._begun: asyncio.Task[bytes | None] | None = None
        self._stop = 0

    def asked(self, hot: CachedSession | None, numbers: Sequence[int]) -> list[int]:
        """The blocks whose vectors to ask for together with the signatures of these."""
        if hot is None:
            return [*numbers]
        return [
            *hot.lacking(self._embedder.dimensions, _LACKING_COUNT, BLOCKS_LIMIT),
            *(number for number in numbers if number >= hot.stop),
        ]

    def begin(self, hot: CachedSession | None) -> None:
        """Has the vector of the question made meanwhile, if there are others to hold it to; `end` must follow."""
        is_wanted = hot is not None and (hot.vectors or hot.set_model)
        if is_wanted and not self._store.transport.blocks:
            self._begun = asyncio.create_task(self._row())

    def end(self) -> None:
        """Gives up the vector that `begin` has asked for, if it is not there yet."""
        if self._begun is not None:
            self._begun.cancel()

    async def best(self, hot: CachedSession, before_seq: int, limit: int) -> list[int]:
        """Seqs before this one whose messages mean what is nearest to the question, best first; none if it failed."""
        from redismem.recall.nearest import nearest, work_of

        if not (hot.vectors or hot.set_model):
            return []
        row = await (self._row() if self._begun is None else self._begun)
        if row is None:
            return []
        others = await self._in_set(hot, row, limit)
        blocks = hot.vectors
        search = partial(nearest, row, blocks, before_seq, limit, others)
        return await apart(self._store.transport, search, is_much=work_of(row, blocks) > _MUCH_WORK)

    def take(self, hot: CachedSession, stored: dict[int, bytes | None], stop: int, set_model: bytes | None) -> None:
        """What was read of them, of a session with so many blocks; and who made the vectors of its vector set."""
        self._stop = stop
        is_ours = set_model is not None and set_model.startswith(model_of(self._embedder.mark))
        hot.set_model = set_model if is_ours else None
        hot.take_vectors(stored, self._embedder.mark, stop - BLOCKS_LIMIT)

    async def _in_set(self, hot: CachedSession, row: bytes, limit: int) -> dict[int, float]:
        """What the server says of the vectors in the set; if it says nothing, they are read instead."""
        from redismem.recall.nearest import floats

        mark, vector = self._embedder.mark, floats(row)
        if hot.set_model != model_of(mark, len(row) - SCALE_BYTES):
            return {}
        try:
            found = await self._store.run(vectors.near(self._keys, mark, vector, limit))
        except (StoreUnavailable, NotAllowed, CorruptSession):
            found = {}  # no such command, or not for this user; where Redis is away, the next call says so
        if not found:
            newest = range(max(0, self._stop - BLOCKS_LIMIT), self._stop)
            missing = [number for number in newest if number not in hot.vectors]
            if missing:
                stored = await self._store.run(vectors.in_set(self._keys, missing), quarantine=True)
                hot.take_vectors(stored, mark, newest.start)
        return found

    async def _row(self) -> bytes | None:
        try:
            return await self._store.told(Op.EMBED, self._embedder.question(self._query), self._keys.session_id)
        except ModelFailed:
            return None  # it is told of, and logged when it begins
