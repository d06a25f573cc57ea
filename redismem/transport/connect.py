"""Choose the transport for a URL, or for a client that the caller provides."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.settings.settings import Settings
from redismem.transport.base import Transport
from redismem.transport.credentials import Asker, Credentials, make_asker

log = logging.getLogger("redismem")

_Make = Callable[[str, Settings, Asker | None], Transport]


def _reply_timeout_s(settings: Settings) -> float:
    return min(settings.reply_timeout_s, settings.deadline_s)


def _stall_s(settings: Settings) -> float:
    """Return the seconds without a reply after which a connection is closed.

    With the fallback, a call waits no longer than `fallback_after_s`. A longer stall would keep a dead connection for
    the probes that follow.
    """
    reply_timeout_s = _reply_timeout_s(settings)
    return min(reply_timeout_s, settings.fallback_after_s) if settings.fallback else reply_timeout_s


def _lane(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.lane.lane import Lane
    from redismem.transport.url import Address

    address = Address.from_url(url, asker)
    return Lane(address, stall_s=_stall_s(settings), connect_s=_reply_timeout_s(settings))


def _blocking_lane(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.lane.blocking import BlockingLane

    return BlockingLane.from_url(url, max_connections=settings.max_connections, asker=asker)


def _cluster(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.nodes import cluster, seeds, sides

    reply_timeout_s = _reply_timeout_s(settings)
    side = sides.LoopSide(_stall_s(settings), reply_timeout_s)
    return cluster.Cluster(seeds.parse_cluster(url, asker), side, reply_timeout_s=reply_timeout_s)


def _blocking_cluster(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.nodes import cluster, seeds, sides

    side = sides.ThreadSide(settings.max_connections)
    return cluster.Cluster(seeds.parse_cluster(url, asker), side, reply_timeout_s=_reply_timeout_s(settings))


def _sentinel(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.nodes import seeds, sentinel

    places = seeds.parse_sentinel(url, asker)
    return sentinel.SentinelLane(places, stall_s=_stall_s(settings), connect_s=_reply_timeout_s(settings))


def _blocking_sentinel(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.nodes import seeds, sentinel

    return sentinel.BlockingSentinelLane(seeds.parse_sentinel(url, asker), max_connections=settings.max_connections)


def _embedded(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.redis_py import embedded

    del url, settings, asker
    return embedded.embedded()


def _blocking_embedded(url: str, settings: Settings, asker: Asker | None) -> Transport:
    from redismem.transport.redis_py import embedded

    del url, settings, asker
    return embedded.blocking_embedded()


EMBEDDED = "memory://"
_OF_NODES = ("redis", "rediss", "valkey", "valkeys")
# scheme -> makers of the transport: for asyncio, for blocking callers
_MAKES: dict[str, tuple[_Make, _Make]] = {
    "redis": (_lane, _blocking_lane),
    "rediss": (_lane, _blocking_lane),
    "valkey": (_lane, _blocking_lane),
    "valkeys": (_lane, _blocking_lane),
    "unix": (_lane, _blocking_lane),
    **{f"{scheme}+cluster": (_cluster, _blocking_cluster) for scheme in _OF_NODES},
    **{f"{scheme}+sentinel": (_sentinel, _blocking_sentinel) for scheme in _OF_NODES},
    "memory": (_embedded, _blocking_embedded),
}
# All other schemes are one of these with valkey instead of redis, or with an s for TLS.
_FIRST_SCHEMES = "redis://, rediss://, unix://, redis+cluster://, redis+sentinel://, memory://"
# A URL without a scheme may be a password, but not in this form.
_BARE_ADDRESS = re.compile(
    r"(localhost|[0-9]{1,3}(\.[0-9]{1,3}){3}|\[[0-9a-f]{0,4}:[0-9a-f:]{1,40}\])(:[0-9]{1,5})?(/[0-9]{1,3})?"
)


def connect(url: str | None, client: Any, settings: Settings, credentials: Credentials | None = None) -> Transport:
    """Return a transport over the caller's client or, without a client, to the URL.

    Without client and URL, it returns one to a new embedded store, with a warning. The URL `memory://` means an
    embedded store without a warning.

    Raises:
        InvalidSettings: The URL, the client or the credentials cannot be used.
    """
    if client is not None:
        from redismem.transport.redis_py import client as redis_py

        _refuse_credentials(credentials)
        return redis_py.RedisPy(client, owned=False)
    make, _ = _makes(url)
    return make(url or EMBEDDED, settings, _asker(make, settings, credentials))


def connect_blocking(
    url: str | None, client: Any, settings: Settings, credentials: Credentials | None = None
) -> Transport:
    """Return a transport for blocking callers, as `connect` does. Logs a warning if a client has no timeout.

    Raises:
        InvalidSettings: The URL, the client or the credentials cannot be used.
    """
    if client is not None:
        from redismem.transport.redis_py import client as redis_py
        from redismem.transport.redis_py import given_client

        _refuse_credentials(credentials)
        transport = redis_py.RedisPy(client, owned=False, blocks=True)
        given_client.warn_of_no_timeout(client)
        return transport
    make, make_blocking = _makes(url)
    return make_blocking(url or EMBEDDED, settings, _asker(make, settings, credentials))


def connect_both(
    url: str | None, settings: Settings, credentials: Credentials | None = None
) -> tuple[Transport, Callable[[], Transport]]:
    """Return a transport for blocking callers, and a function that makes one to the same server for asyncio.

    Raises:
        InvalidSettings: The URL or the credentials cannot be used.
    """
    make, make_blocking = _makes(url)
    asker = _asker(make, settings, credentials)
    if make is _embedded:
        from redismem.transport.redis_py import embedded

        return embedded.both()
    assert url is not None
    without_fallback = settings.model_copy(update={"fallback": False})  # the calls of workers have none
    return make_blocking(url, settings, asker), partial(make, url, without_fallback, asker)


def _asker(make: _Make, settings: Settings, credentials: Credentials | None) -> Asker | None:
    """Return the asker for a server. The embedded store has no users, and the settings may be for other processes."""
    if make is not _embedded:
        return make_asker(credentials, settings)
    if credentials is not None:
        raise InvalidSettings("credentials need the URL of a Redis: the embedded store has no users")
    return None


def _refuse_credentials(credentials: Credentials | None) -> None:
    if credentials is not None:
        raise InvalidSettings("credentials are for a URL: a client has its own")


def _kind_of(given: object) -> str:
    """Return only the type, because a client's repr, or a URL in bytes, may contain a password."""
    return f"one of the type {type(given).__name__}"


def _makes(url: str | None) -> tuple[_Make, _Make]:
    if url is None:
        log.warning(
            "no Redis URL is given: sessions live in this process and end with it; name a Redis, or say %s",
            EMBEDDED,
            extra=facts(op="connect"),
        )
        return _MAKES["memory"]
    if not isinstance(url, str):
        raise InvalidSettings(
            f"the Redis URL must be a string such as redis://127.0.0.1:6379/0, not {_kind_of(url)}; "
            "pass a redis-py client as client="
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
        raise InvalidSettings(f"the Redis URL must begin with one of {_FIRST_SCHEMES}: {_suggest(url)}")
    return _MAKES[scheme]


def _suggest(url: str) -> str:
    """Return a suggestion for a wrong URL. It quotes no part of the URL that may be a password."""
    if _BARE_ADDRESS.fullmatch(url):
        return f"did you mean redis://{url}?"
    near = difflib.get_close_matches(url.partition(":")[0].lower(), _MAKES, 1)
    return f"did you mean {near[0]}://?" if near else "for example redis://localhost:6379/0"
