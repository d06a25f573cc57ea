"""Search by meaning: embed the query and rank messages by the similarity of their vectors.

If the session is cached, the query is embedded during the first round trip to Redis. If the embedding fails, only the
search by words counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from redismem.concurrency.offload import run_apart
from redismem.errors import ModelFailed
from redismem.events import Op
from redismem.originals.vectors import Embeds
from redismem.protocol.keys import SessionKeys
from redismem.recall.cached import CachedSession
from redismem.store.store import Store

BLOCKS_LIMIT = 256
"""The number of newest blocks whose vectors are searched: 4,096 messages."""
_RETRIED_COUNT = 3
_MANY_PRODUCTS = 500_000
"""The number of multiplications from which a search takes over a millisecond, and so runs in a thread."""


class Meaning:
    """The search by meaning, for one query in one session."""

    def __init__(self, store: Store, keys: SessionKeys, query: str, embedder: Embeds) -> None:
        self._store = store
        self._keys = keys
        self._query = query
        self._embedder = embedder
        self._embedding: asyncio.Task[bytes | None] | None = None

    def blocks_to_read(self, cached: CachedSession | None, numbers: Sequence[int]) -> list[int]:
        """Return the blocks whose vectors to read. The same round trip reads the signatures of the blocks `numbers`."""
        if cached is None:
            return [*numbers]
        return [
            *cached.blocks_without_vectors(self._embedder.dimensions, _RETRIED_COUNT, BLOCKS_LIMIT),
            *(number for number in numbers if number >= cached.stop),
        ]

    def begin(self, cached: CachedSession | None) -> None:
        """Start to embed the query if the cached session has vectors. The caller must call `end` afterwards."""
        if cached is not None and cached.vectors and not self._store.transport.blocks:
            self._embedding = asyncio.create_task(self._embed_query())

    def end(self) -> None:
        """Cancel the embedding of the query if it is still running."""
        if self._embedding is not None:
            self._embedding.cancel()

    async def scores(self, cached: CachedSession, before_seq: int, limit: int) -> dict[int, float]:
        """Return the similarities of the most similar messages, by seq.

        Empty if the embedding failed, or if the embedder knows nothing of the words of this session: its vectors would
        only displace what the words find.
        """
        from redismem.recall.nearest import estimate_products, find_nearest

        if not cached.vectors or not cached.trusts_vectors():
            return {}
        row = await (self._embed_query() if self._embedding is None else self._embedding)
        if row is None:
            return {}
        blocks = cached.vectors
        search = partial(find_nearest, row, blocks, before_seq, limit)
        is_much = estimate_products(row, blocks) > _MANY_PRODUCTS
        return await run_apart(self._store.transport, search, is_much=is_much)

    def add_vectors(self, cached: CachedSession, stored: dict[int, bytes | None], stop: int) -> None:
        """Cache the stored vectors of a session with `stop` blocks."""
        cached.add_vectors(stored, self._embedder.mark, stop - BLOCKS_LIMIT)

    async def _embed_query(self) -> bytes | None:
        try:
            return await self._store.observe(Op.EMBED, self._embedder.question(self._query), self._keys.session_id)
        except ModelFailed:
            return None  # the store has emitted the event, and the embedder logs when its pause begins
