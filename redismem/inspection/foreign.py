"""Read what other programs keep in a Redis: scan their keys, read their lists and documents. Never writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from redismem.protocol import foreign
from redismem.store.store import Store

_SCANNED_COUNT = 1_000
_PAGE_COUNT = 200


async def scan_keys(store: Store, beginning: str, ending: str = "") -> AsyncIterator[list[bytes]]:
    """Yield the keys with this beginning and ending, a page at a time. A key may come twice.

    Raises StoreUnavailable, NotAllowed.
    """
    cursor, is_first = 0, True
    while cursor or is_first:
        page = await store.run(foreign.scan(beginning, ending, cursor, _SCANNED_COUNT))
        cursor, is_first = page.cursor, False
        if page.keys:
            yield list(page.keys)


async def lists_among(store: Store, keys: Sequence[bytes]) -> list[bytes]:
    """Return those of the keys that are lists. Raises StoreUnavailable, NotAllowed."""
    return await store.run(foreign.lists_among(keys))


async def read_list(store: Store, key: bytes, *, newest_first: bool = False) -> list[bytes]:
    """Return the entries of a list, oldest first. Entries that are added meanwhile move no page.

    Raises StoreUnavailable, NotAllowed.
    """
    entries: list[bytes] = []
    is_last = False
    while not is_last:
        start = -len(entries) - _PAGE_COUNT if newest_first else len(entries)
        page = await store.run(foreign.list_page(key, start, _PAGE_COUNT))
        is_last = len(page) < _PAGE_COUNT
        entries += reversed(page) if newest_first else page
    return entries


async def read_documents(store: Store, keys: Sequence[bytes]) -> list[bytes]:
    """Return the JSON text of the documents that still exist. Raises StoreUnavailable, NotAllowed."""
    texts: list[bytes] = []
    for at in range(0, len(keys), _PAGE_COUNT):
        page = await store.run(foreign.documents(keys[at : at + _PAGE_COUNT]))
        texts += [text for text in page if text is not None]
    return texts


async def expires(store: Store, key: bytes) -> bool:
    """Return True if the key has a time to live. Raises StoreUnavailable, NotAllowed."""
    return await store.run(foreign.expires(key))
