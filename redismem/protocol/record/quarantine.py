"""Tell whether a record is unreadable, and describe a restored one anew. No I/O."""

from __future__ import annotations

import os

from redismem.errors import CorruptSession
from redismem.protocol.quarantine import RECORD, Copy, Origin, Revival, Seen, encode_note
from redismem.protocol.record.keys import DESCRIPTION, RecordKeys, birth_of, describe_anew, is_described

_NONCE_BYTES = 8


def of_record(keys: RecordKeys) -> Origin:
    """Return the place of a record."""
    return Origin(RECORD, keys.shard, keys.member)


def describe_damage(keys: RecordKeys, seen: Seen, *, forced: bool = False) -> bytes | None:
    """Return the note about a record to move aside; `None` if it is readable or gone.

    `forced` moves a readable record too.

    Raises:
        UnsupportedFormat: another release wrote the record.
    """
    described = seen.fields.get(DESCRIPTION)
    try:
        is_readable = is_described(described)
    except CorruptSession:
        is_readable = False
    has_record = any(key.name == "record" for key in seen.keys)
    is_sound = all(key.is_sound for key in seen.keys) and is_readable is has_record
    if not seen.keys or (is_sound and not forced):
        return None
    birth = birth_of(described) if described is not None and is_readable else keys.birth
    knows_owner = is_readable or keys.owner is not None
    return encode_note(birth, lasts=seen.keys[0].expires_ms < 0, knows_owner=knows_owner)


def revive(copy: Copy) -> Revival:
    """Return what the restoration of a record writes: a description with a new life."""
    life = os.urandom(_NONCE_BYTES)
    score = b"-" if copy.owner is None else copy.owner.partition(b" ")[0]
    sets = {DESCRIPTION: describe_anew(life, copy.birth)}
    # A list by time of update must not miss it, and this is the only time that is known.
    return Revival(life, 0 if copy.lasts else "-", (0, score, copy.put_ms * 1000), sets)
