"""The ring of append ids in a state: what a session remembers of its last appends and changes. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.protocol import replies
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import COUNTERS, EPOCH, NEWEST_IDS, OLDER_IDS, bounds

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


class LastAppends(NamedTuple):
    """What Redis knows of a session's last appends."""

    epoch: bytes
    last_seq: int
    appends: Sequence[AppendId]
    """Oldest first."""
    server_ms: int | None
    """The server's clock; None if the session never expires, so that nothing tells it."""

    @property
    def forgotten_seq(self) -> int:
        """The last seq whose append the session does not remember; 0 if it remembers all."""
        return self.last_seq - sum(append.message_count for append in self.appends)

    def place(self, name: bytes) -> range:
        """The seqs of the append of this name; none if it is not remembered, or has no messages."""
        last_seq = self.last_seq
        for append in reversed(self.appends):
            if append.name == name:
                return range(last_seq - append.message_count + 1, last_seq + 1)
            last_seq -= append.message_count
        return range(0)


def last_appends(keys: SessionKeys) -> Call[LastAppends | None]:
    """None if there is no session. Appends that cannot be read are not remembered.

    Raises CorruptSession, UnsupportedFormat.
    """
    names = (NEWEST_IDS, *OLDER_IDS)

    def decode(stored: Sequence[bytes | None], expires_ms: int, left_ms: int) -> LastAppends | None:
        epoch, counters, *ids = stored
        if counters is None:
            return None
        try:
            last_seq = bounds(counters)[1]
        except UnsupportedFormat as other:
            raise UnsupportedFormat(str(other), keys.session_id) from None
        except (Undecodable, ValueError) as cause:
            raise replies.corrupt(keys.session_id, cause, (epoch or b"").decode("utf-8", "replace")) from None
        try:
            appends = remembered({name: part for name, part in zip(names, ids, strict=True) if part is not None})
        except Undecodable:
            appends = []
        return LastAppends(epoch or b"", last_seq, appends, expires_ms - left_ms if left_ms >= 0 else None)

    # What is left until a moment tells the clock of the very node that has the session: TIME may be asked of any.
    asked = ("HMGET", keys.state, EPOCH, COUNTERS, *names)
    commands = (asked, ("PEXPIRETIME", keys.state), ("PTTL", keys.state))
    return Call(keys.session_id, commands, decode, op=Op.MESSAGES)
