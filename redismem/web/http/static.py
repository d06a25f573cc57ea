"""The static files of the page: joined, compressed and named by their content, and sent with headers of their own."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from redismem.web.http.bundle import join_modules

ROOT = "/static/"
_TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
_HASH_CHARS = 16
_HASHED = re.compile(rf"({ROOT}\w+)\.[0-9a-f]{{{_HASH_CHARS}}}(\.\w+)")
_STYLES = re.compile(rf'(?: *<link rel="stylesheet" href="{ROOT}\w+\.css">\n)+')
# A name that changes with the content never has to be asked for again; all else is revalidated on each load.
_FOREVER = b"public, max-age=31536000, immutable"
_REVALIDATED = b"no-cache"
HEADERS = [
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
    """A file of the page, plain and compressed."""

    body: bytes
    gzipped: bytes
    media_type: bytes
    digest: str


@cache
def load_pages() -> Mapping[str, File]:
    """Return the files of the page by path, without the digests in their names. No request can read any other file."""
    folder = files("redismem.web") / "static"
    texts = {file.name: file.read_text("utf-8") for file in folder.iterdir() if _ending(file.name) in _TYPES}
    page = texts["index.html"]
    modules = {name.removesuffix(".js"): text for name, text in texts.items() if _ending(name) == "js"}
    styles = [texts[name] for name in re.findall(rf'href="{ROOT}(\w+\.css)"', page)]
    joined = {
        f"{ROOT}app.js": join_modules(modules, "app"),
        f"{ROOT}page.css": "".join(styles),
        f"{ROOT}icon.svg": texts["icon.svg"],
    }
    pages = {path: _file(path, text) for path, text in joined.items()}
    page = _STYLES.sub(f'  <link rel="stylesheet" href="{ROOT}page.css">\n', page)
    for path, file in pages.items():
        page = page.replace(f'"{path}"', f'"{_hashed(path, file)}"')
    pages["/"] = _file("index.html", page)
    return pages


def _file(path: str, text: str) -> File:
    body = text.encode()
    digest = hashlib.sha256(body).hexdigest()
    return File(body, gzip.compress(body, mtime=0), _TYPES[_ending(path)], digest)


def _ending(path: str) -> str:
    return path.rpartition(".")[2]


def _hashed(path: str, file: File) -> str:
    """Return the path with the digest in the name: `/static/app.js` becomes `/static/app.<digest>.js`."""
    stem, _, ending = path.rpartition(".")
    return f"{stem}.{file.digest[:_HASH_CHARS]}.{ending}"


def is_page(path: str) -> bool:
    """True if a path belongs to the page, which needs no key and contains no user data."""
    return path == "/" or path.startswith(ROOT)


def respond_with_page(path: str, etags: bytes, encodings: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
    """Return status, headers and body for a path; `None` if there is no such file.

    A name with another release's digest gets this release's file, to be revalidated: while servers are replaced one by
    one, the page of one may ask another for its script.

    Args:
        etags: The header If-None-Match.
        encodings: The header Accept-Encoding.
    """
    plain = _HASHED.sub(r"\1\2", path) if _HASHED.fullmatch(path) else path
    file = load_pages().get(plain)
    if file is None:
        return None
    is_gzipped = _accepts_gzip(encodings)
    etag = f'"{file.digest[:32]}{"-gzip" if is_gzipped else ""}"'.encode()
    is_fixed = path != plain and path == _hashed(plain, file)
    headers = [
        (b"cache-control", _FOREVER if is_fixed else _REVALIDATED),
        (b"vary", b"accept-encoding"),
        (b"etag", etag),
    ]
    if any(each.strip().removeprefix(b"W/") in (etag, b"*") for each in etags[:4096].split(b",")):
        return 304, headers, b""
    body = file.gzipped if is_gzipped else file.body
    if is_gzipped:
        headers.append((b"content-encoding", b"gzip"))
    return 200, [*headers, (b"content-type", file.media_type), (b"content-length", b"%d" % len(body))], body


def _accepts_gzip(encodings: bytes) -> bool:
    """True if a header Accept-Encoding names gzip with a weight above 0."""
    for each in encodings[:4096].lower().split(b","):
        name, _, weight = each.replace(b" ", b"").partition(b";")
        if name == b"gzip":
            return re.fullmatch(rb"q=0(\.0*)?", weight) is None
    return False
