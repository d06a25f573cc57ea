"""Google ADK: the events of a session, as `redismem.adapters.google_adk.SessionService` keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from redismem.record.record import Record
from redismem.record.transcripts.messages import load_json
from redismem.record.transcripts.transcript import TOO_LARGE, Reading, Turned, Wanted

MARK, PREFIX = b"m", "adk:"
_EVENT = b"e:"
_ENDS_COUNT = 8
"""The events that a list reads at either end: some have no words, such as changes of state."""


def name_of(record_id: str) -> str | None:
    """Return app, user and session of a record; `None` if it is one of a user or an app."""
    parts = record_id.rpartition(":")[2].split("/")
    return "/".join(unquote(part, errors="surrogatepass") for part in parts) if len(parts) == 3 else None


def ids_of(name: str) -> list[str]:
    """Return the ids of the records of an app, a user and a session, with the default prefix."""
    return [PREFIX + "/".join(quote(part, "", errors="surrogatepass") for part in name.split("/"))]


async def read(record: Record, wanted: Wanted) -> Reading | None:
    """Read the events of a session; `None` if there is none. Raises ValueError if one is damaged."""
    [numbers] = await record.get(MARK)
    if numbers is None:
        return None
    count, _, updated_s = numbers.partition(b" ")
    if wanted.most_bytes == 0:
        at_ms = int(float(updated_s) * 1000)
        return Reading(count=int(count), updated_ms=at_ms, fault=TOO_LARGE, is_whole=False)
    least = (await record.page(_EVENT, limit=_ENDS_COUNT)).found
    values = await _newest(record, _ENDS_COUNT if wanted.is_list else wanted.limit)
    size = sum(map(len, values)) + sum(len(found.value or b"") for found in least)
    newest = await wanted.decode(partial(_decode, values), size)
    first = await wanted.decode(partial(_decode, [found.value for found in least if found.value is not None]), 0)
    return Reading(
        newest,
        first,
        int(count),
        first[0].time_ms if first else None,
        int(float(updated_s) * 1000),
        is_whole=len(values) >= int(count),
        size=size,
    )


async def _newest(record: Record, limit: int | None) -> list[bytes]:
    """Return the newest events, oldest first."""
    values, after = list[bytes](), None
    while limit is None or len(values) < limit:
        most = 1_000 if limit is None else min(limit - len(values), 1_000)
        page = await record.page(_EVENT, after=after, limit=most, reverse=True)
        values += [found.value for found in page.found if found.value is not None]
        after = page.after
        if after is None:
            break
    return values[::-1]


def _decode(values: Iterable[bytes]) -> list[Turned]:
    return [turned for value in values if (turned := _turned(load_json(value))) is not None]


def _turned(event: Any) -> Turned | None:
    """Return the message of an event; `None` if it has no content, such as a change of state."""
    if not isinstance(event, dict):
        raise ValueError("an event is no object")
    content, at_s = event.get("content"), event.get("timestamp")
    if not isinstance(content, dict) or not isinstance(parts := content.get("parts"), list) or not parts:
        return None
    said = [{name: value for name, value in part.items() if value is not None} for part in parts]
    time_ms = int(at_s * 1000) if isinstance(at_s, int | float) else None
    return Turned({"role": content.get("role") or "user", "parts": said}, time_ms)
