"""Read what lists show of sessions: states, also those of one owner, and the first and last messages. No I/O.

Only the state says whose session it is. The messages are read after it, so the caller asks for the epochs once more at
the end: a session whose id was taken meanwhile by another owner has another epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.originals.blocks import MERGED_COUNT
from redismem.protocol import layout
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys, SessionKeys, is_session_id
from redismem.protocol.namespace.calls import name_of
from redismem.protocol.owners import decode_owner, encode_owner, owner_score

STATES_COUNT = 256
"""The states of one round trip: few enough that decoding them does not delay a turn."""
_MEMBERS_COUNT = 4_096
_ENDS_COUNT = 4
# What a round trip may return: the large messages of the windows, and smaller messages at both ends.
_ENDS_BYTES = 4 << 20
_SMALL_BYTES = 2 * _ENDS_COUNT * layout.LARGE_ABOVE_BYTES
# A first block that is larger is left out.
_BLOCK_BYTES = MERGED_COUNT * layout.LARGE_ABOVE_BYTES
_STATE = (layout.OWNER, layout.EPOCH, layout.COUNTERS, layout.TITLE, layout.LARGE_BYTES)


@dataclass(frozen=True, slots=True)
class Described:
    """The state of a session, as far as lists need it."""

    keys: SessionKeys
    epoch: bytes
    active_ms: int
    first_seq: int
    last_seq: int
    title: str | None
    large_bytes: int
    owner: str | None

    @property
    def order(self) -> tuple[int, bytes]:
        """The place of the session in the list."""
        return self.active_ms, self.keys.session

    @property
    def reads_block(self) -> bool:
        """True if the first message is among the originals."""
        return self.title is None and self.first_seq > 1


class Ends(NamedTuple):
    """The first and the last elements of a window, as far as they are needed."""

    first: Sequence[bytes]
    last: Sequence[bytes]
    has_block: bool
    """True if the first block of originals exists, and is not too large to be read."""


class Members:
    """Reads the ids in the index of owners with the owner's score, in steps. Some may belong to another owner."""

    def __init__(self, keys: Keys, owner: str) -> None:
        self._keys = keys
        self._score = owner_score(owner)
        self._count = max(16, _MEMBERS_COUNT // keys.shard_count)
        self._starts = dict.fromkeys(range(keys.shard_count), 0)

    def next_call(self) -> Call[list[SessionKeys]] | None:
        """Return a call that reads on; `None` if all are read."""
        if not self._starts:
            return None
        shards, starts = self._keys.shards(), self._starts
        commands = tuple(
            ("ZRANGEBYSCORE", shards[number].owners, self._score, self._score, "LIMIT", start, self._count)
            for number, start in starts.items()
        )

        def decode(*answers: Sequence[bytes]) -> list[SessionKeys]:
            read = dict(zip(starts, answers, strict=True))
            self._starts = {
                number: starts[number] + len(answer) for number, answer in read.items() if len(answer) == self._count
            }
            names = [name_of(member) for answer in answers for member in answer]
            return [self._keys.session(name) for name in names if is_session_id(name)]

        return independent(commands, decode, Op.SESSIONS)


def states(sessions: Sequence[SessionKeys], owner: str | None) -> Call[list[Described]]:
    """Build a call that reads the states of at most `STATES_COUNT` sessions.

    Those that have ended and those with an unreadable state are left out, and with `owner` those of another owner.
    """
    field = None if owner is None else encode_owner(owner)

    def decode(*answers: Sequence[bytes | None]) -> list[Described]:
        found = (_described(keys, field, answer) for keys, answer in zip(sessions, answers, strict=True))
        return [described for described in found if described is not None]

    return independent(tuple(("HMGET", keys.state, *_STATE) for keys in sessions), decode, Op.SESSIONS)


def _described(keys: SessionKeys, field: bytes | None, answer: Sequence[bytes | None]) -> Described | None:
    owner, epoch, counters, title, large = answer
    if (field is not None and owner != field) or epoch is None or counters is None:
        return None
    try:
        numbers = layout.counters(counters)
        large_bytes = int(large or 0)
    except (Undecodable, UnsupportedFormat, ValueError):
        return None
    seqs = numbers.first_seq, numbers.message_count
    name = layout.decode_title(title)
    return Described(keys, epoch, numbers.active_ms, *seqs, name, large_bytes, decode_owner(owner))


def in_groups(page: Sequence[Described]) -> Iterator[Sequence[Described]]:
    """Split sessions into groups whose windows' ends fit in one reply. A larger window is alone."""
    group, size = list[Described](), 0
    for described in page:
        own_size = _SMALL_BYTES + described.large_bytes
        if group and (size + own_size > _ENDS_BYTES or len(group) == STATES_COUNT):
            yield group
            group, size = [], 0
        group.append(described)
        size += own_size
    if group:
        yield group


def ends(group: Sequence[Described]) -> Call[list[Ends]]:
    """Build a call that reads the ends of the windows of these sessions."""

    def decode(*answers: Any) -> list[Ends]:
        replies = iter(answers)
        return [_ends(described, list(islice(replies, len(_end_commands(described))))) for described in group]

    commands = tuple(command for described in group for command in _end_commands(described))
    return independent(commands, decode, Op.SESSIONS)


def _end_commands(described: Described) -> list[Command]:
    commands: list[Command] = [("LRANGE", described.keys.messages, -_ENDS_COUNT, -1)]
    if described.title is None:
        commands.append(("LRANGE", described.keys.messages, 0, _ENDS_COUNT - 1))
    if described.reads_block:
        commands.append(("HSTRLEN", described.keys.originals, "0"))
    return commands


def _ends(described: Described, replies: Sequence[Any]) -> Ends:
    first = replies[1] if described.title is None else ()
    return Ends(first, replies[0], described.reads_block and 0 < replies[2] <= _BLOCK_BYTES)


def first_blocks(sessions: Sequence[SessionKeys]) -> Call[list[bytes | None]]:
    """Build a call that reads the first block of originals of each session."""
    commands = tuple(("HGET", keys.originals, "0") for keys in sessions)
    return independent(commands, lambda *blocks: list(blocks), Op.SESSIONS)


def epochs(sessions: Sequence[SessionKeys]) -> Call[list[bytes | None]]:
    """Build a call that reads the present epoch of each session."""
    commands = tuple(("HGET", keys.state, layout.EPOCH) for keys in sessions)
    return independent(commands, lambda *epochs: list(epochs), Op.SESSIONS)
