"""The runs of a framework that write a session one at a time, each within a turn."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from redismem import Message, Session, Turn


@dataclass(slots=True, eq=False)
class Run:
    """A run of a framework that alone writes a session. Its question is stored when the turn begins."""

    session: Session
    turn: Turn
    unsaved: list[Any]
    """The question as the framework compares messages, until the framework saves it too."""

    def hide(self, messages: list[Message]) -> list[Message]:
        """Return messages without a question that the framework has not saved: it passes that one on by itself."""
        if not self.unsaved:
            return messages
        last_seq = self.turn.context.last_seq
        question = range(last_seq - len(self.unsaved) + 1, last_seq + 1)
        return [each for each in messages if each.seq not in question]

    def count_stored(self, saved: Sequence[Any]) -> int:
        """Return the number of messages at the beginning of the framework's save that are stored, as the question."""
        count, is_question = len(self.unsaved), [*saved[: len(self.unsaved)]] == self.unsaved
        self.unsaved = []
        return count if is_question else 0


_runs: ContextVar[tuple[Run, ...]] = ContextVar("redismem.adapters.runs", default=())


@contextlib.asynccontextmanager
async def begin_run(
    session: Session, question: Sequence[Message | dict[str, Any]], keys: Sequence[Any], **options: Any
) -> AsyncIterator[Turn]:
    """Begin a turn for a run, see `Session.turn`. The block, and the tasks that it begins, write within the turn.

    `keys` are the messages of the question as the framework compares them.
    """
    async with session.turn(*question, **options) as turn:
        outer = _runs.get()
        _runs.set((*outer, Run(session, turn, [*keys])))
        try:
            yield turn
        finally:
            _runs.set(outer)


def run_of(session: Session) -> Run | None:
    """Return the run whose turn of this session the caller is in, if it is in one."""
    return next((run for run in _runs.get() if run.session is session), None)
