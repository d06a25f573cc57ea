"""Pydantic AI: the entries of a conversation, as `redismem.adapters.pydantic_ai.ConversationStore` keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from redismem.protocol.record.heads import Head
from redismem.record.record import Record
from redismem.record.transcripts.messages import escape, load_json, unescape
from redismem.record.transcripts.transcript import Reading, Turned, Wanted, moment_ms

MARK, PREFIX = b"revision", "pydantic_ai:"
_RECORD, _ENTRY = b"record", b"entry:"
_LIST_COUNT = 64
"""The messages that a list reads, from the newest one back: of a longer conversation it knows no title."""


def name_of(record_id: str) -> str | None:
    """Return the id of a conversation."""
    return unescape(record_id)


def ids_of(name: str) -> list[str]:
    """Return the ids of the records of a conversation with the default prefix."""
    return [PREFIX + escape(name)]


async def read(record: Record, wanted: Wanted) -> Reading | None:
    """Read the entries up to the head; `None` if there is no conversation. Raises ValueError if one is damaged.

    The entries of other branches are left out, as the framework itself does.
    """
    [value] = await record.get(_RECORD)
    if value is None:
        return None
    described = load_json(value)
    head_id = described["head_id"]
    reading = Reading(updated_ms=moment_ms(described.get("updated_at")), count=0)
    if head_id is None:
        return reading
    limit = _LIST_COUNT if wanted.is_list else wanted.limit
    heads = (await record.walk(_ENTRY + head_id.encode(), limit=limit)).heads
    reading.is_whole = bool(heads) and not Head.decode(heads[-1][1]).parent
    if not reading.is_whole and (limit is None or len(heads) < limit):
        raise ValueError("an entry is missing")
    values = [value for _, value in reversed(heads)]
    reading.size = sum(map(len, values))
    reading.messages = await wanted.decode(partial(_decode, values), reading.size)
    reading.count = len(heads) if reading.is_whole else None
    if reading.is_whole:
        reading.created_ms = reading.messages[0].time_ms
    return reading


def _decode(values: Iterable[bytes]) -> list[Turned]:
    messages: list[dict[str, Any]] = [load_json(Head.decode(value).body)["message"] for value in values]
    return [Turned(message, moment_ms(message.get("timestamp"))) for message in messages]
