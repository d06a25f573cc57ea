"""Read and write many records at once, in as few round trips as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redismem.concurrency.together import run_all
from redismem.protocol.record import calls
from redismem.protocol.record.changes import Change
from redismem.record.record import Record

_READ_COUNT = 256
_WRITE_COUNT, _WRITE_BYTES = 128, 4 * 1024 * 1024
"""The records of one step, and the bytes of their values: other callers of Redis wait for a step, some 3 ms."""
_Written = tuple[Record, Change]


async def get_all(records: Sequence[Record], *fields: bytes) -> list[list[bytes | None]]:
    """Return the values of fields of each record, `None` for a missing one. One round trip reads 256 records.

    Args:
        records: Handles of one memory, with any ids and tags.
        fields: The names of the fields.

    Raises:
        CorruptSession: A record cannot be read. `Record.get` tells which.
        InvalidRecord: A field is not 1 to 4,096 bytes.
        OwnerMismatch: A record has another owner than its handle names.
    """
    parts = [records[at : at + _READ_COUNT] for at in range(0, len(records), _READ_COUNT)]
    works = [part[0]._run(calls.get_each([record.keys for record in part], fields)) for part in parts]
    found = await run_all(works, blocks=any(record._store.transport.blocks for record in records[:1]))
    return [values for some in found for values in some]


async def write_all(changes: Sequence[tuple[Record, Change]]) -> None:
    """Write records with any ids and tags. Those of one shard are written together, 128 in a step, all or nothing.

    An event loop sends all steps at once, so they take one round trip; a blocking memory waits for each step. If a step
    is refused, the other steps are made.

    Args:
        changes: Handles of one memory, each with its change, and each record once.

    Raises:
        RecordConflict: A condition does not hold.
        InvalidRecord: A name or value is invalid, or a record is named twice.
        OwnerMismatch: A record has another owner than its handle names.
        TooLarge: A change has more than 20,000 names, or 64 MiB.
    """
    by_shard: dict[bytes, list[_Written]] = {}
    for change in changes:
        by_shard.setdefault(change[0].keys.shard, []).append(change)
    steps = [step for written in by_shard.values() for step in _steps(written)]
    works = [record.write(change, *others) for (record, change), *others in steps]
    await run_all(works, blocks=any(record._store.transport.blocks for record, _ in changes[:1]))


def _steps(changes: Sequence[_Written]) -> Iterator[list[_Written]]:
    step: list[_Written] = []
    size = 0
    for record, change in changes:
        own = sum(map(len, change.sets.values())) + sum(map(len, change.sets_once.values()))
        if step and (len(step) == _WRITE_COUNT or size + own > _WRITE_BYTES):
            yield step
            step, size = [], 0
        step.append((record, change))
        size += own
    if step:
        yield step
