"""Check the index of every owner against the owner's sessions. Never writes.

O1  an entry is of a session that belongs to the owner, in its present life and with its last edit
O2  an entry has the signatures that the session stores beside its blocks
An entry is no violation while a worker is about to check the index: for a minute after a change, and until ten minutes
after the check was due.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from redismem.errors import CorruptSession
from redismem.inspection.invariants import Violation
from redismem.originals.blocks import block_number
from redismem.protocol.keys import is_session_id
from redismem.protocol.owner import calls
from redismem.protocol.owner.calls import OwnerKeys
from redismem.protocol.owner.entries import Entry, decode_name
from redismem.protocol.session import pages
from redismem.recall.owner.cached import decode_all
from redismem.store.store import Store

_PAGE_COUNT = 200
_LATE_MS = 600_000


async def check_owners(store: Store) -> AsyncIterator[Violation]:
    """Yield every violation among the indexes of owners. Raises StoreUnavailable."""
    for number in range(store.keys.shard_count):
        start, page = 0, await store.run(calls.list_indexes(store.keys, number, 0, _PAGE_COUNT))
        while page:
            for owner, due_ms in page:
                now_ms = await store.server_time_ms()
                is_due = now_ms - _LATE_MS <= due_ms <= now_ms + calls.SOON_MS
                if is_session_id(owner) and not is_due:
                    for violation in await _check_index(store, calls.owner_keys(store.keys, owner)):
                        yield violation
            start += len(page)
            page = await store.run(calls.list_indexes(store.keys, number, start, _PAGE_COUNT))


async def _check_index(store: Store, keys: OwnerKeys) -> list[Violation]:
    """Return the violations of one index: those that a second look finds too, since workers may be writing."""
    first = await _look(store, keys)
    return [violation for violation in await _look(store, keys) if violation in first] if first else []


async def _look(store: Store, keys: OwnerKeys) -> list[Violation]:
    found: list[Violation] = []
    stored = await store.run(calls.read_index(keys))
    for name, entry in decode_all(stored):
        decoded = decode_name(name)
        assert decoded is not None
        if is_session_id(decoded[1]) and (violation := await _compare(store, keys.owner, decoded[1], entry)):
            found.append(violation)
    return found


async def _compare(store: Store, owner: str, session_id: str, entry: Entry) -> Violation | None:
    session_keys = store.keys.session(session_id)
    try:
        described = await store.run(calls.describe(session_keys))
        if (described.owner, described.epoch, described.edits) != (owner, entry.epoch, entry.edits):
            return Violation(session_id, "O1", "the index of an owner names it as it no longer is")
        numbers = [number for number in entry.signatures if number < block_number(entry.first_seq)]
        if not numbers:
            return None
        signed = await store.run(pages.read_signatures(session_keys, numbers))
    except CorruptSession:
        return None  # the check of the sessions reports it
    if list(signed.signatures) == [entry.signatures[number] for number in numbers]:
        return None
    return Violation(session_id, "O2", "the index of its owner and the session disagree about signatures of blocks")
