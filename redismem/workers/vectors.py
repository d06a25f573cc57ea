"""Embed kept messages after the commit of a summary, which neither waits for the embedder nor fails with it.

A session with many new blocks takes turns with other sessions. If a message could not be embedded, a later commit of
its session retries it, as long as the message is in the newest blocks.
"""

from __future__ import annotations

import asyncio
import logging

from redismem.errors import ProviderUnavailable
from redismem.events import Op, facts
from redismem.messages.decoding import decode_messages
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_parts, first_seq_of
from redismem.originals.dictionaries import Dictionaries
from redismem.originals.fields import searchable_texts
from redismem.originals.vectors import (
    Embeds,
    Vectors,
    decode_vectors,
    encode_vectors,
    field_bytes,
)
from redismem.protocol.ids import session_hash
from redismem.protocol.keys import SessionKeys
from redismem.protocol.namespace import calls as namespace_calls
from redismem.protocol.namespace.calls import Embedding
from redismem.protocol.session import pages
from redismem.protocol.session import vectors as vector_calls
from redismem.protocol.session.vectors import BlockVectors
from redismem.recall.originals import Originals
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.workers.failures import log_failure

log = logging.getLogger("redismem.worker")

_SESSIONS_LIMIT = 10_000
"""The number of sessions that may wait. Further sessions are embedded after their next commit."""
_CONCURRENCY = 8
_SCANNED_LIMIT = 256
"""The number of newest blocks that are scanned for messages without vectors: those that recall searches."""
_BLOCKS_LIMIT = 8
"""The number of blocks to embed of one session before the other waiting sessions get their turn."""


class VectorWriter:
    """Embed the kept messages of one worker's commits, for semantic recall."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, None] = {}
        self._is_running = self._stopping = False
        self._recorded_dimensions, self._is_refused = 0, False
        self._refused_for: Embedding | None = None

    def stop(self) -> None:
        """Start no further session. Waiting sessions are embedded after their next commit."""
        self._stopping = True

    def note(self, session_id: str) -> None:
        """Queue a session whose messages a commit has kept."""
        if self._store.embedder is not None and len(self._waiting) < _SESSIONS_LIMIT:
            self._waiting[session_id] = None

    async def embed_waiting(self) -> None:
        """Embed all waiting sessions. A failure is logged. While the embedder is paused, the sessions keep waiting."""
        embedder = self._store.embedder
        if embedder is None or self._is_running:
            return
        self._is_running = True
        try:
            while self._waiting and not (embedder.is_paused or self._stopping):
                some = list(self._waiting)[:_CONCURRENCY]
                await asyncio.gather(*(self._embed_logged(embedder, session_id) for session_id in some))
        finally:
            self._is_running = False

    async def _embed_logged(self, embedder: Embeds, session_id: str) -> None:
        self._waiting.pop(session_id, None)
        try:
            count = await self._store.observe(Op.EMBEDDING, self._embed_session(embedder, session_id), session_id)
            if count == _BLOCKS_LIMIT:
                self._waiting.setdefault(session_id)
        except ProviderUnavailable:  # the embedder is paused, and has logged it
            self._waiting.setdefault(session_id)
        except Exception as error:  # of one session: recall by words still works
            session = session_hash(session_id)
            log_failure(
                f"session {session}: not embedded, so recall finds it by words only",
                error,
                facts(op="embedding", session=session),
            )

    async def _is_recorded(self, embedder: Embeds, dimensions: int) -> bool:
        """True if the namespace records this embedder, or none so far. 0 `dimensions` means that they are unknown.

        Two embedders of one namespace would replace each other's vectors for ever, and pay for each.
        """
        store, ours = self._store, Embedding(embedder.name.encode("utf-8", "replace").decode(), dimensions)
        recorded = await store.run(namespace_calls.read_embedding(store.keys))
        if dimensions and recorded in (None, ours._replace(dimensions=0)):
            write = namespace_calls.record_embedding(store.keys, ours, overrides=recorded is not None)
            recorded = await store.run(write)
        if (
            recorded is None
            or recorded == ours
            or (recorded.name == ours.name and 0 in (recorded.dimensions, dimensions))
        ):
            self._recorded_dimensions, self._is_refused = dimensions, False
            return True
        self._is_refused = True
        if self._refused_for != recorded:
            self._refused_for = recorded
            log.warning(
                "namespace %s: its vectors are by %s, so this worker embeds nothing with %s; to change the embedder, "
                "run `redismem worker --override`",
                *(store.keys.namespace, _describe(recorded), _describe(ours)),
                extra=facts(op="embedding", namespace=store.keys.namespace, setting="REDISMEM_EMBED"),
            )
        return False

    async def _embed_session(self, embedder: Embeds, session_id: str) -> int:
        """Embed the messages of the session's newest blocks, and return how many blocks gained vectors."""
        if not await self._is_recorded(embedder, embedder.dimensions):
            return 0
        store, keys = self._store, self._store.keys.session(session_id)
        signed = await store.run(pages.read_signatures(keys, [0]))
        last = block_number(signed.first_seq - 1)
        if not signed.has_originals or last < 0:
            return 0
        numbers = range(max(0, last + 1 - _SCANNED_LIMIT), last + 1)
        lengths = await store.run(vector_calls.lengths(keys, numbers))
        count = 0
        for number in reversed(numbers):
            size, stored_bytes = embedder.dimensions, lengths[number]
            is_whole = stored_bytes == field_bytes(size) if size else stored_bytes > 0
            if self._is_refused or count == _BLOCKS_LIMIT:
                break
            if is_whole and number != last:
                continue  # the last block grows, so the length of its vectors proves nothing
            beside = await store.run(vector_calls.read_block(keys, number))
            if beside is not None:
                count += await self._complete_block(embedder, keys, beside, signed.epoch)
        return count

    async def _complete_block(self, embedder: Embeds, keys: SessionKeys, beside: BlockVectors, epoch: str) -> bool:
        """Embed the messages of a block that have no vectors; return True if vectors were stored."""
        dictionaries = await load_dictionaries(self._store, [beside.block.stored])
        try:
            place, texts = await asyncio.to_thread(_read_texts, beside, dictionaries, epoch)
        except Undecodable:
            await Originals(self._store, keys).quarantine([beside.block])
            return False
        stop = place + len(texts)
        vectors = _decode(beside.vectors, embedder.mark)
        if vectors is not None and embedder.dimensions not in (0, vectors.dimensions):
            vectors = None
        if vectors is not None and (vectors.place, vectors.stop) == (place, stop):
            return False
        rows = {at: row for at in range(place, stop) if vectors is not None and (row := vectors.row(at)) is not None}
        missing = [at for at, text in enumerate(texts, place) if text and at not in rows]
        dimensions = embedder.dimensions if vectors is None else vectors.dimensions
        if missing:
            dimensions, new = await embedder.rows([texts[at - place] for at in missing])
            if vectors is not None and dimensions != vectors.dimensions:
                return await self._complete_block(embedder, keys, beside._replace(vectors=None), epoch)
            rows |= dict(zip(missing, new, strict=True))
        if not dimensions:
            return False
        if dimensions != self._recorded_dimensions and not await self._is_recorded(embedder, dimensions):
            return False
        encoded = encode_vectors(embedder.mark, dimensions, rows, place, stop)
        return await self._store.run(vector_calls.set_vectors(keys, beside, encoded))


def _describe(embedding: Embedding) -> str:
    return f"{embedding.name} of {embedding.dimensions} dimensions" if embedding.dimensions else embedding.name


def _read_texts(beside: BlockVectors, dictionaries: Dictionaries, epoch: str) -> tuple[int, list[str]]:
    """Return the position of a block's first message, and the text of each. Raises Undecodable, UnsupportedFormat."""
    first_seq, elements = decode_parts(*beside.block, dictionaries)[beside.number]
    messages = decode_messages(elements, first_seq, epoch)
    texts = ["\n".join(searchable_texts(message)).strip() for message in messages]
    return first_seq - first_seq_of(beside.number), texts


def _decode(vectors: bytes | None, mark: bytes) -> Vectors | None:
    try:
        return None if vectors is None else decode_vectors(vectors, mark)
    except Undecodable:
        return None  # the vectors are computed again
