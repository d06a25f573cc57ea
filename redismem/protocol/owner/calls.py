"""Calls about the index of an owner. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redismem.context.info import SessionEntry
from redismem.events import Op
from redismem.messages.values import Undecodable
from redismem.protocol import layout
from redismem.protocol.call import Call, Command, independent, script_call
from redismem.protocol.clock import Clock, time_argument
from redismem.protocol.ids import nonce
from redismem.protocol.keys import Keys, SessionKeys, ShardKeys
from redismem.protocol.namespace.calls import entries, name_of, scored_members
from redismem.protocol.owner.entries import VERSION_FIELD, decode_name, hash_edits
from redismem.protocol.owners import decode_owner
from redismem.protocol.replies import decoding

SOON_MS = 60_000
"""The time after a change until a worker checks the index."""
LONGEST_MS = 86_400_000
"""The longest time between two checks, and the time that an index outlives its sessions."""
_ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class OwnerKeys:
    """The keys of an owner's index. They share a hash tag that the owner chooses, so sessions may lie elsewhere."""

    owner: str
    index: bytes
    """The hash of entries."""
    indexes: bytes
    """The owners of the shard that have an index, by the time of their next check."""


@dataclass(frozen=True, slots=True)
class Described:
    """The state of a session, as far as the index of its owner depends on it. Without a session, `epoch` is ""."""

    owner: str | None = None
    epoch: str = ""
    first_seq: int = 1
    last_seq: int = 0
    active_ms: int = 0
    expires_ms: int = 0
    has_originals: bool = False
    edits: str = ""

    def is_as(self, other: Described) -> bool:
        """True if both have the same messages behind the window, and the same edits."""
        seen = [(each.owner, each.epoch, each.first_seq, each.has_originals, each.edits) for each in (self, other)]
        return seen[0] == seen[1]


def owner_keys(keys: Keys, owner: str) -> OwnerKeys:
    """Return the keys of an owner's index. Different owners have different keys."""
    shard = keys.prefix_of(owner.encode())
    return OwnerKeys(owner, shard + b":index:" + owner.encode(), shard + b":indexes")


def describe(keys: SessionKeys) -> Call[Described]:
    """Build a call that reads the state of a session. Raises CorruptSession, UnsupportedFormat."""

    def decode(reply: Sequence[bytes | None]) -> Described:
        owner, epoch, counters, kept, edited, pruned = reply
        if counters is None:
            return Described()
        with decoding(keys.session_id, epoch):
            numbers = layout.counters(counters)
            return Described(
                decode_owner(owner),
                (epoch or b"").decode(),
                numbers.first_seq,
                numbers.message_count,
                numbers.active_ms,
                numbers.expires_ms,
                kept is not None,
                hash_edits(edited, pruned),
            )

    fields = (layout.OWNER, layout.EPOCH, layout.COUNTERS, layout.WITH_ORIGINALS, layout.EDITED, layout.PRUNED)
    return Call(keys.session_id, (("HMGET", keys.state, *fields),), decode, op=Op.OWNER_INDEX)


def signed_blocks(keys: SessionKeys, number: int) -> Call[range]:
    """Build a call that returns the numbers of the blocks whose signatures are stored with that of a block."""
    from redismem.originals.signatures import split_signatures  # loads the stemmer

    def decode(field: bytes | None) -> range:
        try:
            return range(number, number + (0 if field is None else len(split_signatures(field))))
        except Undecodable:
            return range(number, number + 1)

    return Call(keys.session_id, (("HGET", keys.originals, f"s{number}"),), decode, op=Op.OWNER_INDEX)


def read_names(keys: OwnerKeys) -> Call[dict[str, list[bytes]]]:
    """Build a call that reads the names of the entries, by session."""

    def decode(fields: Sequence[bytes]) -> dict[str, list[bytes]]:
        names: dict[str, list[bytes]] = {}
        for field in fields:
            if (decoded := decode_name(field)) is not None:
                names.setdefault(decoded[1], []).append(field)
        return names

    return Call(None, (("HKEYS", keys.index),), decode, op=Op.OWNER_INDEX)


def read_entries(keys: OwnerKeys, names: Sequence[bytes]) -> Call[dict[bytes, bytes]]:
    """Build a call that reads some entries, by their names. Missing ones are left out."""

    def decode(values: Sequence[bytes | None]) -> dict[bytes, bytes]:
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    return Call(None, (("HMGET", keys.index, *names),), decode, op=Op.OWNER_INDEX)


def read_index(keys: OwnerKeys) -> Call[dict[bytes, bytes]]:
    """Build a call that reads the whole index: the entries by their names, and its version."""

    def decode(reply: Any) -> dict[bytes, bytes]:
        values = iter(reply)
        return dict(reply) if isinstance(reply, Mapping) else dict(zip(values, values, strict=True))

    return Call(None, (("HGETALL", keys.index),), decode, op=Op.OWNER_INDEX)


def read_version(keys: OwnerKeys) -> Call[bytes | None]:
    """Build a call that reads the version of the index; None means that there is no index."""
    return Call(None, (("HGET", keys.index, VERSION_FIELD),), lambda version: version, op=Op.OWNER_INDEX)


def change(
    keys: OwnerKeys,
    clock: Clock | None,
    sets: Mapping[bytes, bytes] | None = None,
    drops: Sequence[bytes] = (),
    expires_ms: int = 0,
    checked: tuple[int, int] | None = None,
) -> Call[bool]:
    """Build a call that changes the index, and has it checked soon. Without a change, it only does the latter.

    If a check is due already, a call without a change makes the check run once more.

    Args:
        keys: The keys of the index.
        clock: Replaces the server's clock.
        sets: The entries to set, by their names.
        drops: The names of entries to drop.
        expires_ms: The time until which the sessions live that the index names.
        checked: For the end of a check: the due time before the check, and the next one, which is set unless a change
            was noted meanwhile.
    """
    seen_ms, due_ms = (None, 0) if checked is None else checked
    named = {
        "owner": keys.owner.encode(),
        "now_ms": time_argument(clock),
        "soon_ms": SOON_MS,
        "seen_ms": seen_ms,
        "due_ms": due_ms,
        "expires_ms": expires_ms + LONGEST_MS if expires_ms else 0,
        "version": nonce(),
        "dropped_count": len(drops),
    }
    values = [part for pair in (sets or {}).items() for part in pair]
    return script_call(Op.INDEX_OWNER, keys, bool, named, more=(*drops, *values))


def drop(keys: OwnerKeys) -> Call[bool]:
    """Build a call that removes the index. True means that there was one."""
    commands = (("DEL", keys.index), ("ZREM", keys.indexes, keys.owner.encode()))
    # No transaction, because a Redis whose memory is full refuses it.
    return independent(commands, lambda removed, _: removed > 0, Op.INDEX_OWNER)


def due_indexes(prefixes: Sequence[bytes], before_ms: int, limit: int) -> Call[list[list[tuple[str, int]] | None]]:
    """Build a call that reads the owners whose index is due before a time, each with its due time, soonest first.

    It reads at most `limit` owners of each shard. `None` stands for a shard whose node is unreachable.

    Args:
        prefixes: The beginnings of the keys of the shards.
        before_ms: The time.
        limit: The number of owners per shard.
    """
    commands = tuple(
        ("ZRANGEBYSCORE", prefix + b":indexes", "-inf", before_ms, "WITHSCORES", "LIMIT", 0, limit)
        for prefix in prefixes
    )

    def decode(*answers: Any) -> list[list[tuple[str, int]] | None]:
        return [
            None if answer is _ABSENT else [(name_of(owner), due_ms) for owner, due_ms in scored_members(answer)]
            for answer in answers
        ]

    return independent(commands, decode, Op.OWNER_INDEX, absent=_ABSENT)


def list_indexes(keys: Keys, shard: int, start: int, count: int) -> Call[list[tuple[str, int]]]:
    """Build a call that reads some owners of a shard that have an index, each with the time of its next check."""
    command = ("ZRANGE", keys.prefixes()[shard] + b":indexes", start, start + count - 1, "WITHSCORES")

    def decode(answer: Any) -> list[tuple[str, int]]:
        return [(name_of(owner), due_ms) for owner, due_ms in scored_members(answer)]

    return Call(None, (command,), decode)


def have_owners(shards: Sequence[ShardKeys]) -> Call[list[bool | None]]:
    """Build a call that says of each shard if it has sessions with an owner. `None` means that its node is away."""

    def decode(*counts: Any) -> list[bool | None]:
        return [None if count is _ABSENT else count > 0 for count in counts]

    return independent(tuple(("ZCARD", shard.owners) for shard in shards), decode, Op.OWNER_INDEX, absent=_ABSENT)


def idle_between(spans: Sequence[tuple[ShardKeys, int, int]], limit: int) -> Call[list[list[SessionEntry]]]:
    """Build a call that reads the sessions last active from one time on and before another, `limit` of each span.

    Sessions that are exempt from the limit have negative scores. The entries come least recent first.
    """
    commands: list[Command] = []
    for shard, since_ms, below_ms in spans:
        commands += (
            ("ZRANGEBYSCORE", shard.active, since_ms, f"({below_ms}", "WITHSCORES", "LIMIT", 0, limit),
            ("ZREVRANGEBYSCORE", shard.active, -since_ms, f"({-below_ms}", "WITHSCORES", "LIMIT", 0, limit),
        )

    def decode(*answers: Any) -> list[list[SessionEntry]]:
        pairs = zip(answers[::2], answers[1::2], strict=True)
        pages = ([*entries(counted), *entries(exempt)] for counted, exempt in pairs)
        return [sorted(page, key=lambda entry: entry.active_ms)[:limit] for page in pages]

    return independent(tuple(commands), decode, Op.OWNER_INDEX, absent=())


def owners_of(sessions: Sequence[SessionKeys]) -> Call[list[str | None]]:
    """Build a call that reads the owner of each of these sessions."""
    commands = tuple(("HGET", keys.state, layout.OWNER) for keys in sessions)
    return independent(commands, lambda *owners: [decode_owner(owner) for owner in owners], Op.OWNER_INDEX)
