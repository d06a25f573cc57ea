"""Build the fields in which a commit stores originals: the blocks of messages that leave the window, and signatures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, NO_DICTIONARIES, decode_block
from redismem.originals.dictionaries import Dictionaries, Dictionary
from redismem.originals.fields import encode_fields
from redismem.protocol.keys import SessionKeys
from redismem.protocol.queue.calls import Job
from redismem.protocol.session.edits import plan_leaving
from redismem.protocol.session.pages import Block
from redismem.recall.originals import Originals
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.workers.dictionaries import Trainer

if TYPE_CHECKING:
    from redismem.workers.vectors import VectorWriter


def open_vector_writer(store: Store) -> VectorWriter | None:
    """Return the writer of vectors for kept messages; `None` if the store has no embedder."""
    if store.embedder is None:
        return None
    from redismem.workers.vectors import VectorWriter

    return VectorWriter(store)


async def build_original_fields(
    trainer: Trainer, keys: SessionKeys, job: Job, covered: Sequence[Message]
) -> dict[bytes, bytes]:
    """Return the fields of originals that a commit of these messages sets; empty if originals are not kept.

    If the last block is partly filled, reads it and returns it extended. Redis refuses the commit if the session has
    changed since it was claimed, so no other process can have extended the block. Raises StoreUnavailable.
    """
    store = trainer.store
    if not covered or not store.keeps_originals:
        return {}
    dictionary = await trainer.dictionary(job.now_ms)
    trainer.note(keys.session_id, job.elements[: len(covered)])
    originals = Originals(store, keys)
    partial_block = await originals.block(job.context.first_seq - 1) if has_partial_block(job) else None
    dictionaries = await load_dictionaries(store, [] if partial_block is None else [partial_block.stored])
    try:
        return await asyncio.to_thread(encode_original_fields, job, covered, partial_block, dictionaries, dictionary)
    except Undecodable:
        if partial_block is None:
            raise
        await originals.quarantine([partial_block], in_the_way=True)
        return await asyncio.to_thread(encode_original_fields, job, covered, None, dictionaries, dictionary)


def has_partial_block(job: Job) -> bool:
    """True if the last block before the window is partly filled, so that the next messages extend it."""
    return job.with_originals and (job.context.first_seq - 1) % BLOCK_COUNT > 0


def encode_original_fields(
    job: Job,
    covered: Sequence[Message],
    partial_block: Block | None,
    dictionaries: Dictionaries = NO_DICTIONARIES,
    dictionary: Dictionary | None = None,
) -> dict[bytes, bytes]:
    """Encode the blocks and signatures of the messages that leave the window with this commit.

    `partial_block` is the block to extend, and `dictionaries` must contain the dictionary it was compressed with.
    `dictionary` compresses the new blocks. Raises Undecodable if the partial block cannot be read.
    """
    leaving = plan_leaving(job.context, job.elements, covered)
    first_seq, elements = job.context.first_seq, list(job.elements[: leaving.element_count])
    if partial_block is not None:
        before = _elements_before(partial_block, first_seq, dictionaries)
        elements, first_seq = [*before, *elements], first_seq - len(before)
    return encode_fields(first_seq, elements, job.context.epoch, dictionary)


def _elements_before(block: Block, first_seq: int, dictionaries: Dictionaries) -> list[bytes]:
    """Return the elements of a block before this seq. Raises Undecodable if the block does not reach up to it."""
    block_first, elements = decode_block(*block, dictionaries)
    before = elements[: max(0, first_seq - block_first)]
    if block_first + len(before) != first_seq:
        raise Undecodable("a block of originals does not reach up to the window")
    return before
