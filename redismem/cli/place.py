"""The place a command works on: opening it, and naming it without its password."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redismem.cli.terminal import Stop, complain
from redismem.errors import InvalidSettings, NotAllowed, RedismemError, StoreUnavailable
from redismem.memory import Memory
from redismem.settings.settings import Settings
from redismem.store.availability import UNTIL_IT_DOES
from redismem.store.store import Store
from redismem.transport.connect import EMBEDDED
from redismem.transport.connect import connect as connect_transport

_OF_NODES = ("+cluster", "+sentinel")
HOW_TO_NAME_REDIS = "--url redis://127.0.0.1:6379/0, or REDISMEM_URL"


@dataclass(frozen=True, slots=True)
class Place:
    """The Redis that the user named."""

    name: str
    """The address without user, password and options."""
    embedded: bool


def safe_url(url: str) -> str:
    """Scheme, host, port and path of a URL; less if something in it may be a part of the password.

    Of a URL with several hosts, all of them.
    """
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",") if parts.scheme.endswith(_OF_NODES) else []
        if len(hosts) > 1:
            [urlsplit(f"redis://{host}").port for host in hosts]  # what is no port raises: it may be of a password
            return safe_url(url.replace(parts.netloc, "host", 1)).replace("//host", f"//{','.join(hosts)}", 1)
        port = parts.port
    except ValueError:
        return "the given URL"
    if "@" in parts.path + parts.query + parts.fragment:
        return f"{parts.scheme}://…"
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"


def address_of(url: str | None, settings: Settings) -> str:
    """What was given, else what the settings say, else the embedded store: the commands warn of it themselves."""
    address = url if url is not None else settings.url
    return EMBEDDED if address is None else address


def connect(url: str | None, namespace: str, **given: Any) -> tuple[Memory, Place]:
    """A memory that is not yet entered. Raises Stop for an unusable URL, InvalidSessionId, InvalidSettings."""
    settings = Settings(**given)
    address = address_of(url, settings)
    try:
        transport = connect_transport(address, None, settings)
    except InvalidSettings as refused:
        raise Stop(
            f"{refused}; a URL looks like redis://user:password@host:6379/0, rediss://…, unix://…, "
            "redis+cluster://host:port,host:port, redis+sentinel://host:port,host:port/service/0 or memory://, "
            "with what is not a letter or digit in user and password percent-encoded",
            2,
        ) from None
    memory = Memory(Store(transport, namespace, settings))
    embedded = address.lower() == EMBEDDED
    return memory, Place("embedded" if embedded else safe_url(address), embedded)


def say_if_embedded(place: Place) -> None:
    """Warns whoever looks into a store that this command has just made."""
    if place.embedded:
        complain(f"this is a new embedded store, so it is empty; name your Redis: {HOW_TO_NAME_REDIS}")


def refused(place: str, error: RedismemError) -> Stop:
    """How a command ends that the store refused: of calls that would follow it says nothing, as none do."""
    return Stop(f"{place}: {error}".replace(UNTIL_IT_DOES, ""))


@contextlib.asynccontextmanager
async def opened(url: str | None, namespace: str, **given: Any) -> AsyncIterator[tuple[Memory, Place]]:
    """A connected memory. Raises Stop if Redis does not answer, or stops to."""
    memory, place = connect(url, namespace, **given)
    try:
        async with memory:
            yield memory, place
    except (StoreUnavailable, NotAllowed) as error:
        raise refused(place.name, error) from None


@contextlib.asynccontextmanager
async def looking(url: str | None, namespace: str) -> AsyncIterator[tuple[Memory, Place]]:
    """A memory to look at what is there: a new namespace does not get recorded."""
    memory, place = connect(url, namespace)
    say_if_embedded(place)
    try:
        await memory.store.look()
        memory.store.is_agreed = True  # or the first call about a session would record it
        yield memory, place
    except (StoreUnavailable, NotAllowed) as error:
        raise refused(place.name, error) from None
    finally:
        await memory.aclose()
