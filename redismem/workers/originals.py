"""What a commit keeps of the messages that leave the window: blocks of originals, and their signatures."""

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
from redismem.protocol.session.edits import leaving
from redismem.protocol.session.pages import Block
from redismem.recall.originals import Originals
from redismem.store.dictionaries import load_dictionaries
from redismem.store.store import Store
from redismem.workers.dictionaries import Trainer

if TYPE_CHECKING:
    from redismem.workers.vectors import Embedding


def embedding_of(store: Store) -> Embedding | None:
    """What makes vectors of the messages that are kept; None without an embedder, and nothing of it is imported."""
    if store.embedder is None:
        return None
    from redismem.workers.vectors import Embedding

    return Embedding(store)


async def kept(trainer: Trainer, keys: SessionKeys, job: Job, covered: Sequence[Message]) -> dict[bytes, bytes]:
    """The fields of the originals that a commit of these messages sets: none, if originals are not kept.

    The block that is not full yet is read and comes back longer: a commit is refused if the session has changed since
    it was claimed, so nobody else has made it longer meanwhile. Raises StoreUnavailable.
    """
    store = trainer.store
    if not covered or not store.settings.keep_originals:
        return {}
    dictionary = await trainer.dictionary(job.now_ms)
    trainer.note(keys.session_id, job.elements[: len(covered)])
    originals = Originals(store, keys)
    begun = await originals.block(job.context.first_seq - 1) if is_begun(job) else None
    known = await load_dictionaries(store, [] if begun is None else [begun.stored])
    try:
        return await asyncio.to_thread(fields_of, job, covered, begun, known, dictionary)
    except Undecodable:
        if begun is None:
            raise
        await originals.quarantine([begun], in_the_way=True)
        return await asyncio.to_thread(fields_of, job, covered, None, known, dictionary)


def is_begun(job: Job) -> bool:
    """Whether the last block before the window has places left, so that more comes to it."""
    return job.with_originals and (job.context.first_seq - 1) % BLOCK_COUNT > 0


def fields_of(
    job: Job,
    covered: Sequence[Message],
    begun: Block | None,
    known: Dictionaries = NO_DICTIONARIES,
    dictionary: Dictionary | None = None,
) -> dict[bytes, bytes]:
    """Blocks and signatures of what leaves the window with these messages. `begun`: the block that more comes to.

    Compressed with the `dictionary`; the one of that block is among those that are `known`. Raises Undecodable if it
    cannot be read.
    """
    count, _ = leaving(job.context, covered)
    first_seq, elements = job.context.first_seq, list(job.elements[:count])
    if begun is not None:
        before = _before(begun, first_seq, known)
        elements, first_seq = [*before, *elements], first_seq - len(before)
    return encode_fields(first_seq, elements, job.context.epoch, dictionary)


def _before(block: Block, first_seq: int, known: Dictionaries) -> list[bytes]:
    """The elements of a block that stand right before a seq. Raises Undecodable."""
    block_first, elements = decode_block(*block, known)
    before = elements[: max(0, first_seq - block_first)]
    if block_first + len(before) != first_seq:
        raise Undecodable("a block of originals does not reach up to the window")
    return before
