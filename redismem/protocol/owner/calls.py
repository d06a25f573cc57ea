"""Calls about the sessions of an owner, for recall over all of them. No I/O.

Sessions have several slots, so no transaction reads them together. A reader compares the state of each session before
and after it has read the session's messages: if both are equal, the messages belong to the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redismem.errors import UnsupportedFormat
from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number
from redismem.protocol import layout
from redismem.protocol.call import Call, Command, independent
from redismem.protocol.keys import Keys, SessionKeys
from redismem.protocol.namespace.traces import owned_sessions
from redismem.protocol.session import pages
from redismem.protocol.session.pages import Block

Stored = Sequence[bytes | None]
"""The fields of a state, as stored."""

_FIELDS = (
    *(layout.OWNER, layout.COUNTERS, layout.LARGE_BYTES),
    *(layout.EPOCH, layout.WITH_ORIGINALS, layout.EDITED, layout.PRUNED, layout.ZONE, layout.COMMITTED),
)
_LISTED_COUNT = 8_192
"""About as many sessions of an owner are listed at most; shards share them evenly."""
_LEAST_LISTED = 32
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class OwnedState:
    """The state of a session of the owner, as far as recall depends on it."""

    session_id: str
    stored: Stored
    epoch: str
    first_seq: int
    last_seq: int
    active_ms: int
    window_bytes: int
    """The approximate size of the window."""
    has_originals: bool
    zone: str | None

    @property
    def life(self) -> Stored:
        """The fields that change when messages change or go."""
        return self.stored[3:8]

    @property
    def has_window(self) -> bool:
        """True if there are messages that no summary covers."""
        return self.last_seq >= self.first_seq

    @property
    def originals(self) -> range:
        """The numbers of the blocks that contain originals."""
        return range(block_number(self.first_seq - 1) + 1 if self.has_originals else 0)

    def is_as(self, other: OwnedState, *, with_window: bool) -> bool:
        """True if both have the same messages; without the window, if both have the same originals."""
        if with_window:
            return self.stored == other.stored
        return self.stored[3:] == other.stored[3:] and self.first_seq == other.first_seq


def decode_state(session_id: str, owner: bytes, stored: Stored) -> OwnedState | None:
    """Decode the state of a session. None: there is no session, it has another owner, or it cannot be read."""
    field, counters, large, epoch, kept, _, _, zone, _ = stored
    if field != owner or counters is None or epoch is None:
        return None
    try:
        numbers = layout.counters(counters)
    except (Undecodable, UnsupportedFormat):
        return None  # the next turn of that session puts it into quarantine, or is refused
    window_bytes = numbers.tokens * _BYTES_PER_TOKEN + int(large if large and large.isdigit() else 0)
    return OwnedState(
        session_id,
        stored,
        epoch.decode("utf-8", "replace"),
        numbers.first_seq,
        numbers.message_count,
        numbers.active_ms,
        window_bytes,
        kept is not None,
        layout.decode_zone(zone),
    )


def read_states(states: Sequence[bytes]) -> Call[list[Stored]]:
    """Build a call that reads these states, by their keys."""
    return independent(tuple(_read_state(state) for state in states), lambda *answers: list(answers), Op.RECALL)


def list_sessions(keys: Keys, owner: str, known: Mapping[str, bytes]) -> Call[tuple[list[str], dict[str, Stored]]]:
    """Build a call that lists the sessions of an owner, and reads the states of known ones, by their keys.

    Some of those listed may have another owner with an equal hash.
    """
    listed = owned_sessions(keys, owner, max(_LEAST_LISTED, _LISTED_COUNT // keys.shard_count))
    count = len(listed.commands)
    states = read_states(list(known.values()))

    def decode(*answers: Any) -> tuple[list[str], dict[str, Stored]]:
        return listed.decode(*answers[:count]), dict(zip(known, answers[count:], strict=True))

    return independent((*listed.commands, *states.commands), decode, Op.RECALL)


class Asked(NamedTuple):
    """A question: what a call is to read of a session."""

    keys: SessionKeys
    signed: Sequence[int]
    """The numbers of the blocks whose signatures to read."""
    blocks: Sequence[int]
    """The numbers of the blocks to read."""
    with_window: bool


class Contained(NamedTuple):
    """The parts of a session that a call has read."""

    signatures: Mapping[int, bytes | None]
    blocks: Sequence[Block]
    elements: Sequence[bytes]
    """The elements of the window."""
    stored: Stored
    """The state afterwards."""


def read_contents(asked: Sequence[Asked]) -> Call[list[Contained]]:
    """Build a call that reads signatures, blocks and windows of sessions, and then the state of each."""
    commands: list[Command] = []
    for each in asked:
        if each.signed:
            commands.append(pages.signature_command(each.keys, each.signed))
        if each.blocks:
            commands.append(("HMGET", each.keys.originals, *pages.with_heads(each.blocks)))
        if each.with_window:
            commands.append(("LRANGE", each.keys.messages, 0, -1))
        commands.append(_read_state(each.keys.state))

    def decode(*answers: Any) -> list[Contained]:
        left = iter(answers)
        found = []
        for each in asked:
            signatures = pages.decode_signatures(each.signed, next(left)) if each.signed else ()
            stored = zip(pages.with_heads(each.blocks), next(left) if each.blocks else (), strict=True)
            blocks = pages.find_blocks(each.blocks, dict(stored))
            elements = next(left) if each.with_window else ()
            signed = dict(zip(each.signed, signatures, strict=True))
            found.append(Contained(signed, blocks, elements, next(left)))
        return found

    return independent(tuple(commands), decode, Op.RECALL)


def _read_state(state: bytes) -> Command:
    return ("HMGET", state, *_FIELDS)
