"""What a user gives for the address of an image or file: a URL that a provider can fetch, a data URL, or neither.

Nothing here raises, whatever the text, and all takes time in proportion to its length. The parsers of the standard
library raise ValueError for some texts, and for which ones depends on Python's version. No I/O.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote, unquote_to_bytes

LONGEST_ADDRESS_CHARS = 8_192
"""Servers commonly refuse a longer request line."""
_ADDRESS = re.compile(r"((?:https?|gs)://)([a-z0-9._-]{1,253})(?::([0-9]{1,5}))?([/?#].*)?", re.IGNORECASE | re.ASCII)
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029]")
_SAFE = "!#$%&'()*+,/:;=?@[]~"
_MIME = re.compile(r"[a-z]{1,20}/[a-z0-9][a-z0-9.+_-]{0,99}", re.ASCII)
_ALIASES = {"image/jpg": "image/jpeg"}
_MIME_BY_ENDING = {
    "jpg": "image/jpeg",
    "mp3": "audio/mpeg",
    "mov": "video/quicktime",
    "pdf": "application/pdf",
    "json": "application/json",
    "svg": "image/svg+xml",
    "tif": "image/tiff",
    "txt": "text/plain",
    "htm": "text/html",
    "md": "text/markdown",
    **{ending: f"image/{ending}" for ending in ("png", "jpeg", "webp", "gif", "heic", "heif", "avif", "bmp", "tiff")},
    **{ending: f"audio/{ending}" for ending in ("wav", "flac", "ogg", "aac")},
    **{ending: f"video/{ending}" for ending in ("mp4", "mpeg", "webm")},
    **{ending: f"text/{ending}" for ending in ("html", "css", "csv", "xml", "rtf")},
}


def address_of(url: str) -> str | None:
    """The http, https or gs address that this is, in ASCII; None if it is none that a server can be asked for."""
    url = url.strip()
    if len(url) > LONGEST_ADDRESS_CHARS or _CONTROLS.search(url):
        return None
    found = _ADDRESS.fullmatch(url)
    if found is None:
        return None
    scheme, host, port, rest = found.groups()
    if not all(0 < len(label) <= 63 for label in host.split(".")) or not 0 < int(port or 1) < 65_536:
        return None
    return f"{scheme.lower()}{host}{'' if port is None else f':{port}'}{quote(rest or '', _SAFE)}"


def mime_at(address: str) -> str:
    """The type that the ending of an address tells; "" if it tells none."""
    path = re.split("[?#]", address, maxsplit=1)[0]
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return _MIME_BY_ENDING.get(ending.lower(), "") if dot else ""


def mime_of(text: object) -> str:
    """The type that this names, without its parameters; "" if it names none."""
    if not isinstance(text, str):
        return ""
    mime = text.partition(";")[0].strip().lower()
    return _ALIASES.get(mime, mime) if _MIME.fullmatch(mime) else ""


def data_of(url: str) -> tuple[str, str | None] | None:
    """The type and the base64 of a data URL, each empty or None if it is not to be read; None for another URL."""
    if url[:5].lower() != "data:":
        return None
    head, comma, body = url[5:].partition(",")
    if head.rpartition(";")[2].strip().lower() == "base64":
        return mime_of(head), base64_of(body)
    if not comma or _CONTROLS.search(body):
        return mime_of(head), None
    return mime_of(head), base64.b64encode(unquote_to_bytes(body)).decode()


def base64_of(text: object) -> str | None:
    """The text if it is base64 of something, written with + and /; else None."""
    if not isinstance(text, str):
        return None
    text = text.replace("-", "+").replace("_", "/")
    try:
        return text if base64.b64decode(text, validate=True) else None
    except (binascii.Error, ValueError):
        return None
