"""The ring of append ids in a state, which names the last appends and state changes of a session. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import NamedTuple

from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.protocol import replies
from redismem.protocol.call import Call
from redismem.protocol.keys import SessionKeys
from redismem.protocol.layout import COUNTERS, EPOCH, LEFT_IDS, NEWEST_IDS, OLDER_IDS, bounds
from redismem.protocol.ring import COUNT_BYTES, ID_BYTES, NAME_BYTES, message_count, ring_ids

IDS_COUNT = 16
"""The number of appends and state changes that are always remembered. The ring may contain a few more."""
_NEWEST_COUNT = 5
_OLDER_BYTES = ID_BYTES + 12


class AppendId(NamedTuple):
    """A remembered append, or a state change, which has no messages."""

    name: bytes
    message_count: int


def decode_appends(fields: Mapping[bytes, bytes]) -> list[AppendId]:
    """Decode the last appends, oldest first: at most IDS_COUNT.

    Raises:
        Undecodable: the fields do not contain a ring.
    """
    ids = ring_ids(fields)[-IDS_COUNT:]
    return [AppendId(each[:NAME_BYTES], message_count(each)) for each in ids]


def remember(fields: MutableMapping[bytes, bytes], name: bytes, message_count: int) -> None:
    """Add an append to a readable ring, as `remember_append.lua` does. The three bytes of the call stay 0."""
    newest = fields.get(NEWEST_IDS, b"b")
    if len(newest) > _NEWEST_COUNT * ID_BYTES:
        full = b"ids_" + newest[:1]
        fields[full] = newest[1:]
        newest = OLDER_IDS[(OLDER_IDS.index(full) + 1) % len(OLDER_IDS)][-1:]
    rest = bytes(ID_BYTES - NAME_BYTES - COUNT_BYTES)
    fields[NEWEST_IDS] = newest + name + rest + message_count.to_bytes(COUNT_BYTES)


class LastAppends(NamedTuple):
    """The last appends of a session, as Redis remembers them."""

    epoch: bytes
    last_seq: int
    appends: Sequence[AppendId]
    """Oldest first."""
    server_ms: int | None
    """The server's clock; None if the session never expires, because the clock is read from its expiry."""
    older: Mapping[bytes, range]
    """The seqs of older appends of one memory, by name. A minute later they are forgotten."""

    @property
    def forgotten_seq(self) -> int:
        """The last seq whose append is no longer remembered; 0 if every append is remembered."""
        return self.last_seq - sum(append.message_count for append in self.appends)

    def place(self, name: bytes) -> range:
        """Return the seqs of an append. The range is empty if the append is not remembered or has no messages."""
        last_seq = self.last_seq
        for append in reversed(self.appends):
            if append.name == name:
                return range(last_seq - append.message_count + 1, last_seq + 1)
            last_seq -= append.message_count
        return self.older.get(name, range(0))


def _decode_older(ids: bytes) -> dict[bytes, range]:
    """Decode a field `ids:`, which `keep_older.lua` writes: ids, each with its last seq. Leaves out what is no id."""
    found = {}
    for at in range(0, len(ids) - _OLDER_BYTES + 1, _OLDER_BYTES):
        append_id, last = ids[at : at + ID_BYTES], ids[at + ID_BYTES : at + _OLDER_BYTES]
        if last.isdigit():
            found[append_id[:NAME_BYTES]] = range(int(last) + 1 - message_count(append_id), int(last) + 1)
    return found


def last_appends(keys: SessionKeys, token: bytes) -> Call[LastAppends | None]:
    """Build a call that reads the last appends, and older ones of the memory that has drawn this token.

    None means that there is no session. An unreadable ring counts as empty.

    Decoding raises:
        CorruptSession: the counters cannot be read.
        UnsupportedFormat: another release wrote the session.
    """
    names = (NEWEST_IDS, *OLDER_IDS)
    older_name = LEFT_IDS + b"%d" % token[NAME_BYTES]

    def decode(stored: Sequence[bytes | None], expires_ms: int, left_ms: int) -> LastAppends | None:
        epoch, counters, older, *ids = stored
        if counters is None:
            return None
        with replies.decoding(keys.session_id, epoch):
            last_seq = bounds(counters)[1]
        try:
            appends = decode_appends({name: part for name, part in zip(names, ids, strict=True) if part is not None})
        except Undecodable:
            appends = []
        server_ms = expires_ms - left_ms if left_ms >= 0 else None
        return LastAppends(epoch or b"", last_seq, appends, server_ms, _decode_older(older or b""))

    # The expiry time minus the time to live is the clock of the session's node. TIME could go to any node.
    read_state = ("HMGET", keys.state, EPOCH, COUNTERS, older_name, *names)
    commands = (read_state, ("PEXPIRETIME", keys.state), ("PTTL", keys.state))
    return Call(keys.session_id, commands, decode, op=Op.MESSAGES)
