"""The turns of a thread: one run at a time writes it, in any process.

The lease of a turn is that of a session beside the thread. The thread's record has the generation of its last turn, and
each write of a run expects its own there. So a run that lost its lease writes nothing more once another one has begun.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from redismem import Message, RecordConflict
from redismem.adapters.langgraph import layout
from redismem.adapters.sessions import read_or_begin
from redismem.record import Change, Record

LOST = "another turn of the thread has begun since: nothing more of this run is stored"
KEPT_COUNT = 16
"""The turns whose messages the session keeps at least. It knows more of them by their ids."""


@dataclass(frozen=True, slots=True)
class Running:
    """The turn of a saver that the caller is in."""

    saver: object
    record_id: str
    generation: bytes


_running: ContextVar[tuple[Running, ...]] = ContextVar("redismem.langgraph.turns", default=())


def running_of(saver: object) -> tuple[Running, ...]:
    """Return the turns of a saver that the caller is in."""
    return tuple(running for running in _running.get() if running.saver is saver)


@contextlib.contextmanager
def enter(running: Running) -> Iterator[None]:
    """Let the block, and all that LangGraph runs for it, write within a turn."""
    outer = _running.get()
    _running.set((*outer, running))
    try:
        yield
    finally:
        _running.set(outer)


def make_question(id: str) -> Message:
    """Return the message that begins a turn. The input of the run is in the checkpoints."""
    return Message.opaque({"type": "run", "id": id})


def fence(record: Record, running: Iterable[Running]) -> dict[bytes, bytes]:
    """Return the condition under which the caller may write a thread: none outside of its turn."""
    generation = next((each.generation for each in running if each.record_id == record.id), None)
    return {} if generation is None else {layout.TURN: generation}


async def take(record: Record, generation: str) -> bytes:
    """Fence the writes of earlier turns. Raises RecordConflict if a later one has begun."""
    mine = generation.encode()
    while True:
        [other] = await read_or_begin(record, partial(record.get, layout.TURN))
        if other is not None and _number(other) > _number(mine):
            raise RecordConflict(LOST, record_id=record.id, field=layout.TURN)
        unchanged: dict[str, Any] = {"absent": [layout.TURN]} if other is None else {"equals": {layout.TURN: other}}
        with contextlib.suppress(RecordConflict):  # another one fences too: look again
            await record.write(Change(sets={layout.TURN: mine}, **unchanged))
            return mine


def _number(generation: bytes) -> int:
    return int(generation.partition(b"-")[0])
