"""Scan all keys of a Redis server, a limited number at a time. A cursor continues a scan that stopped at its limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from redismem.protocol.scanning import scan_keys
from redismem.store.store import Store

KEYS_A_STEP = 1_000
LOOKED_AT_LIMIT = 10_000_000

OnStep = Callable[[int], None]
"""A callback that receives the number of keys scanned so far, after each step of a search."""


class Scanned(NamedTuple):
    """One step of a scan: matching keys, the next cursor (0 ends the scan), and the number of keys scanned so far."""

    keys: Sequence[bytes]
    cursor: int
    looked_at_count: int


async def scan_pages(
    store: Store, pattern: bytes, cursor: int = 0, looked_at_limit: int = LOOKED_AT_LIMIT, on_step: OnStep | None = None
) -> AsyncIterator[Scanned]:
    """Yield the steps of a scan up to its end or limit. Raises NotAllowed, StoreUnavailable."""
    looked_at = 0
    while True:
        page = await store.run(scan_keys(pattern, cursor, KEYS_A_STEP))
        cursor, looked_at = page.cursor, looked_at + KEYS_A_STEP
        if on_step is not None:
            on_step(looked_at)
        yield Scanned(page.keys, cursor, looked_at)
        if cursor == 0 or looked_at >= looked_at_limit:
            return
