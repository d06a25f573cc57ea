"""The ring of append ids in a state: what a session remembers of its last appends and changes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from redismem.protocol.layout import NEWEST_IDS, OLDER_IDS
from redismem.values import Undecodable

ID_BYTES = 12
"""An append id: seven bytes that name it, three of the call that made it, then the message count, the top bit set when
it created the session."""
IDS_COUNT = 16
"""So many appends and changes of the state are known for certain; the ring may hold a few more."""
NAME_BYTES, _COUNT_BYTES = 7, 2
_NEWEST_COUNT = 5


class AppendId(NamedTuple):
    """An append that the session remembers, or a change of its state: one of no messages."""

    name: bytes
    message_count: int


def remembered(fields: Mapping[bytes, bytes]) -> list[AppendId]:
    """The last appends, oldest first: IDS_COUNT at most.

    The newest stand behind the letter of the field that is the oldest. Raises Undecodable.
    """
    newest = fields.get(NEWEST_IDS, b"b")
    letters = [name[-1:] for name in OLDER_IDS]
    if newest[:1] not in letters:
        raise Undecodable("the appends that are remembered are in no order")
    oldest = letters.index(newest[:1])
    older = (*OLDER_IDS[oldest:], *OLDER_IDS[:oldest])
    ring = b"".join(fields.get(name, b"") for name in older) + newest[1:]
    if len(ring) % ID_BYTES:
        raise Undecodable("a part of an append is remembered")
    entries = [ring[at : at + ID_BYTES] for at in range(0, len(ring), ID_BYTES)][-IDS_COUNT:]
    return [AppendId(entry[:NAME_BYTES], int.from_bytes(entry[-_COUNT_BYTES:]) & 0x7FFF) for entry in entries]


def remember(fields: MutableMapping[bytes, bytes], name: bytes, message_count: int) -> None:
    """Puts an append into a ring that can be read, as `remember_append.lua` does, but for the call that made it."""
    newest = fields.get(NEWEST_IDS, b"b")
    if len(newest) > _NEWEST_COUNT * ID_BYTES:
        full = b"ids_" + newest[:1]
        fields[full] = newest[1:]
        newest = OLDER_IDS[(OLDER_IDS.index(full) + 1) % len(OLDER_IDS)][-1:]
    rest = bytes(ID_BYTES - NAME_BYTES - _COUNT_BYTES)
    fields[NEWEST_IDS] = newest + name + rest + message_count.to_bytes(_COUNT_BYTES)
