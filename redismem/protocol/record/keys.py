"""The keys of a record and of its shard, and the description that the record itself stores."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redismem.errors import CorruptSession, InvalidRecord, UnsupportedFormat
from redismem.protocol.birth import encode_birth, encode_id, netstring, read_birth
from redismem.protocol.keys import Keys, plain
from redismem.protocol.owners import check_owner, encode_owner, owner_mismatch, owner_score
from redismem.settings.environment import LONGEST_S

ID_BYTES = 1_024
"""The largest id or tag of a record, in UTF-8."""
DESCRIPTION = b""
"""The field of the description. Callers cannot use it, because their fields have at least one byte."""
LIFE = slice(2, 10)
"""The place of the life in a description."""
KEEP_EXPIRY = -1
"""The time to live in the keys of a worker, whose writes leave the expiry of a record alone."""
_VERSION = b"v1"
_OTHER_VERSION = re.compile(rb"v\d")
_RING = 10
"""The place of the number of nonces, which follow it."""
_NONCE_BYTES = 8


@dataclass(slots=True, unsafe_hash=True)
class RecordKeys:
    """The keys of one record, its shard's indexes of records, and what the record is created with. Never changed.

    It is not frozen, because a batch makes thousands, and a frozen one costs 2 µs more.
    """

    id: str
    tag: str
    owner: str | None
    ttl_ms: int | None
    record: bytes
    order: bytes
    records: bytes
    owned: bytes
    updated: bytes
    shard: bytes
    birth: bytes
    """Owner and tag, as the description of a new record ends."""

    @property
    def member(self) -> bytes:
        """The id in the indexes."""
        return encode_id(self.id)

    @property
    def score(self) -> int | str:
        """The score in the index of owners; `-` without an owner."""
        return "-" if self.owner is None else owner_score(self.owner)

    @property
    def named(self) -> bytes:
        """The owner that the record must have, as its birth begins; empty accepts any record."""
        return b"" if self.owner is None else netstring(encode_owner(self.owner))


@dataclass(frozen=True, slots=True)
class Description:
    """The description of a record: its life, its owner and its tag."""

    life: bytes
    owner: bytes | None
    tag: str


def record_keys(
    keys: Keys, record_id: str, tag: str | None = None, *, owner: str | None = None, ttl_s: float | None = None
) -> RecordKeys:
    """Return the keys of a record. Records of one tag, the id by default, share a hash tag.

    Raises:
        InvalidRecord: the id or the tag is no string of 1 to 1,024 bytes, or the time to live is out of range.
        InvalidSessionId: the owner is invalid.
    """
    record_id, tag = check_id("id", record_id), check_id("tag", record_id if tag is None else tag)
    owner = None if owner is None else check_owner(owner)
    birth = encode_birth(None if owner is None else encode_owner(owner), encode_id(tag))
    ttl_ms = None if ttl_s is None else _milliseconds(ttl_s)
    return keys_in_shard(keys.prefix_of(encode_id(tag)), record_id, tag, owner=owner, ttl_ms=ttl_ms, birth=birth)


def keys_in_shard(
    shard: bytes,
    record_id: str,
    tag: str = "",
    *,
    owner: str | None = None,
    ttl_ms: int | None = None,
    birth: bytes = b"",
) -> RecordKeys:
    """Return the keys of a record in a shard, whose keys begin so. Without a tag they cannot create the record."""
    member = encode_id(record_id)
    return RecordKeys(
        id=record_id,
        tag=tag,
        owner=owner,
        ttl_ms=ttl_ms,
        record=shard + b":record:" + member,
        order=shard + b":order:" + member,
        records=shard + b":records",
        owned=shard + b":records_owned",
        updated=shard + b":records_updated",
        shard=shard,
        birth=birth,
    )


def check_id(what: str, text: object) -> str:
    """Return an id or a tag as a plain string.

    Raises:
        InvalidRecord: it is no string of 1 to 1,024 bytes.
    """
    if not isinstance(text, str) or not text or (4 * len(text) > ID_BYTES and len(encode_id(text)) > ID_BYTES):
        raise InvalidRecord(f"the {what} of a record is a string of 1 to {ID_BYTES} bytes")
    return plain(text)


def decode_description(field: bytes | None) -> Description | None:
    """Decode the description of a record; None means that there is no record, or that another release wrote it."""
    if field is None or not field.startswith(_VERSION) or len(field) <= _RING:
        return None
    try:
        owner, tag = read_birth(birth_of(field))
    except ValueError:
        return None
    return Description(field[LIFE], owner, tag)


def describe_anew(life: bytes, birth: bytes) -> bytes:
    """Encode the description of a record that remembers no writes."""
    return _VERSION + life + b"\0" + birth


def is_described(field: bytes | None) -> bool:
    """True if this is the description of a record, and False if there is no record.

    Raises:
        UnsupportedFormat: another release wrote the record.
        CorruptSession: the description is damaged.
    """
    if field is None:
        return False
    if field.startswith(_VERSION) and _has_birth(field):
        return True
    if _OTHER_VERSION.match(field) and not field.startswith(_VERSION):
        raise UnsupportedFormat("the record was written by another release, whose format this one does not know")
    raise CorruptSession("the description of the record is damaged")


def is_own(keys: RecordKeys, field: bytes | None) -> bool:
    """True if this is the description of a record, and False if there is no record.

    Raises:
        UnsupportedFormat: another release wrote the record.
        CorruptSession: the description is damaged.
        OwnerMismatch: the record has another owner than the keys name.
    """
    if field is None or not is_described(field):
        return False
    if not birth_of(field).startswith(keys.named):
        raise owner_mismatch(None)
    return True


def writes_count(field: bytes) -> int:
    """Return the number of writes with conditions that this description remembers."""
    return field[_RING] if len(field) > _RING else 0


def birth_of(field: bytes) -> bytes:
    """Return owner and tag, as this description ends."""
    return field[_RING + 1 + _NONCE_BYTES * field[_RING] :]


def _has_birth(field: bytes) -> bool:
    """True if owner and tag follow the nonces; else the description has lost bytes."""
    return len(field) > _RING and birth_of(field)[:1].isdigit()


def _milliseconds(ttl_s: object) -> int:
    is_number = isinstance(ttl_s, int | float) and not isinstance(ttl_s, bool)
    if not is_number or not 0.001 <= float(ttl_s) <= LONGEST_S:  # type: ignore[arg-type]
        raise InvalidRecord(f"ttl_s of a record is a number of seconds, 0.001 to {LONGEST_S}")
    return int(float(ttl_s) * 1000)  # type: ignore[arg-type]
