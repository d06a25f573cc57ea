"""Choose the transport for a URL, or for a client that the caller provides."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.settings.settings import Settings
from redismem.transport.base import Transport
from redismem.transport.credentials import Asker, Credentials, make_asker

log = logging.getLogger("redismem")

_Make = Callable[[str, Settings, Asker | None, bool], Transport]


def _reply_timeout_s(settings: Settings) -> float:
    return min(settings.reply_timeout_s, settings.deadline_s)


def _stall_s(settings: Settings) -> float:
    """Return the seconds without a reply after which a connection is closed.

    With the fallback, a call waits no longer than `fallback_after_s`. A longer stall would keep a dead connection for
    the probes that follow.
    """
    reply_timeout_s = _reply_timeout_s(settings)
    return min(reply_timeout_s, settings.fallback_after_s) if settings.fallback else reply_timeout_s


def _node(url: str, settings: Settings, asker: Asker | None, blocks: bool) -> Transport:
    from redismem.transport.url import Address

    address = Address.from_url(url, asker)
    if blocks:
        from redismem.transport.lane.blocking import BlockingLane

        return BlockingLane(address, max_connections=settings.max_connections)
    from redismem.transport.lane.lane import Lane

    return Lane(address, stall_s=_stall_s(settings), connect_s=_reply_timeout_s(settings))


def _cluster(url: str, settings: Settings, asker: Asker | None, blocks: bool) -> Transport:
    from redismem.transport.nodes import cluster, seeds, sides

    reply_timeout_s = _reply_timeout_s(settings)
    side = sides.ThreadSide(settings.max_connections) if blocks else sides.LoopSide(_stall_s(settings), reply_timeout_s)
    return cluster.Cluster(seeds.parse_cluster(url, asker), side, reply_timeout_s=reply_timeout_s)


def _sentinel(url: str, settings: Settings, asker: Asker | None, blocks: bool) -> Transport:
    from redismem.transport.nodes import seeds, sentinel

    places = seeds.parse_sentinel(url, asker)
    if blocks:
        return sentinel.BlockingSentinelLane(places, max_connections=settings.max_connections)
    return sentinel.SentinelLane(places, stall_s=_stall_s(settings), connect_s=_reply_timeout_s(settings))


def _embedded(url: str, settings: Settings, asker: Asker | None, blocks: bool) -> Transport:
    from redismem.transport.redis_py import embedded

    del url, settings, asker
    return embedded.embedded(blocks=blocks)


EMBEDDED = "memory://"
_OF_NODES = ("redis", "rediss", "valkey", "valkeys")
_MAKES: dict[str, _Make] = {
    **dict.fromkeys((*_OF_NODES, "unix"), _node),
    **{f"{scheme}+cluster": _cluster for scheme in _OF_NODES},
    **{f"{scheme}+sentinel": _sentinel for scheme in _OF_NODES},
    "memory": _embedded,
}
# All other schemes are one of these with valkey instead of redis, or with an s for TLS.
_FIRST_SCHEMES = "redis://, rediss://, valkey://, unix://, redis+cluster://, redis+sentinel://, memory://"


def connect(
    url: str | None, client: Any, settings: Settings, credentials: Credentials | None = None, *, blocks: bool = False
) -> Transport:
    """Return a transport over the caller's client or, without a client, to the URL.

    Without client and URL, it returns one to a new embedded store, with a warning. The URL `memory://` means an
    embedded store without a warning. Logs a warning if a blocking client has no timeout.

    Args:
        blocks: True for blocking callers.

    Raises:
        InvalidSettings: The URL, the client or the credentials cannot be used.
    """
    if client is None:
        make = _make_of(url)
        return make(url or EMBEDDED, settings, _asker(make, settings, credentials), blocks)
    from redismem.transport.redis_py import client as redis_py
    from redismem.transport.redis_py import given_client

    if credentials is not None:
        raise InvalidSettings("credentials are for a URL: a client has its own")
    transport = redis_py.RedisPy(client, owned=False, blocks=blocks)
    if blocks:
        given_client.warn_of_no_timeout(client)
    return transport


def connect_both(
    url: str | None, settings: Settings, credentials: Credentials | None = None
) -> tuple[Transport, Callable[[], Transport]]:
    """Return a transport for blocking callers, and a function that makes one to the same server for asyncio.

    Raises:
        InvalidSettings: The URL or the credentials cannot be used.
    """
    make = _make_of(url)
    asker = _asker(make, settings, credentials)
    if make is _embedded:
        from redismem.transport.redis_py import embedded

        return embedded.both()
    assert url is not None
    without_fallback = settings.model_copy(update={"fallback": False})  # the calls of workers have none
    return make(url, settings, asker, True), partial(make, url, without_fallback, asker, False)


def _asker(make: _Make, settings: Settings, credentials: Credentials | None) -> Asker | None:
    """Return the asker for a server. The embedded store has no users, and the settings may be for other processes."""
    if make is not _embedded:
        return make_asker(credentials, settings)
    if credentials is not None:
        raise InvalidSettings("credentials need the URL of a Redis: the embedded store has no users")
    return None


def _make_of(url: str | None) -> _Make:
    if url is None:
        log.warning(
            "no Redis URL is given: sessions live in this process and end with it; name a Redis, or say %s",
            EMBEDDED,
            extra=facts(op="connect"),
        )
        return _embedded
    if not isinstance(url, str):
        # Only the type, because a client's repr, or a URL in bytes, may contain a password.
        raise InvalidSettings(
            "the Redis URL must be a string such as redis://127.0.0.1:6379/0, "
            f"not one of the type {type(url).__name__}; pass a redis-py client as client="
        )
    if not url.strip():
        raise InvalidSettings(
            f"the Redis URL is empty: name a Redis, or say {EMBEDDED} to keep sessions in this process"
        )
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if scheme == "memory" and rest:
        raise InvalidSettings(f"the embedded store has no address: say {EMBEDDED} and nothing after it")
    if not separator or scheme not in _MAKES:
        # The error quotes no part of the URL: it may be a password.
        raise InvalidSettings(
            f"the Redis URL must begin with one of {_FIRST_SCHEMES}: for example redis://localhost:6379/0"
        )
    return _MAKES[scheme]
