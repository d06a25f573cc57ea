"""Strategies for properties of the workers, and functions that read the results."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from hypothesis import strategies as st

from redismem import Memory, Session
from redismem.context.context import Context
from redismem.errors import ModelFailed, ProviderUnavailable
from redismem.protocol.queue.depths import members
from support.clock import T0, Clock
from support.writers import chat_message

OpenMemory = Callable[..., AbstractAsyncContextManager[Memory]]
texts = st.text(max_size=12)
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | floats | texts
payloads = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts})
batches = st.lists(st.integers(1, 9), min_size=1, max_size=5)
bounds = st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
    lambda pair: {"threshold": max(pair), "recent_limit": min(pair)}
)
ages = st.lists(st.integers(0, 60), min_size=1, max_size=5)
failures = st.sampled_from(
    [
        ModelFailed("an empty text"),
        ProviderUnavailable("503", perhaps_request=True),
        ProviderUnavailable("429", retry_after_s=1),
        ModelFailed("400", permanent=True),
        TimeoutError(),
        ValueError("of a strategy's own"),
        RecursionError(),
    ]
)


async def append(session: Session, counts: list[int]) -> None:
    """Append batches of messages whose texts hold their seqs."""
    seq = 0
    for count in counts:
        await session.append(*(chat_message(seq + at) for at in range(1, count + 1)))
        seq += count


def covered_seqs(context: Context) -> list[int]:
    """Return the seqs in summaries and window, in order."""
    seqs = [seq for summary in context.summaries for seq in range(summary.first_seq, summary.last_seq + 1)]
    return seqs + [message.seq for message in context.messages]


async def read_stored(raw: Any, session: Session, memory: Memory) -> list[Any]:
    """Return all stored keys of a session, and its scores in every index of its shard."""
    keys = memory.store.keys.session(session.id)
    shard = keys.shard
    state = await raw.hgetall(keys.state)
    lists = [await raw.lrange(keys.messages, 0, -1), await raw.hgetall(keys.originals)]
    indexes = (shard.active, shard.overdue, shard.leased, shard.dead, shard.evictions)
    return [state, *lists, *[await raw.zscore(index, session.id) for index in indexes]]


async def create_sessions(memory: Memory, clock: Clock, active_ms: list[int]) -> list[str]:
    """Create sessions that were last active at these times, and set the clock to T0."""
    names = [f"s-{number}" for number in range(len(active_ms))]
    for name, at_ms in zip(names, active_ms, strict=True):
        await clock.run_at(at_ms, memory.session(name).append(chat_message(1)))
    clock.now_ms = T0
    return names


async def queue_members(memory: Memory, queue: str) -> set[str]:
    return {entry.session_id for entry in await memory.store.run(members(memory.store.keys.shards(), queue, 1_000))}
