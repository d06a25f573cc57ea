"""The processes of the campaign of turns: writers, which run turns over shared sessions, and listeners.

`python -m support.turn_processes ROLE URL FOLDER NUMBER LIFE`. Each writes what it knows to a ledger, a file of its own
with a line of JSON each, at once: so the ledger survives its process. It ends its work when its standard input ends.

Each delta is a word, `<generation>:<number>`: so a listener needs no other knowledge to see that one is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal

from redismem import Memory, RedismemError, Session, SessionNotFound, Settings, StoreUnavailable, Turn

NAMESPACE = "turns"
FAULT = "TURNS_FAULT"
"""The variable that names a fault of the scripts."""
LEASE_S = 1.0
SETTINGS = Settings(
    strategy="none",
    shards=4,
    live_lease_s=LEASE_S,
    deadline_s=4,
    reply_timeout_s=0.5,
    max_window_count=100_000,
)
SESSIONS = [f"shared-{number}" for number in range(8)]
_TASKS_COUNT = 6
_IDS_PER_S = 3
_WHEN_BUSY: tuple[Literal["refuse", "wait", "interrupt"], ...] = ("refuse", "wait", "wait", "interrupt")
Ledger = Callable[..., None]


def open_ledger(path: Path) -> Ledger:
    """Return a function that appends a line to a ledger."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(**line: Any) -> None:
        os.write(file, json.dumps(line).encode() + b"\n")

    return note


def read_lines(path: Path, offset: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the whole lines of a ledger from this offset on, each with the offset of its end."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if line.endswith(b"\n"):
                offset += len(line)
                yield offset, json.loads(line)


class Boom(Exception):
    """A model fails."""


async def speak(turn: Turn, said: list[str], note: Ledger) -> None:
    """Say words, append messages between them, and sometimes fail. `said` keeps the words since the last append."""
    pace_s = random.choice((0, 0, 0.002, 0.02))
    for number in range(random.randint(1, 80)):
        said.append(f"{turn.generation}:{number} ")
        await turn.write(said[-1])
        if random.random() < 0.02:
            text = f"tool {turn.generation} {number}"
            try:
                await turn.append({"role": "assistant", "content": text}, {"role": "tool", "content": text})
            finally:
                said.clear()  # if a stop interrupts it, it has been made
            note(kind="appended", session=turn.session_id, text=text)
        if random.random() < 0.003:
            raise Boom
        await asyncio.sleep(random.random() * pace_s)


async def take_turn(session: Session, note: Ledger) -> None:
    """Take a turn whose id another process, or an earlier attempt, may have."""
    age = random.randint(1, 20) if random.random() < 0.3 else 0
    turn_id = f"{session.id}-{int(time.time() * _IDS_PER_S) - age}"
    when = random.choice(_WHEN_BUSY)
    question = {"role": "user", "content": turn_id}
    turn = session.turn(question, id=turn_id, when_busy=when, wait_s=random.uniform(0.2, 3))
    generation, said = "", list[str]()
    try:
        async with turn:
            generation = turn.generation
            note(kind="begun", session=session.id, id=turn_id, generation=generation)
            await speak(turn, said, note)
    finally:
        if generation:
            told = {"outcome": turn.outcome, "reply_seq": turn.reply_seq, "text": "".join(said)}
            note(kind="ended", session=session.id, id=turn_id, generation=generation, **told)


async def write_turns(memory: Memory, note: Ledger, over: asyncio.Event) -> None:
    """Take turns, stop some from outside, and cancel others."""
    while not over.is_set():
        session = memory.session(random.choice(SESSIONS))
        task = asyncio.create_task(take_turn(session, note))
        if random.random() < 0.1:
            await asyncio.wait((task,), timeout=random.uniform(0, 0.5))
            task.cancel()
        elif random.random() < 0.1:
            await asyncio.wait((task,), timeout=random.uniform(0, 0.5))
            with contextlib.suppress(StoreUnavailable):
                await memory.session(random.choice(SESSIONS)).stop()
        await asyncio.wait((task,))
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, RedismemError | Boom):
            note(kind="error", text=f"{type(error).__name__}: {error}")
            raise error
        if error is not None:
            note(kind="refused", text=type(error).__name__)
        await asyncio.sleep(0.01)


async def run_writer(memory: Memory, folder: Path, number: int, life: int, over: asyncio.Event) -> None:
    """Run a writer with several turns at a time."""
    note = open_ledger(folder / f"writer-{number}.{life}")
    async with asyncio.TaskGroup() as group:
        for _ in range(_TASKS_COUNT):
            group.create_task(write_turns(memory, note, over))


class Listener:
    """Follows every turn that a writer has begun, from where its last life was."""

    def __init__(self, memory: Memory, folder: Path, number: int, life: int) -> None:
        self._memory, self._folder = memory, folder
        self._after: dict[str, str | None] = {}
        """The last event of each turn that was heard, by generation."""
        self._done: set[str] = set()
        self._offsets: dict[Path, int] = {}
        for earlier in range(life):
            for _, line in read_lines(folder / f"listener-{number}.{earlier}"):
                self._note_heard(line)
        self.note = open_ledger(folder / f"listener-{number}.{life}")
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def _note_heard(self, line: dict[str, Any]) -> None:
        generation = line["generation"]
        if line["kind"] == "heard":
            self._after[generation] = line["id"] or None
        if line["kind"] == "other" or line["event"]["type"] == "end":
            self._done.add(generation)

    async def run(self, over: asyncio.Event) -> None:
        """Follow new turns, until the writers are done and each turn has ended."""
        while not over.is_set() or not all(task.done() for task in self._tasks.values()):
            is_last = over.is_set()
            for path in sorted(self._folder.glob("writer-*")):
                for offset, line in read_lines(path, self._offsets.get(path, 0)):
                    self._offsets[path] = offset
                    if line["kind"] == "begun" and line["generation"] not in self._done:
                        self._tasks[line["generation"]] = asyncio.create_task(self._hear(line))
            for task in [task for task in self._tasks.values() if task.done()]:
                task.result()
            await asyncio.sleep(0 if is_last else 0.02)

    async def _hear(self, begun: dict[str, Any]) -> None:
        generation, session = begun["generation"], self._memory.session(begun["session"])
        is_first = random.random() < 0.3
        while generation not in self._done:
            after = self._after.get(generation)
            if generation in self._after and after is None:
                # It has left while it was told a stored reply, whose events have no ids.
                self._take(kind="heard", generation=generation, id="", event={"type": "restart"})
            turn = None if is_first and after is None else begun["id"]
            is_first = False
            count = random.choice((random.randint(1, 30), 1_000_000))
            try:
                await self._hear_some(session, generation, after, turn, count)
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            except SessionNotFound:
                self.note(kind="unknown", generation=generation, id=begun["id"], event={"type": ""})
                return

    async def _hear_some(
        self, session: Session, generation: str, after: str | None, turn: str | None, count: int
    ) -> None:
        """Take some events, and leave in the middle."""
        async with aclosing(session.follow(after=after, turn=turn)) as events:
            async for event_id, event in events:
                if event_id and not event_id.startswith(f"{generation}."):
                    if turn is not None:
                        # The turn was lost without a reply, and has begun again under its id.
                        self._take(kind="other", generation=generation, id=event_id, event=event)
                    return
                self._take(kind="heard", generation=generation, id=event_id, event=event, at_s=time.time())
                count -= 1
                if not count:
                    return

    def _take(self, **line: Any) -> None:
        self.note(**line)
        self._note_heard(line)


async def main(role: str, url: str, folder: Path, number: int, life: int) -> None:
    """Play a role until standard input ends."""
    if fault := os.environ.get(FAULT):
        from support.turn_mutants import seed  # imports what only tests have

        seed(fault)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    async with Memory.connect(url, namespace=NAMESPACE, settings=SETTINGS) as memory:
        if role == "writer":
            await run_writer(memory, folder, number, life, over)
        else:
            await Listener(memory, folder, number, life).run(over)


if __name__ == "__main__":
    role, url, folder, number, life = sys.argv[1:]
    asyncio.run(main(role, url, Path(folder), int(number), int(life)))
