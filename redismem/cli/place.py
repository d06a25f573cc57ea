"""The store that a command works on: its address, its name without a password, and the connection."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from redismem.cli.streams import complain
from redismem.cli.terminal import UNREACHABLE, Stop
from redismem.errors import InvalidSettings, NotAllowed, RedismemError, StoreUnavailable
from redismem.events import OnEvent
from redismem.inspection.namespaces import list_names
from redismem.memory.memory import Memory
from redismem.settings.settings import Settings
from redismem.store.availability import UNTIL_IT_DOES
from redismem.store.open import open_store
from redismem.store.store import Store
from redismem.transport.connect import EMBEDDED
from redismem.transport.connect import connect as connect_transport

# Keys to scan for the names of namespaces: about a second.
SCANNED_LIMIT = 1_000_000
_NAMES_LIMIT = 10
_OF_NODES = ("+cluster", "+sentinel")
_URL_ADVICE = (
    "; a URL looks like redis://user:password@host:6379/0 or redis+sentinel://host:port,host:port/service/0, "
    "with user and password percent-encoded except for letters and digits"
)
HOW_TO_NAME_REDIS = "--url redis://127.0.0.1:6379/0, or REDISMEM_URL"


@dataclass(frozen=True, slots=True)
class ChosenStore:
    """The Redis chosen by the user, or the embedded store."""

    name: str
    """The address without user, password and options."""
    embedded: bool


def safe_url(url: str) -> str:
    """Return scheme, hosts, port and path of a URL, without any part that may belong to the password."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",") if parts.scheme.endswith(_OF_NODES) else []
        if len(hosts) > 1:
            [urlsplit(f"redis://{host}").port for host in hosts]  # an invalid port raises: it may be part of a password
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
    """Return the given URL, else the URL of the settings, else the URL of the embedded store."""
    address = url if url is not None else settings.url
    return EMBEDDED if address is None else address


def connect(
    url: str | None, namespace: str, on_event: OnEvent | None = None, **overrides: Any
) -> tuple[Memory, ChosenStore]:
    """Return a memory that is not connected yet, and its place. `overrides` are settings.

    Raises:
        Stop: if the URL is unusable.
        InvalidSessionId: if the namespace is invalid.
        InvalidSettings: if a setting is invalid.
    """
    settings = Settings(**overrides)
    address = address_of(url, settings)
    try:
        transport = connect_transport(address, None, settings)
    except InvalidSettings as refused:
        advice = _URL_ADVICE if "REDISMEM_" not in str(refused) else ""
        raise Stop(f"{refused}{advice}", 2) from None
    memory = Memory(open_store(transport, namespace, settings, on_event, None))
    embedded = address.lower() == EMBEDDED
    return memory, ChosenStore("embedded" if embedded else safe_url(address), embedded)


def warn_if_embedded(place: ChosenStore) -> None:
    """Warn that the command works on a new, empty store."""
    if place.embedded:
        complain(f"this is a new, empty embedded store; to use your Redis: {HOW_TO_NAME_REDIS}")


def stop_for(place: str, error: RedismemError) -> Stop:
    """Return the Stop for an error, without its words about later calls, since a command makes no later call."""
    return Stop(f"{place}: {error}".replace(UNTIL_IT_DOES, ""), UNREACHABLE)


async def _check_used(store: Store, place: ChosenStore) -> None:
    """Check that the namespace was ever used, because a wrong name looks like an empty namespace.

    Raises:
        Stop: if it was not; the text names the existing namespaces.
    """
    from redismem.inspection.projects import is_known

    if place.embedded or await is_known(store):
        return
    listed = "`redismem list namespaces` lists the existing ones"
    with contextlib.suppress(NotAllowed):  # without the right to scan, the command lists none either, and says why
        names, is_all = await list_names(store, SCANNED_LIMIT)
        close = difflib.get_close_matches(store.keys.namespace, names, _NAMES_LIMIT)
        names = [*close, *(name for name in names if name not in close)]
        if names:
            more = "" if is_all and len(names) <= _NAMES_LIMIT else f", …; {listed}"
            listed = f"there are: {', '.join(names[:_NAMES_LIMIT])}{more}"
        elif is_all:
            listed = "it has none yet"
    raise Stop(f"{place.name} has no namespace {store.keys.namespace}; {listed}", 2)


@contextlib.asynccontextmanager
async def open_unchecked(
    url: str | None, namespace: str = "default", on_event: OnEvent | None = None, **overrides: Any
) -> AsyncIterator[tuple[Memory, ChosenStore]]:
    """Yield a memory that connects with its first call, and its place.

    Raises:
        Stop: if Redis does not answer or refuses a call.
    """
    memory, place = connect(url, namespace, on_event, **overrides)
    try:
        yield memory, place
    except (StoreUnavailable, NotAllowed) as error:
        raise stop_for(place.name, error) from None
    finally:
        await memory.aclose()


@contextlib.asynccontextmanager
async def open_memory(
    url: str | None, namespace: str, on_event: OnEvent | None = None, **overrides: Any
) -> AsyncIterator[tuple[Memory, ChosenStore]]:
    """Yield a connected memory and its place. Records the namespace if it was never used. Raises Stop."""
    async with open_unchecked(url, namespace, on_event, **overrides) as (memory, place), memory:
        yield memory, place


@contextlib.asynccontextmanager
async def open_used(url: str | None, namespace: str) -> AsyncIterator[tuple[Memory, ChosenStore]]:
    """Yield a connected memory and its place, for commands that change what a used namespace holds.

    Raises:
        Stop: if the namespace was never used, or as `open_memory`.
    """
    async with open_read_only(url, namespace) as (memory, place):
        memory.store.agreement.is_agreed = False
        async with memory:
            yield memory, place


@contextlib.asynccontextmanager
async def open_read_only(
    url: str | None, namespace: str, *, unused_ok: bool = False
) -> AsyncIterator[tuple[Memory, ChosenStore]]:
    """Yield a memory for read-only commands, and its place. Does not record an unused namespace in Redis.

    Raises:
        Stop: if the namespace was never used and `unused_ok` is False, or if Redis does not answer or refuses a call.
    """
    async with open_unchecked(url, namespace) as (memory, place):
        warn_if_embedded(place)
        await memory.store.agreement.look()
        if not unused_ok:
            await _check_used(memory.store, place)
        memory.store.agreement.is_agreed = True  # else the first session call would record the namespace
        yield memory, place
