"""The checkpoint saver: each method of LangGraph's interface, with and without `await`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from redismem import InvalidSettings, Memory, RedismemError, Turn, blocking
from redismem.adapters.langgraph import turns, upkeep
from redismem.adapters.langgraph.opening import Closes, Opening, check_ttl
from redismem.adapters.langgraph.strict import AllowedType, StrictSerializer
from redismem.adapters.langgraph.threads import SaverOptions, Threads
from redismem.blocking.turns import Turn as BlockingTurn
from redismem.record import Retention

_VERSION_DIGITS = 10


class RedismemSaver(Closes, BaseCheckpointSaver[str]):
    """The checkpoints of LangGraph's threads in Redis, Valkey or a cluster of them. No Redis modules are needed.

    >>> async with RedismemSaver.from_conn_string("redis://127.0.0.1:6379") as saver:
    ...     graph = builder.compile(checkpointer=saver)

    A thread is one record. A checkpoint is written in one round trip, and read in one with its values and writes.

    Args:
        memory: A blocking memory serves all methods, the async ones in a thread. An async memory serves all methods,
            those without `await` only in other threads than that of its event loop, as in nodes and subgraphs without
            `await` below `ainvoke`. The caller closes it. `None` opens a memory for each kind of method that is used.
        url: The URL of Redis, instead of a memory. `None` means `REDISMEM_URL`, and all other settings come from the
            environment. The embedded store, `memory://`, ends with the saver.
        allowed_types: Classes of your own in the state, or pairs of module and name. Messages, documents and the types
            of LangGraph and the standard library that LangGraph considers safe are always allowed.
        serde: The serializer of values. `None` means `StrictSerializer(allowed_types)`. With LangGraph's own
            `JsonPlusSerializer`, a client that can write to Redis can run code in this process.
        key_prefix: The record's id is `<key_prefix>:<thread_id>`.
        ttl: `default_ttl` is the minutes after which Redis removes an unused thread; `refresh_on_read` False counts
            them from the last write alone. `None` keeps threads until they are deleted.
        owner_key: The key in `configurable` that names the person whom a new thread belongs to, as in
            `Memory.record`: `memory.forget(owner=...)` then removes it. A config without the key makes a thread
            without an owner.
        keep_last: The newest checkpoints that workers keep of each namespace of a thread, 1 to 1,000. `None` keeps all.
        max_age: The seconds after which workers remove a checkpoint, unless it is the newest one. `None` means never.

    Every method may raise StoreUnavailable, also with the fallback: an old checkpoint is worse than none.

    Raises:
        InvalidSettings: An argument is out of range or of another type, or both memory and URL are given.
        InvalidRecord: `keep_last` or `max_age` is out of range.
    """

    def __init__(
        self,
        memory: Memory | blocking.Memory | None = None,
        *,
        url: str | None = None,
        allowed_types: Iterable[AllowedType] | None = None,
        serde: SerializerProtocol | None = None,
        key_prefix: str = "langgraph",
        ttl: Mapping[str, Any] | None = None,
        owner_key: str | None = None,
        keep_last: int | None = None,
        max_age: float | None = None,
    ) -> None:
        if serde is not None and allowed_types is not None:
            raise InvalidSettings(
                "give one of allowed_types and serde: pass StrictSerializer([...]) as serde, or in it"
            )
        super().__init__(serde=serde or StrictSerializer(allowed_types or ()))
        if not isinstance(key_prefix, str) or not key_prefix or ":" in key_prefix:
            raise InvalidSettings("key_prefix is a string without a colon: the id of the thread follows the first one")
        ttl_minutes, renew = check_ttl(ttl)
        self._retention = Retention("langgraph", keep_last, max_age)
        self._opening = Opening(memory, url)
        self._key_prefix, self._owner_key = key_prefix, owner_key
        self._ttl_s, self._renew = None if ttl_minutes is None else ttl_minutes * 60, renew

    @classmethod
    def from_conn_string(cls, conn_string: str | None = None, **options: Any) -> Self:
        """Return a saver for a URL, to use with `with` or `async with`. See the class for the options.

        Raises:
            InvalidSettings: An argument is invalid.
        """
        return cls(url=conn_string, **options)

    def setup(self) -> None:
        """Check that Redis answers. There are no tables to create.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        self._opening.run(partial(_check_answer, self._threads))

    async def asetup(self) -> None:
        """Check that Redis answers. See `setup`."""
        await self._opening.arun(partial(_check_answer, self._threads))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names, or the newest one of its thread and namespace.

        Raises:
            InvalidRecord: A value is of a type that is not allowed. The error names it.
            StoreUnavailable: Redis does not answer.
        """
        return self._opening.run(lambda memory: self._threads(memory).get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint. See `get_tuple`."""
        return await self._opening.arun(lambda memory: self._threads(memory).get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Return the checkpoints of a thread, newest first. Without a config, those of all threads, one by one.

        Args:
            config: The thread, its namespace if it names one, and the checkpoint if it names one.
            filter: Only checkpoints whose metadata has these values.
            before: Only checkpoints whose id is less than the one that this config names.
            limit: The most checkpoints.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return self._opening.iterate(lambda memory: self._threads(memory).list(config, filter, before, limit))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Return checkpoints. See `list`."""
        found = self._opening.aiterate(lambda memory: self._threads(memory).list(config, filter, before, limit))
        async for checkpoint in found:
            yield checkpoint

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the new values of its channels, all or nothing, and return its config.

        If a prune has removed other values of the checkpoint while the run went on, these are stored anew.

        Raises:
            RecordConflict: The checkpoint would lack values. While the run went on, the thread was deleted or has
                expired, or the ancestors were pruned that a DeltaChannel is rebuilt from.
            InvalidRecord: An id, a namespace, a channel or a version has a NUL.
            InvalidSessionId: The thread's id is empty, or not a string.
            TooLarge: The checkpoint has more than 64 MiB.
            StoreUnavailable: Redis does not answer. The same call again is safe.
        """
        return self._opening.run(lambda memory: self._threads(memory).put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint. See `put`."""
        return await self._opening.arun(
            lambda memory: self._threads(memory).put(config, checkpoint, metadata, new_versions)
        )

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or nothing. Those that exist stay, unless they are errors or interrupts.

        Raises:
            InvalidRecord: The task's id has a NUL.
            StoreUnavailable: Redis does not answer. The same call again is safe.
        """
        self._opening.run(lambda memory: self._threads(memory).put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task. See `put_writes`."""
        await self._opening.arun(lambda memory: self._threads(memory).put_writes(config, writes, task_id, task_path))

    @contextlib.asynccontextmanager
    async def aturn(self, config: RunnableConfig, *, id: str, **options: Any) -> AsyncIterator[Turn]:
        """Let one run at a time write a thread: `async with saver.aturn(config, id="…")` around `graph.ainvoke`.

        A second one is refused on entry, before a node runs. What a run stores after another one has begun is refused.

        Args:
            config: The thread.
            id: The name of the turn: 1 to 256 bytes. To answer an interrupt, its id.

        Takes `when_busy` and `wait_s` of `redismem.Session.turn`, and raises its errors.

        Raises:
            TurnBusy: Another run of this thread goes on. Nothing was written.
            TurnKnown: A turn with this id runs or has ended. One that failed before another one begins again.
            TurnLost: Another process has ended this turn.
            RecordConflict: In the block: another turn has begun since, and nothing was written.
            TypeError: The memory is a blocking one.
        """
        threads = self._threads(self._opening.for_loop())
        session = threads.session_of(config)
        async with session.turn(turns.make_question(id), id=id, **options) as turn:
            with turns.enter(await threads.take_turn(config, self, turn.generation)):
                yield turn
        if len(turn.context.messages) > turns.KEPT_COUNT:
            with contextlib.suppress(RedismemError):  # the next turn does it
                await session.prune(1)

    @contextlib.contextmanager
    def turn(self, config: RunnableConfig, *, id: str, **options: Any) -> Iterator[BlockingTurn]:
        """Let one run at a time write a thread: `with saver.turn(config, id="…")` around `graph.invoke`.

        See `aturn`. A stop does not cancel such a run.
        """
        session: Any = self._threads(self._opening.blocking()).session_of(config)  # type: ignore[arg-type]
        with session.turn(turns.make_question(id), id=id, **options) as turn:
            take = partial(_take_turn, self._threads, config, self, turn.generation)
            with turns.enter(self._opening.run(take)):
                yield turn
        if len(turn.context.messages) > turns.KEPT_COUNT:
            with contextlib.suppress(RedismemError):
                session.prune(1)

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread: checkpoints, values and writes.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        self._opening.run(lambda memory: upkeep.delete(self._threads(memory), thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Remove a thread. See `delete_thread`."""
        await self._opening.arun(lambda memory: upkeep.delete(self._threads(memory), thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose metadata has one of these run ids, with their writes, from all threads.

        Asks each thread once. A run that wrote the only snapshot of a DeltaChannel takes that value along.

        Raises:
            RecordConflict: Others keep writing a thread, 50 times in a row. The same call again removes the rest.
            StoreUnavailable: Redis does not answer. The same call again removes the rest.
        """
        self._opening.run(lambda memory: upkeep.delete_runs(self._threads(memory), run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs. See `delete_for_runs`."""
        await self._opening.arun(lambda memory: upkeep.delete_runs(self._threads(memory), run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread. Its checkpoints appear last and at once, if there are fewer than 5,000 and 32 MiB of them.

        The copy belongs to the owner of the source.

        Raises:
            ValueError: Both are one thread.
            RecordConflict: The target has checkpoints of its own, or another owner. Or the source was deleted or pruned
                while it was copied, or another writer changed the target: then nothing of the copy stays there.
            StoreUnavailable: Redis does not answer. The same call again goes on.
        """
        self._opening.run(lambda memory: upkeep.copy(self._threads(memory), source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread. See `copy_thread`."""
        await self._opening.arun(lambda memory: upkeep.copy(self._threads(memory), source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints of threads, or whole threads.

        Args:
            thread_ids: The threads.
            strategy: `keep_latest` keeps the newest checkpoint of each namespace, and the ancestors from which its
                DeltaChannels are rebuilt; these ancestors themselves may lack older writes of such channels. `delete`
                removes the threads.

        Raises:
            ValueError: The strategy is unknown.
            RecordConflict: Others keep writing a thread, 50 times in a row. The same call again removes the rest.
            StoreUnavailable: Redis does not answer. The same call again removes the rest.
        """
        self._opening.run(lambda memory: upkeep.prune(self._threads(memory), thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Remove old checkpoints. See `prune`."""
        await self._opening.arun(lambda memory: upkeep.prune(self._threads(memory), thread_ids, strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of channels along the parents of a checkpoint, and the stored value that they begin at.

        Takes one round trip, if the config names the checkpoint, per 2,000 ancestors.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        return self._opening.run(lambda memory: self._threads(memory).history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return the writes of channels. See `get_delta_channel_history`."""
        return await self._opening.arun(lambda memory: self._threads(memory).history(config, channels))

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Return the next version of a channel. Its random end tells the versions of parallel branches apart."""
        del channel
        number = str(current).split(".")[0] if current is not None else "0"
        return f"{int(number) + 1:0{max(len(number), _VERSION_DIGITS)}}.{random.getrandbits(32):08x}"

    def _threads(self, memory: Memory) -> Threads:
        options = SaverOptions(self.serde, self._key_prefix, self._ttl_s, self._renew, self._owner_key, self._retention)
        return Threads(memory, options, turns.running_of(self))


async def _check_answer(make: Any, memory: Memory) -> None:
    await make(memory).record("setup").exists()


async def _take_turn(
    make: Any, config: RunnableConfig, saver: RedismemSaver, generation: str, memory: Memory
) -> turns.Running:
    threads: Threads = make(memory)
    return await threads.take_turn(config, saver, generation)
