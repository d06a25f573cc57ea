"""Strands: the snapshots of agents, as `redismem.adapters.strands.Storage` keeps them. One agent, one transcript."""

from __future__ import annotations

import re
from functools import partial

from redismem.record.record import Record
from redismem.record.transcripts.messages import escape, load_json, unescape
from redismem.record.transcripts.transcript import TOO_LARGE, Reading, Turned, Wanted, moment_ms

MARK, PREFIX = b"version", "strands:"
_DATA = b"data"
# Earlier snapshots of the same agent lie beside it, in `immutable_history/`.
_LATEST = re.compile(r"(?:.*/)?([^/]+)/scopes/agent/([^/]+)/snapshots/snapshot_latest\.json", re.DOTALL)


def name_of(record_id: str) -> str | None:
    """Return session and agent of a record; `None` if it holds no latest snapshot of an agent."""
    key = unescape(record_id)
    match = _LATEST.fullmatch(key)
    return None if match is None else f"{match[1]}/{match[2]}"


def ids_of(name: str) -> list[str]:
    """Return the ids of the records of a session and an agent with the default prefix, and key layout of Strands."""
    session, _, agent = name.rpartition("/")
    key = f"session/{session}/scopes/agent/{agent}/snapshots/snapshot_latest.json"
    return [PREFIX + escape(key), PREFIX + escape(name)]


async def read(record: Record, wanted: Wanted) -> Reading | None:
    """Read the messages in a snapshot; `None` if it has none. Raises ValueError if it is damaged."""
    if wanted.most_bytes is not None and (await wanted.sizes([_DATA])).get(_DATA, 0) > wanted.most_bytes:
        return Reading(fault=TOO_LARGE, is_whole=False)
    [value] = await record.get(_DATA)
    if value is None:
        return None
    snapshot = await wanted.decode(partial(load_json, value), len(value))
    data = snapshot.get("data") if isinstance(snapshot, dict) else None
    messages = data.get("messages") if isinstance(data, dict) else None
    if not isinstance(messages, list):
        raise ValueError("the snapshot has no messages")
    turned = [
        Turned({"role": each.get("role"), "content": each.get("content")})
        for each in messages
        if isinstance(each, dict)
    ]
    newest = turned if wanted.limit is None else turned[-wanted.limit :]
    is_whole, at_ms = len(newest) == len(turned), moment_ms(snapshot.get("created_at"))
    return Reading(newest, count=len(turned), updated_ms=at_ms, is_whole=is_whole, size=len(value))
