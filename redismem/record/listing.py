"""List the records of a namespace, in round trips that are small enough not to delay a turn."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.errors import CorruptSession
from redismem.protocol.record.listing import RecordEntry, RecordPage, RecordsReader
from redismem.store.store import Store


async def list_records(
    store: Store,
    prefix: str,
    limit: int,
    cursor: str | None,
    owner: str | None = None,
    fields: Sequence[bytes] = (),
) -> RecordPage:
    """Return a page of records with fields of each, by id: all, or those of one owner, whose ids begin with the prefix.

    Raises:
        InvalidRecord: A field is invalid.
        ValueError: The cursor was not returned by a page, or the limit is out of range.
        InvalidSessionId: The owner is invalid.
        StoreUnavailable: Redis did not answer in time.
    """
    if not store.agreement.has_begun:
        await store.agreement.begin()
    reader = RecordsReader(store.keys, prefix, limit, cursor, owner)
    while (call := reader.next_call()) is not None:
        await store.run(call)
    try:
        records = await _describe(store, reader, fields)
    except CorruptSession:  # one foreign key must not hide all other records
        await store.run(reader.find_foreign())
        records = await _describe(store, reader, fields)
    return RecordPage(records, reader.cursor(), reader.unreadable)


async def _describe(store: Store, reader: RecordsReader, fields: Sequence[bytes]) -> list[RecordEntry]:
    call = reader.describe(fields)
    return await store.run(call) if call.commands else call.decode()
