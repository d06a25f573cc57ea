"""Events of a stream, as a browser reads them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx


class Seen(NamedTuple):
    event: str
    document: Any
    id: str


@contextlib.asynccontextmanager
async def listening(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> AsyncIterator[Any]:
    """The events of a stream, one after another; leaving ends it."""
    async with client.stream(method, path, **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer)


async def _events(answer: httpx.Response) -> AsyncIterator[Seen]:
    found = {"event": "message", "data": "", "id": ""}
    async for line in answer.aiter_lines():
        if not line:
            if found["data"]:
                yield Seen(found["event"], json.loads(found["data"]), found["id"])
            found = {"event": "message", "data": "", "id": ""}
            continue
        name, _, value = line.partition(": ")
        if name:
            found[name] = value


async def heard(client: httpx.AsyncClient, path: str, **options: Any) -> list[Seen]:
    """All events of a POST, to the end."""
    async with listening(client, "POST", path, **options) as events:
        return [seen async for seen in events]


def text_of(events: list[Seen]) -> str:
    return "".join(seen.document["text"] for seen in events if seen.event == "text")


def notices_of(events: list[Seen]) -> list[str]:
    return [seen.document["code"] for seen in events if seen.event == "notice"]
