"""Whom a connection to a provider trusts."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted() -> ssl.SSLContext:
    """The certificates of the package certifi, the same for all clients: to read them takes 20 ms of a processor."""
    return httpx.create_ssl_context(trust_env=False)
