"""Carrying out an import that counts: whoever meets one does it, as many at once as there are, before all else."""

from __future__ import annotations

import random

from redismem.errors import CorruptSession
from redismem.protocol import import_calls
from redismem.protocol.project_keys import ProjectKeys
from redismem.store.store import Store
from redismem.values import Undecodable

_random = random.SystemRandom()


async def carry_out(store: Store, keys: ProjectKeys) -> int:
    """Carries out what is left of it. Gives how many pieces this caller did.

    Raises StoreUnavailable; CorruptSession for a piece that cannot be read.
    """
    numbers = await store.run(import_calls.left(keys))
    done = 0
    # In no order: several who do it at once seldom do the same piece.
    for number in _random.sample(numbers, len(numbers)):
        piece = await store.run(import_calls.piece(keys, number))
        if piece is None:
            continue
        try:
            call = import_calls.carry_out(keys, number, piece)
        except (Undecodable, ValueError, TypeError):
            raise CorruptSession(f"a piece of an import of project {keys.name} cannot be decoded") from None
        done += await store.run(call)
    return done
