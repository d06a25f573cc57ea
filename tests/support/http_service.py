"""The service on loopback, over a memory of the test, with its streams and its chat."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx

from redismem import Memory
from redismem.models.streaming import open_streaming
from redismem.models.tls import default_ssl_context
from redismem.web.access import Access
from redismem.web.chat.chat import Chat
from redismem.web.metrics.prometheus import Meters
from redismem.web.server import listen, serve
from redismem.web.service import Limits, Service
from support.provider_server import ProviderServer

SLOTS = """
[[intents]]
name = "pay"
words = ["pay"]
[[intents.slots]]
name = "card"
prompt = "Which card?"
pattern = '\\d{8}'
example = "12345678"
sensitive = true
asks_limit = 2
"""
"""An intent with one sensitive slot."""
# Long, as the machine may be busy.
PATIENT = Limits(request_s=60, idle_s=60, stream_write_s=60)


class RunningService:
    """A running service, and a client of it."""

    def __init__(self, service: Service, client: httpx.AsyncClient, stop_event: asyncio.Event) -> None:
        self.service = service
        self.client = client
        self.stop_event = stop_event
        """Set this event to stop the service."""

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.client.request(method, path, **options)


@contextlib.asynccontextmanager
async def serve_memory(
    memory: Memory, *, limits: Limits = PATIENT, stop_s: float = 5, **given: Any
) -> AsyncIterator[RunningService]:
    """Serve this memory; without `access` the service has no keys."""
    namespace = memory.store.keys.namespace
    access = given.pop("access", None) or Access.of("", namespace)
    meters = given.pop("meters", Meters())
    service = Service(dict.fromkeys(access.namespaces, memory), access, limits, meters=meters, **given)
    async with run_service(service, stop_s) as running:
        yield running


@contextlib.asynccontextmanager
async def run_service(service: Service, stop_s: float = 5) -> AsyncIterator[RunningService]:
    """Run this service on a free port."""
    stop_event = asyncio.Event()
    with listen("127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        running = asyncio.create_task(serve(service, listening, stop_event, stop_s))
        try:
            async with httpx.AsyncClient(
                base_url=url, verify=default_ssl_context(), timeout=120, trust_env=False
            ) as client:
                yield RunningService(service, client, stop_event)
        finally:
            stop_event.set()
            await running


def numbered_message(number: int | str, role: str = "user") -> dict[str, Any]:
    """Return a numbered message."""
    return {"role": role, "content": f"message {number}"}


class StreamEvent(NamedTuple):
    event: str
    document: Any
    id: str


@contextlib.asynccontextmanager
async def open_stream(client: httpx.AsyncClient, method: str, path: str, **options: Any) -> AsyncIterator[Any]:
    """Open a stream, and yield its events as an iterator; closed at the end."""
    async with client.stream(method, path, **options) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _read_events(answer)


async def _read_events(answer: httpx.Response) -> AsyncIterator[StreamEvent]:
    found = {"event": "message", "data": "", "id": ""}
    async for line in answer.aiter_lines():
        if not line:
            if found["data"]:
                yield StreamEvent(found["event"], json.loads(found["data"]), found["id"])
            found = {"event": "message", "data": "", "id": ""}
            continue
        name, _, value = line.partition(": ")
        if name:
            found[name] = value


async def read_events(client: httpx.AsyncClient, path: str, **options: Any) -> list[StreamEvent]:
    """Return all events of a POST."""
    async with open_stream(client, "POST", path, **options) as events:
        return [seen async for seen in events]


def joined_text(events: list[StreamEvent]) -> str:
    return "".join(seen.document["text"] for seen in events if seen.event == "text")


def notice_codes(events: list[StreamEvent]) -> list[str]:
    return [seen.document["code"] for seen in events if seen.event == "notice"]


ASKED = {"session_id": "s", "message": "Where is my parcel?"}


@contextlib.asynccontextmanager
async def serve_chat(memory: Memory, provider: ProviderServer | None, **given: Any) -> AsyncIterator[RunningService]:
    """Serve a chat that asks this provider; `None` is a chat without a model. `chat` holds options of `Chat`."""
    options = given.pop("chat", {})
    model: Any = None
    if provider is not None:
        model = open_streaming("openai", "m", base_url=provider.base_url, allow_http=True)
    async with serve_memory(memory, chat=Chat(model, **options), **given) as http:
        yield http


Servers = tuple[RunningService, RunningService]
"""Two servers on one Redis."""


def message_rows(messages: Any) -> list[tuple[str, str, Any]]:
    """Return role, text and reason of incompleteness of each message."""
    return [(each.role, each.content, each.metadata.get("incomplete")) for each in messages]
