"""Validate the base URL of a model. No I/O."""

from __future__ import annotations

import re

import httpx

from redismem.errors import InvalidSettings

_SECRET = re.compile("key|token|secret|password|^sig$|^code$")


def split_base_url(base_url: str, allow_http: bool) -> tuple[str, str]:
    """Return the base URL without its trailing slash, and its query with the `?`, to put before and after a path.

    Raises InvalidSettings; the error does not quote the URL, which may contain a password.
    """
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        raise InvalidSettings("the base URL of a model is invalid") from None
    if url.scheme != "https" and not (allow_http and url.scheme == "http"):
        permits = "model_allow_http, or REDISMEM_MODEL_ALLOW_HTTP=true, permits http://"
        raise InvalidSettings(f"the base URL of a model must begin with https:// ({permits})")
    if not url.host or url.userinfo or url.fragment:
        raise InvalidSettings("the base URL of a model may have a host, a path and a query, but no user or fragment")
    if any(_SECRET.search(name.lower()) for name in url.params):
        raise InvalidSettings("the base URL of a model must not contain a key in its query: URLs end up in logs")
    base, mark, query = str(url).partition("?")
    return base.rstrip("/"), mark + query
