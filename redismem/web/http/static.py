"""The page: static files that are read once, and answered with headers of their own."""

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
    # Asked for anew each time, and then mostly answered with 304: nobody mixes modules of two releases.
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
def page_files() -> Mapping[str, File]:
    """The files of the page, by path. Nothing else is ever read, whatever is asked for."""
    folder = files("redismem.web") / "static"
    found = {}
    for each in folder.iterdir():
        ending = each.name.rpartition(".")[2]
        if ending in _TYPES:
            body = each.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'.encode()
            found[ROOT + each.name] = File(body, _TYPES[ending], etag)
    found["/"] = found.pop(f"{ROOT}index.html")
    return found


def is_page(path: str) -> bool:
    """True for paths of the page, which need no key and hold no user data."""
    return path == "/" or path.startswith(ROOT)


def answer_of(path: str, asked_etags: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
    """Status, headers and body; None: there is no such file. `asked_etags`: of If-None-Match."""
    file = page_files().get(path)
    if file is None:
        return None
    if any(each.strip().removeprefix(b"W/") in (file.etag, b"*") for each in asked_etags[:4096].split(b",")):
        return 304, [(b"etag", file.etag)], b""
    length = b"%d" % len(file.body)
    return 200, [(b"etag", file.etag), (b"content-type", file.media_type), (b"content-length", length)], file.body
