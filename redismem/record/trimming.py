"""Apply the policy of a record, by the layout of the adapter that wrote it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redismem.errors import CorruptSession, InvalidRecord, RecordConflict
from redismem.record.checkpoints import trim_agent_framework, trim_langgraph
from redismem.record.listing import list_records
from redismem.record.record import Record
from redismem.store.store import Store

_SESSION = b"t:"


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
    except (RecordConflict, CorruptSession, InvalidRecord):
        pass  # another process has written the record; the sweep comes again
    return 0


async def _remove_session(store: Store, record: Record, keep_last: int | None, before_ms: int | None) -> int:
    """Remove a session of the Claude Agent SDK if its last entry is too old, or newer ones fill its project."""
    [state] = await record.get(_SESSION)
    if state is None:
        return 0
    goes = before_ms is not None and json.loads(state)["mtime"] < before_ms
    if not goes and keep_last is not None:
        project = record.id[: record.id.rindex("/") + 1]
        newest = await list_records(store, project, keep_last, None, newest=True)
        goes = len(newest.records) == keep_last and record.id not in [entry.id for entry in newest.records]
    return int(goes and await record.clear(equals={_SESSION: state}))
