"""TLS certificates that connections to providers trust."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def default_ssl_context() -> ssl.SSLContext:
    """Return the context with certifi's certificates. All clients share it, because loading it takes 20 ms of CPU."""
    return httpx.create_ssl_context(trust_env=False)
