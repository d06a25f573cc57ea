"""The static files of the page, which are read once and sent with headers of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ROOT = "/static/"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
HEADERS = [
    # Revalidated on each load, so that a browser never mixes modules of two releases.
    (b"cache-control", b"no-cache"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; frame-ancestors 'none'; form-action 'none'; require-trusted-types-for 'script'; "
        b"trusted-types 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]


class File(NamedTuple):
    """A file of the page."""

    body: bytes
    media_type: bytes
    etag: bytes


@cache
def load_pages() -> Mapping[str, File]:
    """Return the files of the page by path. No request can read any other file."""
    folder = files("redismem.web") / "static"
    pages = {}
    for file in folder.iterdir():
        ending = file.name.rpartition(".")[2]
        if ending in _TYPES:
            body = file.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
            pages[ROOT + file.name] = File(body, _TYPES[ending], etag)
    pages["/"] = pages.pop(f"{ROOT}index.html")
    return pages


def is_page(path: str) -> bool:
    """True if a path belongs to the page, which needs no key and contains no user data."""
    return path == "/" or path.startswith(ROOT)


def respond_with_page(path: str, etags: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
    """Return status, headers and body for a path; `None` if there is no such file. `etags` is the If-None-Match."""
    file = load_pages().get(path)
    if file is None:
        return None
    if any(etag.strip().removeprefix(b"W/") in (file.etag, b"*") for etag in etags[:4096].split(b",")):
        return 304, [(b"etag", file.etag)], b""
    length = b"%d" % len(file.body)
    return 200, [(b"etag", file.etag), (b"content-type", file.media_type), (b"content-length", length)], file.body
