"""Calls of workers and operators over all records of a namespace: scans of the indexes, sweeps, checks. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redismem.events import Op
from redismem.protocol.call import Call, independent, script_call
from redismem.protocol.keys import Keys
from redismem.protocol.namespace.calls import scored_members
from redismem.protocol.record.keys import DESCRIPTION

LISTED = b":records"
"""The end of the key of the index that lists all records of a shard."""
POLICY = b"retention"
"""The field of the policy that workers apply to the record."""
_INDEXES = (LISTED, b":records_owned", b":records_updated")

Cursors = Mapping[bytes, int]
"""The cursor of each index whose scan goes on."""


class Scanned(NamedTuple):
    """One step of the scans: the records of each shard, and the cursors of the next step."""

    members: dict[bytes, list[bytes]]
    cursors: dict[bytes, int]


def scan_step(indexes: Cursors, count: int) -> Call[Scanned]:
    """Build a call that makes one scan step in each of these indexes. A cursor of 0 is at the beginning or the end."""
    commands = tuple(("ZSCAN", index, cursor, "COUNT", count) for index, cursor in indexes.items())

    def decode(*answers: Any) -> Scanned:
        members: dict[bytes, set[bytes]] = {}
        cursors: dict[bytes, int] = {}
        for index, (cursor, page) in zip(indexes, answers, strict=True):
            cursors[index] = int(cursor)
            found = {member for member, _ in scored_members(page)}
            if found:
                members.setdefault(index.rpartition(b":")[0], set()).update(found)
        return Scanned({shard: sorted(found) for shard, found in members.items()}, cursors)

    return independent(commands, decode, Op.RECORD_SWEEP)


def indexes_of(keys: Keys) -> dict[bytes, int]:
    """Return every index of records with the cursor of its beginning."""
    return {shard + name: 0 for shard in keys.prefixes() for name in _INDEXES}


def sweep(shard: bytes, members: Sequence[bytes]) -> Call[tuple[int, int]]:
    """Build a call that sweeps records of a shard; it returns (removed from the indexes, repaired)."""
    records, owned, updated = (shard + name for name in _INDEXES)
    names = [shard + kind + member for member in members for kind in (b":record:", b":order:")]
    indexes = {"records": records, "owned": owned, "updated": updated}
    return script_call(Op.RECORD_SWEEP, None, tuple, indexes, script="sweep_records", more_keys=names, more=members)


def policies(shard: bytes, members: Sequence[bytes]) -> Call[list[bytes | None]]:
    """Build a call that reads the policies of records, which are hashes; `None` for a record without one."""
    commands = tuple(("HGET", shard + b":record:" + member, POLICY) for member in members)
    return independent(commands, lambda *found: list(found), Op.RECORD_SWEEP)


class Seen(NamedTuple):
    """The parts of a record that `check` looks at."""

    member: bytes
    kind: bytes
    described: bytes | None
    order_kind: bytes
    expires_ms: tuple[int, int]
    is_listed: bool
    score: float | None


def look(shard: bytes, members: Sequence[bytes], hashes: Sequence[bool]) -> Call[list[Seen]]:
    """Build a call that reads what `check` needs, in one transaction if Redis has room.

    `hashes` tells which records are hashes.
    """
    commands: list[tuple[Any, ...]] = []
    for member, is_hash in zip(members, hashes, strict=True):
        record, order = shard + b":record:" + member, shard + b":order:" + member
        described = ("HGET", record, DESCRIPTION) if is_hash else ("TYPE", record)
        commands += [("TYPE", record), described, ("TYPE", order), ("PEXPIRETIME", record), ("PEXPIRETIME", order)]
        commands += [("ZSCORE", shard + name, member) for name in _INDEXES[:2]]

    def decode(*answers: Any) -> list[Seen]:
        found = []
        for member, at in zip(members, range(0, len(answers), 7), strict=True):
            kind, described, order_kind, record_ms, order_ms, listed, score = answers[at : at + 7]
            times_ms = (record_ms, order_ms)
            scored = None if score is None else float(score)
            found.append(Seen(member, kind, described, order_kind, times_ms, listed is not None, scored))
        return found

    return Call(None, tuple(commands), decode, is_separable=True)


def types(shard: bytes, members: Sequence[bytes]) -> Call[list[bool]]:
    """Build a call that tells which of these records are hashes."""
    commands = tuple(("TYPE", shard + b":record:" + member) for member in members)
    return independent(commands, lambda *kinds: [kind == b"hash" for kind in kinds])
