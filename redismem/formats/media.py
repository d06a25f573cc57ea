"""Parse addresses of images and files: URLs that a provider can fetch, and data URLs. No I/O.

No function raises for any text, and all run in linear time. The parsers of the standard library raise ValueError for
some texts, and which ones depends on the Python version.
"""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote, unquote_to_bytes

LONGEST_ADDRESS_CHARS = 8_192
"""The longest accepted URL: servers commonly refuse a longer request line."""
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


def parse_address(url: str) -> str | None:
    """Return a valid http, https or gs URL in ASCII, else None."""
    url = url.strip()
    if len(url) > LONGEST_ADDRESS_CHARS or _CONTROLS.search(url):
        return None
    match = _ADDRESS.fullmatch(url)
    if match is None:
        return None
    scheme, host, port, rest = match.groups()
    if not all(0 < len(label) <= 63 for label in host.split(".")) or not 0 < int(port or 1) < 65_536:
        return None
    return f"{scheme.lower()}{host}{'' if port is None else f':{port}'}{quote(rest or '', _SAFE)}"


def guess_mime(address: str) -> str:
    """Guess the MIME type from the file extension of a URL; "" if the extension is unknown."""
    path = re.split("[?#]", address, maxsplit=1)[0]
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return _MIME_BY_ENDING.get(ending.lower(), "") if dot else ""


def kind_of_mime(mime: str, kind: str) -> str:
    """Return image, audio or video if the MIME type says so, `file` for any other type, and `kind` without a type."""
    main = mime.partition("/")[0]
    return main if main in ("image", "audio", "video") else "file" if mime else kind


def parse_mime(text: object) -> str:
    """Return the MIME type without its parameters; "" if the text is not one."""
    if not isinstance(text, str):
        return ""
    mime = text.partition(";")[0].strip().lower()
    return _ALIASES.get(mime, mime) if _MIME.fullmatch(mime) else ""


def parse_data_url(url: str) -> tuple[str, str | None] | None:
    """Return MIME type and base64 of a data URL; None if the URL is not a data URL.

    An invalid MIME type is returned as "", an invalid body as None.
    """
    if url[:5].lower() != "data:":
        return None
    head, comma, body = url[5:].partition(",")
    if head.rpartition(";")[2].strip().lower() == "base64":
        return parse_mime(head), parse_base64(body)
    if not comma or _CONTROLS.search(body):
        return parse_mime(head), None
    return parse_mime(head), base64.b64encode(unquote_to_bytes(body)).decode()


def parse_base64(text: object) -> str | None:
    """Return non-empty base64 in the standard alphabet (+ and /); None if the text is not base64."""
    if not isinstance(text, str):
        return None
    text = text.replace("-", "+").replace("_", "/")
    try:
        return text if base64.b64decode(text, validate=True) else None
    except (binascii.Error, ValueError):
        return None
