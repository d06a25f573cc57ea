"""Apply committed imports. A process that finds a committed import applies it before doing anything else."""

from __future__ import annotations

import random

from redismem.errors import CorruptSession
from redismem.messages.values import Undecodable
from redismem.protocol.project import imports
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.store import Store

_random = random.SystemRandom()
# Pieces fetched per round trip; each is applied by its own call.
_BATCH_COUNT = 4


async def carry_out(store: Store, keys: ProjectKeys) -> int:
    """Apply the remaining pieces of the import and return how many this caller applied.

    Raises StoreUnavailable, and CorruptSession if a piece cannot be read.
    """
    numbers = await store.run(imports.list_pieces(keys))
    done = 0
    # In random order: concurrent processes then rarely apply the same piece.
    numbers = _random.sample(numbers, len(numbers))
    for begin in range(0, len(numbers), _BATCH_COUNT):
        batch = numbers[begin : begin + _BATCH_COUNT]
        pieces = await store.run(imports.read_pieces(keys, batch))
        for number, piece in zip(batch, pieces, strict=True):
            if piece is None:
                continue
            try:
                call = imports.apply(keys, number, piece)
            except (Undecodable, ValueError, TypeError):
                raise CorruptSession(f"a piece of an import of project {keys.name} cannot be decoded") from None
            done += await store.run(call)
    return done
