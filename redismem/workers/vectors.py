"""Makes the vectors of messages that were kept, behind the commits: no summary waits for it, and none fails with it.

What could not be made is made with a later commit of its session, as long as it stands in the newest blocks. Those of
a long session go on into its vector set, if the server has such.
"""

from __future__ import annotations

import asyncio
import math
from time import monotonic

from redismem.errors import ProviderUnavailable
from redismem.events import Op, facts
from redismem.messages.decoding import decode_messages
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, block_number, decode_block, first_seq_of
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import searchable_texts
from redismem.originals.vectors import (
    SCALE_BYTES,
    Embeds,
    Vectors,
    decode_vectors,
    encode_vectors,
    field_bytes,
    model_of,
)
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.session import pages
from redismem.protocol.session import vectors as vector_calls
from redismem.protocol.session.pages import Block
from redismem.protocol.session.vectors import Beside
from redismem.recall.nearest import floats
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.workers.failures import log_failure

_SESSIONS_LIMIT = 10_000
"""Sessions that may wait; the rest wait for their next commit."""
_AT_ONCE = 8
_LOOKED_AT = 64
"""Blocks that are looked at for messages without vectors, the newest."""
_BLOCKS_LIMIT = 8
"""How many of these are worked on after one commit, at most."""
SET_COUNT = 64
"""A session of no more blocks has no vector set: all vectors come with the question's first round trip."""
_MOVABLE, _MOVED_LIMIT = 128, 16
"""Blocks whose vectors may yet go into a vector set, the newest; of these, so many after one commit."""
_REFUSED_S = 600.0
"""So long nothing is put into vector sets, once a server had none."""


class Embedding:
    """What one worker does for recall by meaning."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, None] = {}
        self._is_at_it = self._stopping = False
        self._sets_again_s = -math.inf

    def stop(self) -> None:
        """Begins with no further session: those that wait get theirs with their next commit."""
        self._stopping = True

    def note(self, session_id: str) -> None:
        """A commit has kept messages of this session."""
        if self._store.embedder is not None and len(self._waiting) < _SESSIONS_LIMIT:
            self._waiting[session_id] = None

    async def work_off(self) -> None:
        """Makes the vectors of all sessions that wait; what goes wrong is logged. They wait while it fails."""
        embedder = self._store.embedder
        if embedder is None or self._is_at_it:
            return
        self._is_at_it = True
        try:
            while self._waiting and not (embedder.is_paused or self._stopping):
                some = list(self._waiting)[:_AT_ONCE]
                await asyncio.gather(*(self._attend(embedder, session_id) for session_id in some))
        finally:
            self._is_at_it = False

    async def _attend(self, embedder: Embeds, session_id: str) -> None:
        self._waiting.pop(session_id, None)
        try:
            await self._store.told(Op.EMBEDDING, self._made(embedder, session_id), session_id)
        except ProviderUnavailable:  # it is paused, and has said so
            self._waiting.setdefault(session_id)
        except Exception as error:  # of one session: it has its words still
            session = session_hash(session_id)
            log_failure(f"session {session}: found by its words alone", error, facts(op="embedding", session=session))

    async def _made(self, embedder: Embeds, session_id: str) -> int:
        """How many blocks have vectors now that had not all of theirs before."""
        store, keys = self._store, self._store.keys.session(session_id)
        signed = await store.run(pages.signed(keys, [0]))
        last = block_number(signed.first_seq - 1)
        if not signed.kept or last < 0:
            return 0
        numbers = range(max(0, last + 1 - _LOOKED_AT), last + 1)
        lengths = await store.run(vector_calls.lengths(keys, numbers))
        is_long = last >= SET_COUNT
        in_set = await store.run(vector_calls.lengths(keys, numbers, vector_calls.IN_SET)) if is_long else {}
        count = looked_count = 0
        for number in reversed(numbers):
            size, stored_bytes = embedder.dimensions, lengths[number] or in_set.get(number, 0)
            is_whole = stored_bytes == field_bytes(size) if size else stored_bytes > 0
            if looked_count == _BLOCKS_LIMIT or (is_whole and number != last):
                continue  # the length of the last block's, which grows, tells nothing
            looked_count += 1
            beside = await store.run(vector_calls.beside(keys, number))
            if beside is not None:
                count += await self._completed(embedder, keys, beside, signed.epoch)
        if is_long:
            await self._put_into_set(embedder, keys, last)
        return count

    async def _put_into_set(self, embedder: Embeds, keys: SessionKeys, last: int) -> None:
        """Moves vectors of full blocks into the vector set, if the server has such: the newest that are not there."""
        numbers = range(max(0, last - _MOVABLE), last)
        lengths = await self._store.run(vector_calls.lengths(keys, numbers))
        for number in [number for number in reversed(numbers) if lengths[number]][:_MOVED_LIMIT]:
            if monotonic() >= self._sets_again_s:
                await self._move(embedder, keys, number)

    async def _move(self, embedder: Embeds, keys: SessionKeys, number: int) -> None:
        beside = await self._store.run(vector_calls.beside(keys, number))
        encoded = None if beside is None else beside.vectors
        made = _decoded(encoded, embedder.mark)
        if encoded is None or made is None or made.stop < BLOCK_COUNT:
            return
        seqs = enumerate(made.all_rows(), first_seq_of(number) + made.place)
        rows = [
            (vector_calls.element_of(embedder.mark, seq), floats(row)) for seq, row in seqs if any(row[SCALE_BYTES:])
        ]
        model = model_of(embedder.mark, made.dimensions)
        if await self._store.run(vector_calls.move_vectors(keys, number, encoded, model, rows)) < 0:
            self._sets_again_s = monotonic() + _REFUSED_S

    async def _completed(self, embedder: Embeds, keys: SessionKeys, beside: Beside, epoch: str) -> bool:
        """Whether vectors were made for messages of this block that had none."""
        block = beside.block
        known = await load_dictionaries(self._store, [block.stored])
        try:
            place, texts = await asyncio.to_thread(_texts_of, block, known, epoch)
        except Undecodable:
            return False  # who reads it puts it into quarantine
        stop = place + len(texts)
        made = _decoded(beside.vectors, embedder.mark)
        if made is not None and embedder.dimensions not in (0, made.dimensions):
            made = None
        if made is not None and (made.place, made.stop) == (place, stop):
            return False
        rows = {at: row for at in range(place, stop) if made is not None and (row := made.row(at)) is not None}
        lacking = [at for at, text in enumerate(texts, place) if text and at not in rows]
        dimensions = embedder.dimensions if made is None else made.dimensions
        if lacking:
            dimensions, new = await embedder.rows([texts[at - place] for at in lacking])
            if made is not None and dimensions != made.dimensions:
                return await self._completed(embedder, keys, Beside(block, None), epoch)
            rows |= dict(zip(lacking, new, strict=True))
        if not dimensions:
            return False
        encoded = encode_vectors(embedder.mark, dimensions, rows, place, stop)
        return await self._store.run(vector_calls.set_vectors(keys, block, encoded))


def _texts_of(block: Block, known: Dictionaries, epoch: str) -> tuple[int, list[str]]:
    """The place of a block's first message, and what each says. Raises Undecodable, UnsupportedFormat."""
    first_seq, elements = decode_block(*block, known)
    messages = decode_messages(elements, first_seq, epoch)
    texts = ["\n".join(searchable_texts(message)).strip() for message in messages]
    return first_seq - first_seq_of(block.number), texts


def _decoded(vectors: bytes | None, mark: bytes) -> Vectors | None:
    try:
        return None if vectors is None else decode_vectors(vectors, mark)
    except Undecodable:
        return None  # they are made anew
