"""Build the fields in which a commit stores originals: the blocks of messages that leave the window, and signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redismem.messages.message import Message
from redismem.protocol.keys import SessionKeys
from redismem.protocol.queue.calls import Job
from redismem.recall.originals import Originals
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
    if not covered or not store.agreement.keeps_originals:
        return {}
    dictionary = await trainer.dictionary(job.now_ms)
    trainer.note(keys.session_id, job.elements[: len(covered)])
    originals = Originals(store, keys)
    return await originals.encode_leaving(job.context, job.elements, covered, job.with_originals, dictionary)
