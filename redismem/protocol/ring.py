"""The bytes of the ring of append ids in a state. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from redismem.messages.values import Undecodable
from redismem.protocol.layout import NEWEST_IDS, OLDER_IDS

ID_BYTES = 12
"""The bytes of an append id.

Seven name the append, three the call, and two contain the message count. The top bit of the count is set if the append
created the session.
"""
NAME_BYTES, CALL_BYTES, COUNT_BYTES = 7, 10, 2
"""The bytes of an id that name the append, and with it the call; and the bytes of the count."""
_COUNT = 0x7FFF


def ring_ids(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """Return all append ids of a ring, oldest first.

    `ids_a` begins with the letter of the field with the oldest ids; the newest ids follow.

    Raises:
        Undecodable: the fields do not contain a ring.
    """
    newest = fields.get(NEWEST_IDS, b"b")
    letters = [name[-1:] for name in OLDER_IDS]
    if newest[:1] not in letters:
        raise Undecodable("the field ids_a does not begin with a letter of the ring")
    oldest = letters.index(newest[:1])
    older = (*OLDER_IDS[oldest:], *OLDER_IDS[:oldest])
    ring = b"".join(fields.get(name, b"") for name in older) + newest[1:]
    if len(ring) % ID_BYTES:
        raise Undecodable("the ring of append ids ends within an id")
    return [ring[at : at + ID_BYTES] for at in range(0, len(ring), ID_BYTES)]


def message_count(append_id: bytes) -> int:
    """Return the number of messages of an append; a state change has none."""
    return int.from_bytes(append_id[-COUNT_BYTES:]) & _COUNT


def newest_append(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the name and call of the newest append with messages; b"" if the ring has none, or cannot be read."""
    newest = fields.get(NEWEST_IDS, b"")[-ID_BYTES:]
    if len(newest) == ID_BYTES and message_count(newest):  # without the older ids, which take longer
        return newest[:CALL_BYTES]
    try:
        return next((each[:CALL_BYTES] for each in reversed(ring_ids(fields)) if message_count(each)), b"")
    except Undecodable:
        return b""
