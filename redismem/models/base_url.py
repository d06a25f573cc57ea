"""Where a model is asked: what may stand in its base URL. No I/O."""

from __future__ import annotations

import re

import httpx

from redismem.errors import InvalidSettings

_SECRET = re.compile("key|token|secret|password|^sig$|^code$")


def checked_url(base_url: str, allow_http: bool) -> tuple[str, str]:
    """The base URL without a slash at its end, and its query with its `?`: what goes before a path, and behind it.

    Raises InvalidSettings, without the URL: it may hold a password.
    """
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        raise InvalidSettings("the base URL of a model cannot be read") from None
    if url.scheme != "https" and not (allow_http and url.scheme == "http"):
        permits = "model_allow_http, or REDISMEM_MODEL_ALLOW_HTTP=true, permits http:// as well"
        raise InvalidSettings(f"the base URL of a model begins with https:// ({permits})")
    if not url.host or url.userinfo or url.fragment:
        raise InvalidSettings("the base URL of a model is a host, a path and perhaps a query: no user or fragment")
    if any(_SECRET.search(name.lower()) for name in url.params):
        raise InvalidSettings("the base URL of a model holds no key in its query: an address ends up in logs")
    base, mark, query = str(url).partition("?")
    return base.rstrip("/"), mark + query
