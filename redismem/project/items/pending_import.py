"""Carrying out an import that counts: whoever meets one does it, as many at once as there are, before all else."""

from __future__ import annotations

import random

from redismem.errors import CorruptSession
from redismem.messages.values import Undecodable
from redismem.protocol.project import imports
from redismem.protocol.project.keys import ProjectKeys
from redismem.store.store import Store

_random = random.SystemRandom()
# Pieces that are fetched together: each is carried out by a call of its own.
_BATCH_COUNT = 4


async def carry_out(store: Store, keys: ProjectKeys) -> int:
    """Carries out what is left of it. Gives how many pieces this caller did.

    Raises StoreUnavailable; CorruptSession for a piece that cannot be read.
    """
    numbers = await store.run(imports.left(keys))
    done = 0
    # In no order: several who do it at once seldom do the same piece.
    numbers = _random.sample(numbers, len(numbers))
    for begin in range(0, len(numbers), _BATCH_COUNT):
        batch = numbers[begin : begin + _BATCH_COUNT]
        pieces = await store.run(imports.some(keys, batch))
        for number, piece in zip(batch, pieces, strict=True):
            if piece is None:
                continue
            try:
                call = imports.carry_out(keys, number, piece)
            except (Undecodable, ValueError, TypeError):
                raise CorruptSession(f"a piece of an import of project {keys.name} cannot be decoded") from None
            done += await store.run(call)
    return done
