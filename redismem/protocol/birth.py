"""The owner and tag that a record is created with, as records and notes of quarantine store them. No I/O."""

from __future__ import annotations


def encode_id(record_id: str) -> bytes:
    """Encode an id. Every string has an encoding of its own, also one with lone surrogates."""
    return record_id.encode("utf-8", "surrogatepass")


def decode_id(member: bytes) -> str | None:
    """Decode an id in an index; None means that it is no id, so another program wrote it."""
    try:
        return member.decode("utf-8", "surrogatepass") or None
    except UnicodeDecodeError:
        return None


def encode_birth(owner: bytes | None, tag: bytes) -> bytes:
    """Encode owner and tag of a record."""
    return netstring(owner or b"") + netstring(tag)


def read_birth(birth: bytes) -> tuple[bytes | None, str]:
    """Return owner and tag of a record. Raises ValueError if they are damaged."""
    owner, rest = _read_netstring(birth)
    tag, _ = _read_netstring(rest)
    return owner or None, decode_id(tag) or ""


def netstring(text: bytes) -> bytes:
    """Return the text after its length and a colon."""
    return b"%d:%b" % (len(text), text)


def _read_netstring(text: bytes) -> tuple[bytes, bytes]:
    size, _, rest = text.partition(b":")
    count = int(size)
    return rest[:count], rest[count:]
