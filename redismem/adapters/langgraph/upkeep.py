"""The upkeep of threads: delete, copy and prune. Each step leaves every checkpoint whole, and can be repeated.

Others write the thread meanwhile. A checkpoint that they add may have values of older ones, so what only removed
checkpoints name is known only as long as none is added. Each change of the checkpoints therefore sets a new revision,
and each removal expects the revision before which the checkpoints were listed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial

from langgraph.checkpoint.serde.base import SerializerProtocol

from redismem.adapters.langgraph import layout
from redismem.adapters.langgraph.layout import ThreadNamespace
from redismem.adapters.langgraph.threads import Threads, walk
from redismem.errors import CorruptSession, RecordConflict
from redismem.record import Change, Head, Record, RecordEntry
from redismem.record.pages import all_members, all_parts

_CHANGE_COUNT = 5_000
_HEADS_BYTES = 32 * 1024 * 1024
_BLOBS_COUNT = 32
_WRITES_LIMIT = 500
_ATTEMPTS_COUNT = 50


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A checkpoint as its upkeep needs it: without the values of its channels."""

    member: bytes
    head: Head

    @property
    def parts(self) -> list[str]:
        """Its namespace and id."""
        return layout.split(layout.CHECKPOINTS, self.member)


@dataclass(slots=True)
class _Guarded:
    """A thread whose changes are made only if nobody else has changed its checkpoints since the revision was read."""

    record: Record
    revision: bytes | None

    @classmethod
    async def read(cls, record: Record) -> _Guarded:
        [revision] = await record.get(layout.REVISION)
        return cls(record, revision)

    async def write(self, change: Change) -> None:
        """Make a change, or raise RecordConflict."""
        equals = {} if self.revision is None else {layout.REVISION: self.revision}
        absent = [layout.REVISION] if self.revision is None else []
        revision = layout.new_revision()
        sets = {**change.sets, layout.REVISION: revision}
        await self.record.write(replace(change, equals=equals, absent=absent, sets=sets))
        self.revision = revision


async def _guard(record: Record, remove: Callable[[_Guarded], Awaitable[None]]) -> None:
    """Remove checkpoints, and begin again whenever another writer has changed the thread."""
    for _ in range(_ATTEMPTS_COUNT):
        with contextlib.suppress(RecordConflict):
            await remove(await _Guarded.read(record))
            return
    raise RecordConflict("others keep writing the thread: what is left of it is whole", record_id=record.id)


async def delete(threads: Threads, thread_id: object) -> None:
    """Remove a thread: checkpoints, values, writes, runs, turns."""
    record = threads.record(thread_id)
    had_turns = False
    with contextlib.suppress(CorruptSession):
        had_turns = await record.get(layout.TURN) != [None]
    await record.clear()
    if had_turns:
        await threads.session(thread_id).clear()


async def delete_runs(threads: Threads, run_ids: Sequence[str]) -> None:
    """Remove the checkpoints of runs from all threads, with their writes, and values that no other checkpoint has."""
    if not run_ids:
        return
    prefixes = [layout.join(layout.RUNS, str(run_id), "") for run_id in run_ids]
    async for thread_id in threads.thread_ids():
        await _guard(threads.record(thread_id), partial(_delete_runs, prefixes))


async def _delete_runs(prefixes: Sequence[bytes], thread: _Guarded) -> None:
    record = thread.record
    members = [found.member for prefix in prefixes async for found in all_members(record, prefix)]
    if members:
        gone = {_checkpoint_of(member) for member in members}
        await _remove(thread, await _checkpoints(record, bodies=False), gone)
        await _drop_writes(record, gone)
        await _remove_members(thread, members)


async def prune(threads: Threads, thread_ids: Iterable[object], strategy: str) -> None:
    """Remove whole threads, or all but the newest checkpoint of each namespace and what it is rebuilt from.

    Raises:
        ValueError: the strategy is unknown.
    """
    if strategy not in ("keep_latest", "delete"):
        raise ValueError("strategy is 'keep_latest' or 'delete'")
    for thread_id in thread_ids:
        if strategy == "delete":
            await delete(threads, thread_id)
        else:
            await _guard(threads.record(thread_id), partial(_keep_latest, threads, set()))


async def _keep_latest(threads: Threads, removed: set[bytes], thread: _Guarded) -> None:
    """Remove all but the latest checkpoints. `removed` has those that earlier attempts removed, and gets the others."""
    record = thread.record
    checkpoints = await _checkpoints(record, bodies=False)
    by_namespace: dict[str, dict[bytes, Head]] = {}
    for checkpoint in checkpoints:
        by_namespace.setdefault(checkpoint.parts[0], {})[checkpoint.member] = checkpoint.head
    kept = {
        checkpoint_ns: await _chain(record, ThreadNamespace("", checkpoint_ns), heads, threads.options.serde)
        for checkpoint_ns, heads in by_namespace.items()
    }
    gone = {member for checkpoint_ns, heads in by_namespace.items() for member in heads.keys() - kept[checkpoint_ns]}
    removed |= gone
    await _remove(thread, checkpoints, gone)
    for checkpoint_ns in by_namespace:
        place, oldest = ThreadNamespace("", checkpoint_ns), min(kept[checkpoint_ns])
        # One range also has the writes of checkpoints that an earlier prune removed before it was interrupted.
        writes = place.related.prefix
        await record.drop(writes, before=writes + oldest[len(place.prefix) :])
        await _drop_writes(record, [each for each in removed if each.startswith(place.prefix) and each > oldest])
    left = {member for members in kept.values() for member in members}
    runs = [found.member async for found in all_members(record, layout.RUNS)]
    await _remove_members(thread, [run for run in runs if _checkpoint_of(run) not in left])


async def _chain(
    record: Record, place: ThreadNamespace, heads: dict[bytes, Head], serde: SerializerProtocol
) -> set[bytes]:
    """Return the newest checkpoint of a namespace, and the ancestors that its delta channels are rebuilt from.

    LangGraph counts the steps since the last snapshot of each such channel in the metadata.
    """
    newest = max(heads)
    kept = {newest}
    found = await record.newest(place.prefix, member=newest)
    if found is None or found.value is None:
        return kept
    channels = layout.decode_metadata(serde, found.value).get("counters_since_delta_snapshot") or {}
    for traced in await walk(record, place, newest, list(channels)) if channels else []:
        chain: set[bytes] = set()
        ancestor = heads[newest].parent
        while ancestor in heads and ancestor not in chain:
            chain.add(ancestor)
            if traced.seed is not None and traced.seed[0] in heads[ancestor].names:
                break
            ancestor = heads[ancestor].parent
        kept |= chain
    return kept


async def copy(threads: Threads, source_id: object, target_id: object) -> None:
    """Copy a thread, with its owner. Checkpoints appear last and at once; an interrupted copy can be repeated.

    Raises:
        ValueError: both are one thread.
        RecordConflict: the target has checkpoints of its own, or another owner, with whom it would be forgotten. Or one
            of the threads was changed meanwhile, so that the copy would not be whole.
    """
    source, record = threads.record(source_id), threads.record(target_id)
    if source.id == record.id:
        raise ValueError("a thread cannot be copied onto itself")
    listed, existing_target = await _listed(threads, source), await _listed(threads, record)
    owner = None if listed is None else listed.owner
    if listed is not None and existing_target is not None and existing_target.owner != owner:
        raise RecordConflict("the target thread belongs to another owner than the source", record_id=record.id)
    target = await _Guarded.read(threads.record(target_id, owner))
    [delta] = await source.get(layout.DELTA)
    mark = {} if delta is None else {layout.DELTA: delta}
    checkpoints = await _checkpoints(source, bodies=True)
    values = {checkpoint.member: checkpoint.head.encode() for checkpoint in checkpoints}
    existing = (await record.page(layout.CHECKPOINTS, limit=1)).found
    if any(values.get(found.member) != found.value for found in existing):
        raise RecordConflict("the target thread has checkpoints of its own", record_id=record.id)
    # Parts of a copy that was cut off have a revision; pending writes of others have none.
    is_new = existing_target is None or (target.revision is not None and not existing)
    try:
        await _copy_parts(source, target, checkpoints)
        # A value or a write is removed with or after the checkpoints that have it: all that are left were read whole.
        left = {checkpoint.member for checkpoint in await _checkpoints(source, bodies=False)}
        if not values.keys() <= left:
            raise RecordConflict("the source thread was deleted or pruned while it was copied", record_id=source.id)
        for group in _groups(values):
            await target.write(Change(sets={**group, **mark}, adds=[*group]))
    except RecordConflict:
        with contextlib.suppress(RecordConflict):
            await _guard(target.record, partial(_drop_parts, checkpoints, is_new))
        raise


async def _copy_parts(source: Record, target: _Guarded, checkpoints: Sequence[_Checkpoint]) -> None:
    """Copy all that belongs to checkpoints."""
    names = dict.fromkeys(name for checkpoint in checkpoints for name in checkpoint.head.names)
    for part in _parts([*names], _BLOBS_COUNT):
        blobs = await source.get(*part)
        await target.write(Change(sets={name: blob for name, blob in zip(part, blobs, strict=True) if blob}))
    for kind in (layout.WRITES, layout.RUNS):
        async for page in all_parts(partial(source.page, kind, limit=_WRITES_LIMIT)):
            sets = {found.member: found.value for found in page.found if found.value is not None}
            if page.found:
                await target.write(Change(sets=sets, adds=[found.member for found in page.found]))


async def _drop_parts(checkpoints: Sequence[_Checkpoint], is_new: bool, thread: _Guarded) -> None:
    """Remove the parts of a copy of these checkpoints, except those that a checkpoint of the thread has by now."""
    record, revision = thread.record, thread.revision
    if revision is None:
        return
    present = await _checkpoints(record, bodies=False)
    if is_new and not present:
        await record.clear(equals={layout.REVISION: revision})
        return
    kept = {name for checkpoint in present for name in checkpoint.head.names}
    gone = {checkpoint.member for checkpoint in checkpoints} - {checkpoint.member for checkpoint in present}
    parts = {name for checkpoint in checkpoints for name in checkpoint.head.names} - kept
    for kind, first in ((layout.WRITES, 0), (layout.RUNS, 1)):
        async for found in all_members(record, kind):
            place = layout.split(kind, found.member)[first : first + 2]
            parts |= {found.member} if layout.join(layout.CHECKPOINTS, *place) in gone else set()
    for part in _parts([*parts], _CHANGE_COUNT):
        await thread.write(Change(drops=part, removes=part))
    if not present:  # only the pending writes of others are left
        await record.write(Change(equals={layout.REVISION: thread.revision or b""}, drops=[layout.REVISION]))


async def _listed(threads: Threads, record: Record) -> RecordEntry | None:
    """Return the entry of a thread in the list of records, which names its owner; `None` if there is no such thread."""
    first = (await threads.memory.records(record.id, limit=1)).records[:1]  # the shortest id is the thread's own
    return first[0] if first and first[0].id == record.id else None


def _groups(values: dict[bytes, bytes]) -> Iterator[dict[bytes, bytes]]:
    """Split checkpoints into as few writes as fit: one, unless there are thousands."""
    group: dict[bytes, bytes] = {}
    size = 0
    for name, value in values.items():
        size += 2 * len(name) + len(value)
        if group and (size > _HEADS_BYTES or len(group) == _CHANGE_COUNT):
            yield group
            group, size = {}, 0
        group[name] = value
    if group:
        yield group


async def _checkpoints(record: Record, *, bodies: bool) -> list[_Checkpoint]:
    """Return all checkpoints of a thread, each namespace's oldest first."""
    return [
        _Checkpoint(found.member, head if bodies else replace(head, body=b""))
        async for found in all_members(record, layout.CHECKPOINTS)
        for head in [Head.decode(found.value or b"")]
    ]


async def _remove(thread: _Guarded, checkpoints: Sequence[_Checkpoint], gone: AbstractSet[bytes]) -> None:
    """Remove checkpoints with the values that only they name.

    A value goes with the last checkpoint that names it, so none that remains lacks one, wherever this is interrupted.
    """
    kept = {name for checkpoint in checkpoints if checkpoint.member not in gone for name in checkpoint.head.names}
    removed = [checkpoint for checkpoint in checkpoints if checkpoint.member in gone]
    last = {name: checkpoint.member for checkpoint in removed for name in checkpoint.head.names}
    drops: list[bytes] = []
    removes: list[bytes] = []
    for checkpoint in removed:
        drops.append(checkpoint.member)
        drops += {name for name in checkpoint.head.names if name not in kept and last[name] == checkpoint.member}
        removes.append(checkpoint.member)
        if len(drops) >= _CHANGE_COUNT:
            await thread.write(Change(drops=drops, removes=removes))
            drops, removes = [], []
    if removes:
        await thread.write(Change(drops=drops, removes=removes))


async def _drop_writes(record: Record, members: Iterable[bytes]) -> None:
    for member in members:
        await record.drop(layout.join(layout.WRITES, *layout.split(layout.CHECKPOINTS, member), ""))


async def _remove_members(thread: _Guarded, members: Sequence[bytes]) -> None:
    for part in _parts(members, _CHANGE_COUNT):
        await thread.write(Change(removes=part))


def _checkpoint_of(run: bytes) -> bytes:
    """Return the checkpoint that this member names as one of a run."""
    return layout.join(layout.CHECKPOINTS, *layout.split(layout.RUNS, run)[1:])


def _parts(names: Sequence[bytes], count: int) -> Iterator[Sequence[bytes]]:
    for at in range(0, len(names), count):
        yield names[at : at + count]
