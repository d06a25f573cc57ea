"""Check every record of a namespace. Never writes.

R1  both keys of a record have the right type, and the record can be read
R2  a record is listed, and its owner too
R3  both keys of a record expire at the same time
An index entry of an expired record is no violation: the sweep removes it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator

from redismem.inspection.invariants import Violation
from redismem.protocol.birth import decode_id
from redismem.protocol.call import independent
from redismem.protocol.record import sweeps
from redismem.protocol.record.keys import decode_description
from redismem.protocol.record.sweeps import Seen
from redismem.store.store import Store

_PAGE_COUNT = 200


async def check_records(store: Store, most_count: float = math.inf) -> AsyncIterator[Violation]:
    """Yield every violation among the records that the indexes name. Raises StoreUnavailable.

    Ends after the step in which it has looked at `most_count` records.
    """
    cursors, looked_at = sweeps.indexes_of(store.keys), set[tuple[bytes, bytes]]()
    while cursors and len(looked_at) < most_count:
        scanned = await store.run(sweeps.scan_step(cursors, _PAGE_COUNT))
        cursors = {index: cursor for index, cursor in scanned.cursors.items() if cursor}
        for shard, members in scanned.members.items():
            fresh = [member for member in members if (shard, member) not in looked_at]
            looked_at |= {(shard, member) for member in fresh}
            for at in range(0, len(fresh), _PAGE_COUNT):
                part = fresh[at : at + _PAGE_COUNT]
                hashes = await store.run(sweeps.types(shard, part))
                late_ms = 0 if store.availability.breakers is None else _MOVED_LATE_MS
                for seen in await store.run(sweeps.look(shard, part, hashes)):
                    for rule, text in _violations(seen, late_ms):
                        yield Violation(decode_id(seen.member) or repr(seen.member), rule, text)


async def count_records(store: Store) -> int:
    """Return the number of records of the namespace, expired ones that are not swept yet included."""
    indexes = tuple(("ZCARD", prefix + sweeps.LISTED) for prefix in store.keys.prefixes())
    return await store.run(independent(indexes, lambda *counts: sum(counts)))


# As for sessions: a key that moves to another node keeps its remaining time to live.
_MOVED_LATE_MS = 60_000


def _violations(seen: Seen, late_ms: int) -> Iterator[tuple[str, str]]:
    if decode_id(seen.member) is None:
        yield "R2", "an index of the shard holds it, but it is not the id of a record"
    if seen.kind == b"none":
        if seen.order_kind != b"none":
            yield "R1", "the record is gone, but its order is left"
        return
    described = decode_description(seen.described) if seen.kind == b"hash" else None
    if described is None or seen.order_kind not in (b"none", b"zset"):
        yield "R1", "a key of the record has a foreign type, or the record cannot be read"
        return
    if not seen.is_listed or (described.owner is None) != (seen.score is None):
        yield "R2", "the indexes of the shard and the record disagree about it or its owner"
    elif described.owner is not None and int(described.owner.partition(b" ")[0]) != seen.score:
        yield "R2", "the index of owners has it under another owner"
    record_ms, order_ms = seen.expires_ms
    if seen.order_kind == b"zset" and abs(record_ms - order_ms) > late_ms:
        yield "R3", f"its keys expire at different times: {record_ms} and {order_ms}"
