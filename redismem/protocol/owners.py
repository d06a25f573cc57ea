"""The owner of a session: the person whom it belongs to, as its state and the index `owners` of its shard contain it.

The index is a sorted set of sessions, like all indexes: so a script removes a session from it without its owner's name.
The score is a hash of the owner. Different owners may have equal hashes, so readers compare the name in the state.
"""

from __future__ import annotations

import hashlib

from redismem.errors import InvalidSessionId, OwnerMismatch
from redismem.protocol.keys import SessionKeys, is_session_id, plain

# Scores are doubles, which are exact up to 53 bits.
_SCORE_BITS = 52


def check_owner(owner: object) -> str:
    """Return the owner as a plain string.

    Raises:
        InvalidSessionId: the owner is not 1 to 256 bytes of UTF-8, or has control characters or surrounding whitespace.
    """
    if not is_session_id(owner):
        raise InvalidSessionId(
            "an owner is a string of 1 to 256 bytes in UTF-8, without control characters or surrounding whitespace"
        )
    return plain(owner)


def owner_score(owner: str) -> int:
    """Return the score of the owner's sessions in the index `owners`."""
    digest = hashlib.blake2b(owner.encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> (64 - _SCORE_BITS)


def encode_owner(owner: str) -> bytes:
    """Encode the field `owner` of a state: the score and the name.

    Raises:
        InvalidSessionId: the owner is invalid.
    """
    owner = check_owner(owner)
    return f"{owner_score(owner)} {owner}".encode()


def decode_owner(field: bytes | None) -> str | None:
    """Decode the field `owner` of a state; None means that the session has no owner."""
    return None if field is None else field.partition(b" ")[2].decode("utf-8", "replace")


def owner_mismatch(session_id: str | None) -> OwnerMismatch:
    """Return the error of a caller that names another owner. Without a session id, it is about a record."""
    kind = "record" if session_id is None else "session"
    text = f"the {kind} was begun with another owner than the one that is named, or with none"
    return OwnerMismatch(text, session_id)


def check_same_owner(keys: SessionKeys, owner: bytes | None, counters: bytes | None) -> None:
    """Check two fields of a state that was read: the owner is the one that the keys name, if they name one.

    Raises:
        OwnerMismatch: the session has another owner, or none.
    """
    if keys.owner is not None and owner != keys.owner and not (owner is counters is None):
        raise owner_mismatch(keys.session_id)


def is_owner_field(field: bytes) -> bool:
    """True if the field `owner` of a state is as `encode_owner` writes it."""
    try:
        name = field.partition(b" ")[2].decode()
        return encode_owner(name) == field
    except (InvalidSessionId, UnicodeDecodeError):
        return False
