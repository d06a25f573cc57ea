"""Remove old checkpoints of frameworks from a record, so that each that remains is whole.

Only what no remaining checkpoint needs goes. Each removal expects the state of the record that it was chosen by; if
another process has written meanwhile, it raises RecordConflict, and the next sweep goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

from redismem.protocol.record.changes import Change
from redismem.protocol.record.heads import Head
from redismem.record.pages import all_members
from redismem.record.record import Record

_TimeOf = Callable[[bytes], int | None]
_GRAPH = b"\0"
"""The namespace of the graph itself, with its NUL."""
_REVISION, _DELTA, _LEFT = b"v", b"d", b"x"
"""Fields of a thread of LangGraph: its revision, and the mark of a DeltaChannel, whose ancestors all stay.

The last one marks a removal under way: if it was interrupted, writes and runs of removed checkpoints are left.
"""
_NAMES_COUNT = 4_000
_BATCH_COUNT = 100
_UUID_EPOCH = 0x01B21DD213814000
"""The 100 ns between 1582, where the times of UUIDs begin, and 1970."""
_MAF_EPOCH_MS = (datetime.fromtimestamp(0, UTC) - datetime(1, 1, 1, tzinfo=UTC)).days * 86_400_000


async def trim_langgraph(record: Record, keep_last: int | None, before_ms: int | None) -> int:
    """Remove old checkpoints of each namespace of a thread, with their writes and values; return their number.

    The newest checkpoint of a namespace stays, with its interrupts, and so do those that its tasks have written. A
    subgraph that keeps its state also keeps what the graph's checkpoints go on from. All stays of a thread with a
    DeltaChannel.
    """
    [revision, delta, left] = await record.get(_REVISION, _DELTA, _LEFT)
    if revision is None or delta is not None:
        return 0
    heads = {found.member: Head.decode(found.value or b"") async for found in all_members(record, b"c:")}
    gone = dict[bytes, Head]()
    groups = _group(heads)
    oldest_of = partial(_oldest, keep_last=keep_last, before_ms=before_ms)
    first_of_graph = oldest_of(groups[_GRAPH]) if _GRAPH in groups else b""
    for namespace, members in groups.items():
        first = oldest_of(members)
        if b":" in namespace:  # of one task, because the subgraph has no checkpointer: it goes with its parent
            first = max(first, first_of_graph)
        elif first_of_graph and namespace != _GRAPH:  # a run from there takes the subgraph's last one before it
            first = min(first, max((id for id in map(_id_of, members) if id < first_of_graph), default=b""))
        gone |= {member: heads[member] for member in members if _id_of(member) < first}
    if not gone and left is None:
        return 0
    kept = {name for member, head in heads.items() if member not in gone for name in head.names}
    last = {name: member for member, head in gone.items() for name in head.names}
    for part in _split(gone):
        drops = {name for member in part for name in gone[member].names if name not in kept and last[name] == member}
        following = os.urandom(8)
        change = Change(
            equals={_REVISION: revision},
            sets={_REVISION: following, _LEFT: b""},
            drops=[*part, *drops],
            removes=[*part],
        )
        await record.write(change)
        revision = following
        await _drop_writes(record, part)
    stay = {member[2:] for member in heads.keys() - gone.keys()}
    await _drop_rest(record, revision, stay, was_interrupted=left is not None)
    return len(gone)


async def _drop_rest(record: Record, revision: bytes, stay: Set[bytes], *, was_interrupted: bool) -> None:
    """Remove the runs of removed checkpoints, and after an interrupted round also writes; then the mark."""
    rest = [found.member async for found in all_members(record, b"r:") if found.member.split(b"\0", 1)[1] not in stay]
    if was_interrupted:
        oldest = {name.rpartition(b"\0")[0]: _id_of(name) for name in sorted(stay, reverse=True)}
        async for found in all_members(record, b"w:"):  # newer ones may come before their checkpoint
            namespace, checkpoint_id = found.member[2:].split(b"\0")[:2]
            if checkpoint_id < oldest.get(namespace, oldest.get(b"", b"")):
                rest.append(found.member)
    for at in range(0, len(rest), _NAMES_COUNT):
        some = rest[at : at + _NAMES_COUNT]
        await record.write(Change(equals={_REVISION: revision}, drops=some, removes=some))
    await record.write(Change(equals={_REVISION: revision}, drops=[_LEFT]))


async def _drop_writes(record: Record, removed: Iterable[bytes]) -> None:
    """Drop the writes of removed checkpoints, and of those before them in their namespaces, which were removed too."""
    for newest in {member.rpartition(b"\0")[0]: member for member in removed}.values():
        namespace, _, checkpoint_id = newest[2:].rpartition(b"\0")
        writes = b"w:" + namespace + b"\0"
        await record.drop(writes, before=writes + checkpoint_id + b"\1")


async def trim_agent_framework(record: Record, keep_last: int | None, before_ms: int | None) -> int:
    """Remove old checkpoints of each workflow of a session; return their number. The newest one stays."""
    heads = {found.member: Head.decode(found.value or b"") async for found in all_members(record, b"w:")}
    by_workflow = dict[bytes, list[bytes]]()
    for member in heads:
        by_workflow.setdefault(member.split(b":")[1], []).append(member)
    gone = [
        member
        for members in by_workflow.values()
        for member in _choose(
            members, keep_last, before_ms, lambda member: int(member.split(b":")[2]) // 1000 - _MAF_EPOCH_MS
        )
    ]
    for at in range(0, len(gone), _BATCH_COUNT):
        part = gone[at : at + _BATCH_COUNT]
        places = {b"p:" + member.split(b":", 3)[3]: member for member in part}
        data = [name for member in part for name in heads[member].names]
        await record.write(Change(equals=places, drops=[*part, *places, *data], removes=part))
    return len(gone)


def _choose(members: Sequence[bytes], keep_last: int | None, before_ms: int | None, time_of: _TimeOf) -> list[bytes]:
    """Return the oldest members that go: those beyond the newest ones, and those before a time, but never the last."""
    older = list(members[:-1])
    count = 0 if keep_last is None else max(0, len(members) - keep_last)
    if before_ms is not None:
        while count < len(older) and (at_ms := time_of(older[count])) is not None and at_ms < before_ms:
            count += 1
    return older[:count]


def _oldest(members: Sequence[bytes], *, keep_last: int | None, before_ms: int | None) -> bytes:
    """Return the id of the oldest checkpoint of a namespace that stays."""
    old = _choose(members, keep_last, before_ms, lambda member: _time_of(_id_of(member)))
    return _id_of(members[len(old)])


def _id_of(member: bytes) -> bytes:
    return member.rpartition(b"\0")[2]


def _group(members: Iterable[bytes]) -> Mapping[bytes, list[bytes]]:
    """Return the checkpoints of each namespace, oldest first. The namespace ends with its NUL."""
    groups = dict[bytes, list[bytes]]()
    for member in members:
        groups.setdefault(member[2 : member.rindex(b"\0") + 1], []).append(member)
    return groups


def _time_of(checkpoint_id: bytes) -> int | None:
    """Return the time in an id that LangGraph made, a UUID of version 6; `None` for any other id."""
    try:
        number = UUID(checkpoint_id.decode()).int
    except ValueError:
        return None
    if number >> 76 & 0xF != 6:
        return None
    ticks = number >> 80 << 12 | number >> 64 & 0xFFF
    return (ticks - _UUID_EPOCH) // 10_000


def _split(gone: Mapping[bytes, Head]) -> list[list[bytes]]:
    """Return the checkpoints in groups that fit into one write."""
    groups, count = [list[bytes]()], 0
    for member, head in gone.items():
        if groups[-1] and count + len(head.names) > _NAMES_COUNT:
            groups.append([])
            count = 0
        groups[-1].append(member)
        count += 2 + len(head.names)
    return groups
