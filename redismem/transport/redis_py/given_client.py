"""A redis-py client that the caller brings: what it was made with, and what it is refused or warned of for."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from redis.connection import AbstractConnection

from redismem.errors import InvalidSettings
from redismem.events import facts

log = logging.getLogger("redismem")


def _options(client: Any) -> dict[str, Any]:
    """What its connections are made with; a cluster's client has a pool for each node and none of its own."""
    pool = getattr(client, "connection_pool", None)
    options: dict[str, Any]
    if pool is not None:
        options = getattr(pool, "connection_kwargs", None) or {}
    else:
        options = client.get_connection_kwargs() if hasattr(client, "get_connection_kwargs") else {}
    return options


def is_embedded(client: Any) -> bool:
    """Whether it is fakeredis' own."""
    return type(client).__module__.partition(".")[0] == "fakeredis"


def refuse_decoding(client: Any) -> None:
    """Raises InvalidSettings for a client that turns replies into text."""
    if _options(client).get("decode_responses"):
        raise InvalidSettings("the client must be made with decode_responses=False: messages are bytes")


def refuse_other(client: Any, foreign: tuple[type, ...], wanted: str) -> None:
    """Raises InvalidSettings for a client of the other memory: each of its calls would fail in its own odd way."""
    if isinstance(client, foreign):
        raise InvalidSettings(f"the client is a {type(client).__name__} of the wrong kind: this memory needs {wanted}")


def warn_of_no_timeout(client: Any) -> None:
    """Warns of a blocking client that waits for a reply without an end: nothing else can end its calls."""
    by_default = inspect.signature(AbstractConnection.__init__).parameters["socket_timeout"].default
    if _options(client).get("socket_timeout", by_default) is None and not is_embedded(client):
        log.warning(
            "the client has no socket_timeout: a Redis that stands still keeps each call for ever, whatever "
            "deadline_s says; make the client with socket_timeout=1, or give the URL instead",
            extra=facts(op="connect"),
        )


def place(client: Any) -> str:
    """Where it leads; "" for a cluster's."""
    if getattr(client, "connection_pool", None) is None:
        return ""
    options = _options(client)
    host = options.get("host")
    return str(options.get("path") or (f"{host}:{options.get('port', 6379)}" if host else ""))
