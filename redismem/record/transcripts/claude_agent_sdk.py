"""Claude Agent SDK: the transcript of a session, as `redismem.adapters.claude_agent_sdk.SessionStore` keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from redismem.record.record import Record
from redismem.record.transcripts.messages import load_json
from redismem.record.transcripts.transcript import TOO_LARGE, Reading, Turned, Wanted, moment_ms

MARK, PREFIX = b"t:", "claude:"
_BATCH = b"e::"
_ENDS_COUNT = 8
"""The batches of entries that a list reads at either end: some have no messages."""
_PAGE_COUNT = 250


def name_of(record_id: str) -> str | None:
    """Return project and session of a record; `None` if it is none of a session."""
    parts = record_id.rpartition(":")[2].split("/")
    return "/".join(unquote(part, errors="surrogatepass") for part in parts) if len(parts) == 2 else None


def ids_of(name: str) -> list[str]:
    """Return the ids of the records of a project and a session, with the default prefix."""
    return [PREFIX + "/".join(quote(part, "", errors="surrogatepass") for part in name.split("/"))]


async def read(record: Record, wanted: Wanted) -> Reading | None:
    """Read the messages of a session, without those of its subagents; `None` if there is none.

    Raises ValueError if an entry is damaged.
    """
    [value] = await record.get(MARK)
    if value is None:
        return None
    state = load_json(value)
    if not isinstance(state, dict) or type(batches := state.get("batches")) is not int:
        raise ValueError("the state has no number of batches")
    reading = await (_read_ends(record, wanted, batches) if wanted.is_list else _read_newest(record, wanted))
    reading.updated_ms = state.get("mtime")
    if reading.is_whole:
        reading.count = len(reading.messages)
        reading.created_ms = reading.messages[0].time_ms if reading.messages else None
    return reading


async def _read_ends(record: Record, wanted: Wanted, batches: int) -> Reading:
    """Read the first and the last batches for a list."""
    first = range(1, min(_ENDS_COUNT, batches) + 1)
    last = range(max(first.stop, batches - _ENDS_COUNT + 1), batches + 1)
    fields = [b"%b%012d" % (_BATCH, number) for number in (*first, *last)]
    if sum((await wanted.sizes(fields)).values()) > (wanted.most_bytes or 0):
        return Reading(fault=TOO_LARGE, is_whole=False)
    values = [value for value in await record.get(*fields) if value is not None]
    size = sum(map(len, values))
    messages: list[Turned] = await wanted.decode(partial(_decode, values), size)
    return Reading(messages, messages[:1], is_whole=first.stop == last.start, size=size)


async def _read_newest(record: Record, wanted: Wanted) -> Reading:
    """Read batches from the newest one back, until they have the messages that are wanted."""
    messages, size, after = list[Turned](), 0, None
    while True:
        page = await record.page(_BATCH, after=after, limit=_PAGE_COUNT, reverse=True)
        values = [found.value for found in reversed(page.found) if found.value is not None]
        messages = await wanted.decode(partial(_decode, values), sum(map(len, values))) + messages
        size, after = size + sum(map(len, values)), page.after
        if after is None or (wanted.limit is not None and len(messages) > wanted.limit):
            break
    newest = messages if wanted.limit is None else messages[-wanted.limit :]
    return Reading(newest, is_whole=after is None and len(newest) == len(messages), size=size)


def _decode(values: Iterable[bytes]) -> list[Turned]:
    return [turned for value in values for entry in load_json(value) if (turned := _turned(entry)) is not None]


def _turned(entry: Any) -> Turned | None:
    """Return the message of an entry; `None` if it is no part of the conversation, such as a title."""
    if not isinstance(entry, dict):
        raise ValueError("an entry is no object")
    message = entry.get("message")
    is_aside = entry.get("isMeta") or entry.get("isSidechain") or entry.get("teamName")
    if entry.get("type") not in ("user", "assistant") or is_aside or not isinstance(message, dict):
        return None
    said = {"role": message.get("role") or entry["type"], "content": message.get("content")}
    return Turned(said, moment_ms(entry.get("timestamp")))
