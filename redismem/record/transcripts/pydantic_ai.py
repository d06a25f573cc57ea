"""Pydantic AI: the entries of a conversation, as `redismem.adapters.pydantic_ai.ConversationStore` keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from redismem.protocol.record.heads import Head
from redismem.protocol.record.reads import Walker
from redismem.record.record import Record
from redismem.record.transcripts.messages import escape, load_json, unescape
from redismem.record.transcripts.transcript import TOO_LARGE, Reading, Turned, Wanted, moment_ms

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
    if not isinstance(described, dict) or not isinstance(head_id := described.get("head_id"), str | None):
        raise ValueError("the record names no entry")
    reading = Reading(updated_ms=moment_ms(described.get("updated_at")), count=0)
    if head_id is None:
        return reading
    if wanted.most_bytes == 0:
        return Reading(updated_ms=reading.updated_ms, fault=TOO_LARGE, is_whole=False)
    heads = await _walk(record, _ENTRY + head_id.encode(), wanted)
    reading.is_whole = bool(heads) and not Head.decode(heads[-1][1]).parent
    if not reading.is_whole and not wanted.is_list and (wanted.limit is None or len(heads) < wanted.limit):
        raise ValueError("an entry is missing")
    values = [value for _, value in reversed(heads)]
    reading.size = sum(map(len, values))
    reading.messages = await wanted.decode(partial(_decode, values), reading.size)
    reading.count = len(heads) if reading.is_whole else None
    if reading.is_whole:
        reading.created_ms = reading.messages[0].time_ms
    return reading


async def _walk(record: Record, start: bytes, wanted: Wanted) -> list[tuple[bytes, bytes]]:
    """Return entries from the newest one back; for a list those of one round trip, which are about 8 MiB at most."""
    if not wanted.is_list:
        return (await record.walk(start, limit=wanted.limit)).heads
    walker = Walker(record.keys, start, b"", None, (), _LIST_COUNT, skips_start=False)
    call = walker.next_call()
    if call is not None:
        await wanted.run(call)
    return walker.walk.heads


def _decode(values: Iterable[bytes]) -> list[Turned]:
    messages: list[dict[str, Any]] = [load_json(Head.decode(value).body)["message"] for value in values]
    return [Turned(message, moment_ms(message.get("timestamp"))) for message in messages]
