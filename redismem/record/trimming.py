"""Apply the policy of a record, by the layout of the adapter that wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redismem.errors import CorruptSession, InvalidRecord, RecordConflict
from redismem.record.checkpoints import trim_agent_framework, trim_langgraph
from redismem.record.listing import list_records
from redismem.record.record import Record
from redismem.record.transcripts.transcript import moment_ms
from redismem.store.store import Store

_OTHERS_FACTOR = 4
_SESSION, _RECORD, _REVISION = b"t:", b"record", b"revision"


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
        if kind == "claude-agent-sdk":
            return await _remove_session(store, record, keep_last, before_ms)
        if kind == "pydantic-ai":
            return await _remove_conversation(store, record, keep_last, before_ms)
    except (RecordConflict, CorruptSession, InvalidRecord):
        pass  # another process has written the record; the sweep comes again
    return 0


async def _remove_session(store: Store, record: Record, keep_last: int | None, before_ms: int | None) -> int:
    """Remove a session of the Claude Agent SDK if its last entry is too old, or newer ones fill its project."""
    [state] = await record.get(_SESSION)
    if state is None:
        return 0
    is_old = before_ms is not None and json.loads(state)["mtime"] < before_ms
    project = record.id[: record.id.rindex("/") + 1]
    if is_old or await _is_beyond(store, record, project, keep_last):
        return int(await record.clear(equals={_SESSION: state}))
    return 0


async def _remove_conversation(store: Store, record: Record, keep_last: int | None, before_ms: int | None) -> int:
    """Remove a conversation of Pydantic AI if its last save is too old, or its scope has enough newer ones."""
    [value, revision] = await record.get(_RECORD, _REVISION)
    if value is None or revision is None:
        return 0
    at_ms = moment_ms(json.loads(value)["updated_at"])
    is_old = before_ms is not None and at_ms is not None and at_ms < before_ms
    if is_old or await _is_beyond(store, record, record.id[: record.id.rfind(":") + 1], keep_last):
        return int(await record.clear(equals={_REVISION: revision}))
    return 0


async def _is_beyond(store: Store, record: Record, beginning: str, keep_last: int | None) -> bool:
    """True if so many newer records have the same owner, or none like this one, and ids that begin so."""
    if keep_last is None or not beginning:
        return False
    listed = await list_records(store, record.id, 1, None)
    owners = [entry.owner for entry in listed.records if entry.id == record.id]
    if not owners:
        return False
    count = keep_last if owners[0] is not None else _OTHERS_FACTOR * keep_last  # others lie between those of nobody
    page = await list_records(store, beginning, count, None, owners[0], newest=True)
    newest = [entry.id for entry in page.records if entry.owner == owners[0]][:keep_last]
    return len(newest) == keep_last and record.id not in newest
