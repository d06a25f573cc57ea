"""The records with one id, for operators: numbers, and the names and sizes of fields. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redismem.protocol import replies
from redismem.protocol.call import Call, independent
from redismem.protocol.ids import session_hash
from redismem.protocol.record.keys import DESCRIPTION, RecordKeys, record_keys, writes_count
from redismem.protocol.record.listing import RecordEntry
from redismem.protocol.record.quarantine import of_record
from redismem.record.listing import list_records
from redismem.store.store import Store

_SAME_ID_COUNT = 1_000
_FIELDS_A_STEP = 1_000


@dataclass(frozen=True, slots=True)
class RecordView:
    """A record: its description, its numbers and some of its fields."""

    record_id: str
    tag: str
    owner: str | None
    log_id: str
    """Its name in the logs."""
    key: str
    """Its key, as text for `redis-cli`."""
    fields_count: int
    members_count: int
    writes_count: int
    """The writes with conditions that it remembers: 16, or at most 255 if several processes write it."""
    expires_ms: int | None
    """The time at which it expires; `None` without a time to live."""
    fields: Sequence[tuple[bytes, bytes]]
    """Names and values, by name: all, or as many as were asked for, whichever Redis returns first."""

    def document(self, *, values: bool) -> dict[str, Any]:
        """Return the record as JSON values. Bytes are text, with what is no UTF-8 escaped."""
        names = [name for name in RecordView.__slots__ if name != "fields"]
        fields = [
            {"name": readable(name), "bytes": len(value)} | ({"value": readable(value)} if values else {})
            for name, value in self.fields
        ]
        return {**{name: getattr(self, name) for name in names}, "fields": fields}


def readable(text: bytes) -> str:
    """Return bytes as text; bytes that are no UTF-8 are escaped."""
    return text.decode("utf-8", "backslashreplace")


async def look(store: Store, record_id: str, limit: int) -> list[RecordView]:
    """Return the records with this id, one for each tag, with at most `limit` fields. Raises StoreUnavailable."""
    page = await list_records(store, record_id, _SAME_ID_COUNT, None)
    return [await _view(store, entry, limit) for entry in page.records if entry.id == record_id]


async def has_copy(store: Store, record_ids: Sequence[str]) -> bool:
    """True if quarantine has a copy of a record with one of these ids. Raises StoreUnavailable."""
    # The tag of a record is its id, or, for a session of Google ADK, the id of its user's record.
    tags = [(record_id, tag) for record_id in record_ids for tag in (record_id, record_id.rpartition("/")[0]) if tag]
    notes = [of_record(record_keys(store.keys, record_id, tag)).note for record_id, tag in tags]
    return await store.run(independent(tuple(("HLEN", note) for note in notes), lambda *counts: any(counts)))


async def _view(store: Store, entry: RecordEntry, limit: int) -> RecordView:
    keys = record_keys(store.keys, entry.id, entry.tag)
    described, fields_count, members_count, expires_ms = await store.run(_numbers(keys))
    return RecordView(
        entry.id,
        entry.tag,
        entry.owner,
        session_hash(entry.id),
        readable(keys.record),
        fields_count,
        members_count,
        writes_count(described),
        expires_ms if expires_ms >= 0 else None,
        await _fields(store, keys, limit),
    )


def _numbers(keys: RecordKeys) -> Call[tuple[bytes, int, int, int]]:
    commands = (
        ("HGET", keys.record, DESCRIPTION),
        ("HLEN", keys.record),
        ("ZCARD", keys.order),
        ("PEXPIRETIME", keys.record),
    )

    def decode(described: bytes | None, *counts: int) -> tuple[bytes, int, int, int]:
        fields_count, members_count, expires_ms = counts
        return described or b"", max(0, fields_count - 1), members_count, expires_ms

    return Call(None, commands, decode, is_separable=True)


async def _fields(store: Store, keys: RecordKeys, limit: int) -> list[tuple[bytes, bytes]]:
    fields: dict[bytes, bytes] = {}
    cursor, is_first = 0, True
    while (cursor or is_first) and len(fields) <= limit:
        command = ("HSCAN", keys.record, cursor, "COUNT", min(limit + 1, _FIELDS_A_STEP))
        call: Call[tuple[int, Any]] = Call(None, (command,), lambda reply: (int(reply[0]), reply[1]))
        cursor, some = await store.run(call)
        fields |= replies.fields(some)
        is_first = False
    return sorted((name, value) for name, value in fields.items() if name != DESCRIPTION)[:limit]
