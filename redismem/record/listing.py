"""List the records of a namespace, in round trips that are small enough not to delay a turn."""

from __future__ import annotations

from collections.abc import Sequence

from redismem.errors import CorruptSession
from redismem.protocol.record.listing import LIMIT, PageReader, RecordEntry, RecordPage, RecordsReader
from redismem.protocol.record.updates import UpdatesReader
from redismem.store.store import Store


async def list_records(
    store: Store,
    prefix: str,
    limit: int,
    cursor: str | None,
    owner: str | None = None,
    fields: Sequence[bytes] = (),
    *,
    newest: bool = False,
) -> RecordPage:
    """Return a page of records with fields of each: all, or those of one owner, whose ids begin with the prefix.

    They are in the order of their ids, or on one page the last updated ones, newest first.

    Raises:
        InvalidRecord: A field is invalid.
        ValueError: The cursor was not returned by a page, or the limit is out of range.
        InvalidSessionId: The owner is invalid.
        StoreUnavailable: Redis did not answer in time.
    """
    if newest:
        if cursor is not None:
            raise ValueError("the newest records are one page, without a cursor")
        return await _list_updated(store, prefix, limit, owner, fields)
    return await _read(store, RecordsReader(store.keys, prefix, limit, cursor, owner), fields)


async def _list_updated(
    store: Store, prefix: str, limit: int, owner: str | None, fields: Sequence[bytes]
) -> RecordPage:
    wanted = limit
    while True:
        reader = UpdatesReader(store.keys, prefix, wanted, owner)
        page = await _read(store, reader, fields)
        if len(page.records) >= limit or not reader.is_full or wanted == LIMIT:
            return RecordPage(page.records[:limit], None, page.unreadable)
        wanted = min(4 * wanted, LIMIT)  # some have expired, and no worker has swept them yet


async def _read(store: Store, reader: PageReader, fields: Sequence[bytes]) -> RecordPage:
    if not store.agreement.has_begun:
        await store.agreement.begin()
    while (call := reader.next_call()) is not None:
        await store.run(call)
    try:
        records = await _describe(store, reader, fields)
    except CorruptSession:  # one foreign key must not hide all other records
        await store.run(reader.find_foreign())
        records = await _describe(store, reader, fields)
    return RecordPage(records, reader.cursor(), reader.unreadable)


async def _describe(store: Store, reader: PageReader, fields: Sequence[bytes]) -> list[RecordEntry]:
    call = reader.describe(fields)
    return await store.run(call) if call.commands else call.decode()
