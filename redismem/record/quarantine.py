"""Put an unreadable record into quarantine, so that its next writer begins a new one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from redismem.errors import CorruptSession
from redismem.events import facts
from redismem.protocol.ids import now_ms, session_hash
from redismem.protocol.quarantine import look, set_aside
from redismem.protocol.record.keys import RecordKeys
from redismem.protocol.record.quarantine import describe_damage, of_record
from redismem.store.store import Store

log = logging.getLogger("redismem")


async def put_into_quarantine(store: Store, records: Sequence[RecordKeys], why: str) -> int:
    """Move those of the records that are unreadable, and return their number.

    Raises UnsupportedFormat, StoreUnavailable.
    """
    put_ms, moved_count = now_ms(), 0
    for keys in records:
        place = of_record(keys)
        seen = await store.send(look(place, place.live()))
        note = describe_damage(keys, seen)
        if note is not None:
            await store.run(set_aside(place, put_ms, seen, note, store.settings.idle_timeout_ms))
            record = session_hash(keys.id)
            log_fields = facts(
                op="quarantine", session=record, namespace=store.keys.namespace, error=CorruptSession.__name__
            )
            log.error("record %s: put into quarantine and started afresh: %s", record, why, extra=log_fields)
            moved_count += 1
    return moved_count
