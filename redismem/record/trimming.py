"""Apply the policy of a record, by the layout of the adapter that wrote it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from redismem.errors import CorruptSession, InvalidRecord, RecordConflict
from redismem.protocol.ids import session_hash
from redismem.protocol.record.listing import RecordEntry
from redismem.record.checkpoints import trim_agent_framework, trim_langgraph
from redismem.record.listing import list_records
from redismem.record.record import Record
from redismem.record.transcripts.transcript import moment_ms
from redismem.store.store import Store

_log = logging.getLogger("redismem")
_OTHERS_FACTOR = 4
_MOST_COUNT = 1_000
"""The newest records that a page lists."""


async def apply_policy(store: Store, record: Record, policy: bytes, now_ms: int) -> int:
    """Remove what the policy of a record does not keep, and return its number.

    If another process writes the record meanwhile, the rest stays until the next call.
    """
    try:
        its: Mapping[str, Any] = json.loads(policy)
        kind, keep_last, max_age_s = its["kind"], its["keep_last"], its["max_age_s"]
    except (ValueError, LookupError, TypeError):  # of another release, or damaged: nothing is removed
        return 0
    before_ms = None if max_age_s is None else now_ms - int(max_age_s * 1000)
    try:
        if kind == "langgraph":
            return await trim_langgraph(record, keep_last, before_ms)
        if kind == "agent-framework":
            return await trim_agent_framework(record, keep_last, before_ms)
        if kind in _CONVERSATIONS:
            return await _remove(store, record, _CONVERSATIONS[kind], keep_last, before_ms)
    except (RecordConflict, CorruptSession, InvalidRecord):
        pass  # another process has written the record; the sweep comes again
    except (ValueError, LookupError, TypeError) as failure:  # a damaged record stays, and stops no others
        _log.warning("the policy of record %s cannot be applied: %s", session_hash(record.id), type(failure).__name__)
    return 0


@dataclass(frozen=True, slots=True)
class _Conversation:
    """A record that goes as a whole: the conversation, session or snapshot of one adapter."""

    mark: bytes
    """The field that each write changes."""
    time_of: Callable[[str, bytes, bytes | None], float | None]
    """The time of the last write in ms, from the id of the record and the values of `mark` and `beside`."""
    separator: str
    """The character of the id that ends the part which those of the same kind share."""
    beside: bytes = b""


def _snapshot_ms(record_id: str, *_: bytes | None) -> float | None:
    """Return the time in the id of a snapshot, a UUID of version 7."""
    return int(record_id.rpartition("/snapshot_")[2][:13].replace("-", ""), 16)


_CONVERSATIONS: Mapping[str, _Conversation] = {
    "claude-agent-sdk": _Conversation(b"n", lambda _, at_ns, __: int(at_ns) / 1e6, "/"),
    "google-adk": _Conversation(b"m", lambda _, numbers, __: float(numbers.split()[1]) * 1000, "/"),
    "pydantic-ai": _Conversation(
        b"revision", lambda _, __, value: moment_ms(json.loads(value or b"{}").get("updated_at")), ":", b"record"
    ),
    "strands": _Conversation(b"version", _snapshot_ms, "/"),
}


async def _remove(
    store: Store, record: Record, its: _Conversation, keep_last: int | None, before_ms: int | None
) -> int:
    """Remove a conversation if its last write is too old, or if its owner has enough newer ones."""
    mark, beside = await record.get(its.mark, its.beside or its.mark)
    if mark is None:
        return 0
    at_ms = its.time_of(record.id, mark, beside)
    is_old = before_ms is not None and at_ms is not None and at_ms < before_ms
    if is_old or await _is_beyond(store, record, its, keep_last):
        return int(await record.clear(equals={its.mark: mark}))
    return 0


async def _is_beyond(store: Store, record: Record, its: _Conversation, keep_last: int | None) -> bool:
    """True if so many newer conversations have the same owner, or none like this one, and ids that begin alike."""
    if keep_last is None:
        return False
    beginning = record.id[: record.id.rfind(its.separator) + 1]
    listed = await list_records(store, record.id, 1, None)
    owners = [entry.owner for entry in listed.records if entry.id == record.id]
    if not owners:
        return False
    wanted = keep_last
    while True:
        page = await list_records(store, beginning, wanted, None, owners[0], (its.mark,), newest=True)
        newest = [entry for entry in page.records if entry.owner == owners[0] and _is_like(entry, beginning, its)]
        if record.id in [entry.id for entry in newest[:keep_last]]:
            return False
        if len(newest) >= keep_last or len(page.records) < wanted or wanted == _MOST_COUNT:
            return len(newest) >= keep_last
        wanted = min(_OTHERS_FACTOR * wanted, _MOST_COUNT)  # others lie between: of nobody, or of other adapters


def _is_like(entry: RecordEntry, beginning: str, its: _Conversation) -> bool:
    """True if a record is such a conversation, and its prefix is no longer one."""
    return entry.values[0] is not None and not {":", its.separator} & {*entry.id[len(beginning) :]}
