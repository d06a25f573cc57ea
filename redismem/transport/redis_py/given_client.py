"""Check a redis-py client that the caller provides."""

from __future__ import annotations

import inspect
import logging
import math
import time
from typing import Any

import redis
import redis.asyncio
from redis.client import NEVER_DECODE
from redis.connection import AbstractConnection

from redismem.errors import InvalidSettings
from redismem.events import facts

log = logging.getLogger("redismem")
_EXPIRY_S = 1.0


def _options(client: Any) -> dict[str, Any]:
    """Return the options of the client's connections. A cluster client has one pool per node."""
    pool = getattr(client, "connection_pool", None)
    options: dict[str, Any]
    if pool is not None:
        options = getattr(pool, "connection_kwargs", None) or {}
    else:
        options = client.get_connection_kwargs() if hasattr(client, "get_connection_kwargs") else {}
    return options


def is_embedded(client: Any) -> bool:
    """True if the client is a fakeredis client."""
    return type(client).__module__.partition(".")[0] == "fakeredis"


class Expiry:
    """The times at which a store is asked for its size, by which fakeredis removes expired keys; Redis does so itself.

    Otherwise a session that nobody asks for again would stay in memory.
    """

    def __init__(self, client: Any) -> None:
        self._due_s = 0.0 if is_embedded(client) else math.inf

    def is_due(self) -> bool:
        """True if the store has to be asked, at most once a second."""
        now_s = time.monotonic()
        if now_s < self._due_s:
            return False
        self._due_s = now_s + _EXPIRY_S
        return True


def reading_options(client: Any) -> dict[str, Any]:
    """Return the options of each command that have the client return bytes, even if it decodes replies into text.

    Raises:
        InvalidSettings: The client decodes replies, and is a cluster client or an embedded store.
    """
    if not _options(client).get("decode_responses"):
        return {}
    if getattr(client, "connection_pool", None) is None or is_embedded(client):
        raise InvalidSettings("the client must be made with decode_responses=False: messages are bytes")
    return {NEVER_DECODE: True}


def refuse_other(client: Any, *, blocks: bool) -> None:
    """Check that the client fits this kind of memory, asyncio or blocking.

    Otherwise each call would fail with an error that explains nothing.

    Raises:
        InvalidSettings: The client is of the other kind, or is no client, such as a URL.
    """
    foreign: tuple[type, ...]
    foreign, wanted = (redis.Redis, redis.RedisCluster), "one of redis.asyncio"
    if blocks:
        foreign = (redis.asyncio.Redis, redis.asyncio.RedisCluster)
        wanted = "a redis.Redis; redismem.Memory takes this one"
    if isinstance(client, foreign) or not hasattr(client, "execute_command"):
        raise InvalidSettings(f"the client is a {type(client).__name__} of the wrong kind: this memory needs {wanted}")


def warn_of_no_timeout(client: Any) -> None:
    """Log a warning if a blocking client has no timeout, because nothing else can end its calls."""
    by_default = inspect.signature(AbstractConnection.__init__).parameters["socket_timeout"].default
    if _options(client).get("socket_timeout", by_default) is None and not is_embedded(client):
        log.warning(
            "the client has no socket_timeout: if Redis stalls, each call blocks for ever, whatever "
            "deadline_s says; make the client with socket_timeout=1, or give the URL instead",
            extra=facts(op="connect"),
        )


def place(client: Any) -> str:
    """Return the host and port of the client's server, or the path of its socket; "" for a cluster client."""
    if getattr(client, "connection_pool", None) is None:
        return ""
    options = _options(client)
    host = options.get("host")
    return str(options.get("path") or (f"{host}:{options.get('port', 6379)}" if host else ""))
