"""The threads of a saver, one record each: put, read, list and delete checkpoints."""

from __future__ import annotations

import bisect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from redismem import InvalidRecord, InvalidSessionId, Memory, RecordConflict, Session
from redismem.adapters.langgraph import layout, turns
from redismem.adapters.langgraph.layout import ThreadNamespace
from redismem.adapters.sessions import join_id, make_policy, read_or_begin, split_id
from redismem.record import Change, Found, Record, Retention, Traced
from redismem.record.pages import all_listed, all_members

_PAGE_LIMIT = 64
_RANGE_COUNT = 10_000
"""The writes that come with a checkpoint; a page reads more of them."""


@dataclass(frozen=True, slots=True)
class SaverOptions:
    """The choices of a saver that its threads share."""

    serde: SerializerProtocol
    key_prefix: str
    ttl_s: float | None
    renew: bool
    owner_key: str | None
    retention: Retention


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads in one memory."""

    memory: Memory
    options: SaverOptions
    running: tuple[turns.Running, ...] = ()
    """The turns that the caller is in."""

    def record(self, thread_id: object, owner: str | None = None) -> Record:
        """Return the record of a thread.

        Raises:
            InvalidSessionId: the id is empty, or no string, integer or UUID.
        """
        return self.memory.record(self._id(thread_id), owner=owner, ttl_s=self.options.ttl_s)

    def session(self, thread_id: object, owner: str | None = None) -> Session:
        """Return the session beside a thread, which has the thread's turns."""
        policy = make_policy(self.options.ttl_s, summarise=False)
        return self.memory.session(self._id(thread_id, "turns"), policy=policy, owner=owner)

    def _id(self, thread_id: object, source: str | None = None) -> str:
        text = str(thread_id) if isinstance(thread_id, int | UUID) else thread_id
        return join_id(self.options.key_prefix, text, source)  # type: ignore[arg-type]

    def _place(self, config: RunnableConfig) -> ThreadNamespace:
        configurable = _configurable(config)
        return ThreadNamespace(configurable["thread_id"], configurable.get("checkpoint_ns") or "")

    def _named(self, config: RunnableConfig) -> Record:
        """Return the record of the thread that a config names. It belongs to the owner in the config, if it has one."""
        return self.record(*self._names(config))

    def _names(self, config: RunnableConfig) -> tuple[object, str | None]:
        configurable, key = _configurable(config), self.options.owner_key
        return configurable["thread_id"], None if key is None else configurable.get(key)

    def session_of(self, config: RunnableConfig) -> Session:
        """Return the session beside the thread that a config names."""
        return self.session(*self._names(config))

    async def take_turn(self, config: RunnableConfig, saver: object, generation: str) -> turns.Running:
        """Fence the writes of earlier turns of a thread. Raises RecordConflict if a later one has begun."""
        record = self._named(config)
        return turns.Running(saver, record.id, await turns.take(record, generation))

    async def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        """Store a checkpoint and the new values of its channels in one step.

        Its other values are those of the checkpoint that the run began with. If a prune has removed them since, all
        values are stored anew. If the whole thread was removed, or what a delta channel is rebuilt from, it is refused.
        """
        place, record, serde = self._place(config), self._named(config), self.options.serde
        bare = layout.encode_checkpoint(serde, place, config, checkpoint, metadata)
        bare = self.options.retention.add_to(bare)
        new, everywhere = layout.encode_values(serde, place, checkpoint, versions), checkpoint["channel_versions"]
        stored = layout.value_names(place, checkpoint, everywhere) - new.keys()
        # A channel without a value has no field: reads take both for empty.
        empty = {place.blob(*each) for each in versions.items()} - new.keys()
        equals = turns.fence(record, self.running)
        change = replace(
            bare,
            equals=equals,
            present=[*bare.present, *stored],
            sets={**bare.sets, **new},
            drops={*bare.drops, *empty},
        )
        try:
            await record.write(change)
        except RecordConflict as conflict:
            _check_fence(conflict)
            whole = {**bare.sets, **layout.encode_values(serde, place, checkpoint, everywhere)}
            change = replace(change, present=[*bare.present, layout.REVISION], sets=whole)
            try:
                await record.write(change)
            except RecordConflict as again:
                _check_fence(again)
                lost = "the thread was deleted or pruned while the run went on, so its checkpoint would lack values"
                raise RecordConflict(lost, record_id=record.id) from None
        return place.config(checkpoint["id"])

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        """Store the writes of a task: of regular ones the first counts, of special ones the last."""
        place = self._place(config)
        sets: dict[bytes, bytes] = {}
        sets_once: dict[bytes, bytes] = {}
        checkpoint_id = config["configurable"]["checkpoint_id"]
        for place_in_list, (channel, value) in enumerate(writes):
            idx = WRITES_IDX_MAP.get(channel, place_in_list)
            packed = layout.pack(self.options.serde.dumps_typed(value))
            name = place.write(checkpoint_id, task_id, idx)
            (sets_once if idx >= 0 else sets)[name] = layout.encode_write(channel, task_path, packed)
        if writes:
            record = self._named(config)
            equals = turns.fence(record, self.running)
            change = Change(equals=equals, sets=sets, sets_once=sets_once, adds=[*sets, *sets_once])
            try:
                await record.write(change)
            except RecordConflict as conflict:
                _check_fence(conflict)
                raise

    async def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Read one checkpoint, or the newest of its namespace, with its values and writes: one round trip."""
        place, checkpoint_id = self._place(config), get_checkpoint_id(config)
        record = self._named(config)
        member = place.member(checkpoint_id) if checkpoint_id else None
        read = partial(
            record.newest, place.prefix, member=member, named=True, related=place.related, renew=self.options.renew
        )
        found = await read_or_begin(record, read)
        return None if found is None else await self._decode(record, place, found)

    async def _decode(self, record: Record, place: ThreadNamespace, found: Found) -> CheckpointTuple:
        writes = found.related
        if len(writes) == _RANGE_COUNT:
            checkpoint_id = layout.split(layout.CHECKPOINTS, found.member)[-1]
            prefix, after = layout.join(layout.WRITES, place.checkpoint_ns, checkpoint_id, ""), writes[-1][0]
            writes += [(each.member, each.value) async for each in all_members(record, prefix, after=after)]
        with _naming(place):
            return layout.decode_tuple(self.options.serde, place, found, writes)

    def _decode_metadata(self, place: ThreadNamespace, found: Found) -> Mapping[str, Any]:
        with _naming(place):
            return layout.decode_metadata(self.options.serde, found.value or b"")

    async def history(self, config: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:
        """Collect the writes of channels along the parents of a checkpoint, back to a stored value: one round trip."""
        place, checkpoint_id = self._place(config), get_checkpoint_id(config)
        record = self._named(config)
        member = place.member(checkpoint_id) if checkpoint_id else None
        if member is None:
            newest = await record.newest(place.prefix)
            member = None if newest is None else newest.member
        traced = [Traced() for _ in channels]
        if member is not None and channels:
            traced = await walk(record, place, member, channels)
        with _naming(place):
            return {channel: self._decode_traced(found) for channel, found in zip(channels, traced, strict=True)}

    def _decode_traced(self, traced: Traced) -> DeltaChannelHistory:
        serde = self.options.serde
        by_checkpoint: dict[bytes, list[layout.Entry]] = {}
        for name, value in traced.entries:  # the nearest checkpoint first
            by_checkpoint.setdefault(name.rsplit(b"\0", 2)[0], []).append((name, value))
        found = DeltaChannelHistory(
            writes=[
                write for entries in reversed(by_checkpoint.values()) for write in layout.decode_writes(serde, entries)
            ]
        )
        if traced.seed is not None:
            found["seed"] = serde.loads_typed(layout.unpack(traced.seed[1]))
        return found

    async def list(
        self,
        config: RunnableConfig | None,
        filter_: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read checkpoints, newest first: of one thread, or without a config thread by thread."""
        left = limit
        async for thread_id in self._thread_ids(config):
            async for found in self._merge(thread_id, config, filter_, before, left):
                if left is not None:
                    if left <= 0:
                        return
                    left -= 1
                yield found

    async def _thread_ids(self, config: RunnableConfig | None) -> AsyncIterator[Any]:
        if config is not None:
            yield _configurable(config)["thread_id"]
            return
        async for thread_id in self.thread_ids():
            yield thread_id

    async def thread_ids(self) -> AsyncIterator[str]:
        """List the ids of all threads."""
        async for page in all_listed(partial(self.memory.records, f"{self.options.key_prefix}:", 1_000)):
            for entry in page.records:
                thread_id = split_id(self.options.key_prefix, entry.id)
                if thread_id is not None:
                    yield thread_id

    async def _merge(
        self,
        thread_id: Any,
        config: RunnableConfig | None,
        filter_: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read the checkpoints of one thread: all its namespaces, unless the config names one."""
        record = self.record(thread_id) if config is None else self._named(config)
        configurable = {} if config is None else config["configurable"]
        checkpoint_ns, exact = configurable.get("checkpoint_ns"), configurable.get("checkpoint_id")
        end = get_checkpoint_id(before) if before else None
        names = [checkpoint_ns] if checkpoint_ns is not None else [name async for name in _namespaces(record)]
        waiting: list[tuple[str, int, CheckpointTuple]] = []
        first = min(_PAGE_LIMIT, limit or _PAGE_LIMIT) if len(names) == 1 else 1
        streams = [self._read(record, ThreadNamespace(thread_id, name), exact, filter_, end, first) for name in names]
        for number in range(len(streams)):
            await _insert_next(waiting, streams, number)
        while waiting:
            _, number, found = waiting.pop()
            yield found
            await _insert_next(waiting, streams, number)

    async def _read(
        self,
        record: Record,
        place: ThreadNamespace,
        exact: str | None,
        filter_: Mapping[str, Any] | None,
        before: str | None,
        limit: int,
    ) -> AsyncIterator[CheckpointTuple]:
        """Read the checkpoints of one namespace, newest first. A filter is applied before their values are read."""
        if exact:
            found = await self.get_tuple(place.config(exact))
            if found and (before is None or exact < before) and _matches(found.metadata, filter_):
                yield found
            return
        after = place.member(before) if before is not None else None
        related = None if filter_ else place.related
        while True:
            page = await record.page(
                place.prefix, after=after, limit=limit, reverse=True, named=not filter_, related=related
            )
            for each in page.found:
                if not filter_:
                    yield await self._decode(record, place, each)
                elif _matches(self._decode_metadata(place, each), filter_):
                    whole = await self.get_tuple(place.config(layout.split(layout.CHECKPOINTS, each.member)[-1]))
                    if whole is not None:
                        yield whole
            after, limit = page.after, min(2 * limit, _PAGE_LIMIT)
            if after is None:
                return


@contextmanager
def _naming(place: ThreadNamespace) -> Iterator[None]:
    """Name the thread in the error about a value that cannot be read."""
    try:
        yield
    except InvalidRecord as refused:
        raise InvalidRecord(f"thread {place.thread_id!r}: {refused.text}") from None


def _check_fence(conflict: RecordConflict) -> None:
    if conflict.field == layout.TURN:
        raise RecordConflict(turns.LOST, record_id=conflict.record_id, field=layout.TURN) from None


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    found = config.get("configurable") or {}
    if "thread_id" not in found:
        raise InvalidSessionId('the config names no thread: give it as {"configurable": {"thread_id": ...}}')
    return found


def _matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(metadata.get(key) == value for key, value in (wanted or {}).items())


async def _insert_next(
    waiting: list[tuple[str, int, CheckpointTuple]], streams: Sequence[AsyncIterator[CheckpointTuple]], number: int
) -> None:
    """Insert the next checkpoint of a stream among those that wait, the newest last."""
    found = await anext(streams[number], None)
    if found is not None:
        bisect.insort(
            waiting, (found.config["configurable"]["checkpoint_id"], number, found), key=lambda each: each[:2]
        )


async def _namespaces(record: Record) -> AsyncIterator[str]:
    """List the namespaces of a thread: of each, its first checkpoint is read."""
    after: bytes | None = None
    while True:
        page = await record.page(layout.CHECKPOINTS, after=after, limit=1)
        if not page.found:
            return
        checkpoint_ns = layout.split(layout.CHECKPOINTS, page.found[0].member)[0]
        yield checkpoint_ns
        after = layout.join(layout.CHECKPOINTS, checkpoint_ns) + b"\x01"


async def walk(record: Record, place: ThreadNamespace, member: bytes, channels: Sequence[str]) -> list[Traced]:
    """Collect the writes of channels along the parents of a checkpoint, back to a stored value of each."""
    found = await record.walk(
        member,
        prefix=place.prefix,
        related=place.related,
        traces=[place.trace(channel) for channel in channels],
        skip_start=True,
    )
    return found.traced
