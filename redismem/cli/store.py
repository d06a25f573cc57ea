"""The store a command works on: opening it, and naming it without its password."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redismem import namespaces, transport
from redismem.cli.terminal import Stop, complain
from redismem.errors import InvalidSettings, StoreUnavailable
from redismem.memory import Memory
from redismem.settings import Settings
from redismem.transport import Transport

HOW_TO_NAME_REDIS = "--url redis://127.0.0.1:6379/0, or REDISMEM_URL"


@dataclass(frozen=True, slots=True)
class Store:
    """What the user named."""

    name: str
    """The address without user, password and options."""
    embedded: bool
    transport: Transport
    """What the memory's calls travel over."""


def safe_url(url: str) -> str:
    """Scheme, host, port and path of a URL; less where something in it may be a part of the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the given URL"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{parts.scheme}://…"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"


def connect(url: str | None, namespace: str, **given: Any) -> tuple[Memory, Store]:
    """A memory that is not yet entered. Raises Stop for an unusable URL, InvalidSessionId, InvalidSettings."""
    settings = Settings(**given)
    address = url or settings.url
    try:
        carried = transport.connect(address, None, settings)
    except InvalidSettings:
        # Its text may quote a part of the URL.
        raise Stop(
            "the Redis URL cannot be used; it looks like redis://user:password@host:6379/0, rediss://… or unix://…, "
            "with what is not a letter or digit in user and password percent-encoded",
            2,
        ) from None
    memory = Memory(carried, namespace, settings)
    return memory, Store("embedded" if address is None else safe_url(address), address is None, carried)


def say_if_embedded(store: Store) -> None:
    """To who looks into a store that this command has just made."""
    if store.embedded:
        complain(f"this is a new embedded store, so it is empty; name your Redis: {HOW_TO_NAME_REDIS}")


@contextlib.asynccontextmanager
async def opened(url: str | None, namespace: str, **given: Any) -> AsyncIterator[tuple[Memory, Store]]:
    """A connected memory. Raises Stop where Redis does not answer, or stops to."""
    memory, store = connect(url, namespace, **given)
    try:
        async with memory:
            yield memory, store
    except StoreUnavailable as error:
        raise Stop(f"{store.name}: {error}") from None


@contextlib.asynccontextmanager
async def looking(url: str | None, namespace: str) -> AsyncIterator[tuple[Memory, Store]]:
    """A memory to look at what is there: a new namespace does not get its number of shards recorded."""
    memory, store = connect(url, namespace)
    say_if_embedded(store)
    try:
        await memory.run(namespaces.recorded_shards(memory.keys))
        yield memory, store
    except StoreUnavailable as error:
        raise Stop(f"{store.name}: {error}") from None
    finally:
        await memory.aclose()
