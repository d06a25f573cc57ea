"""Find the tool calls and results of a history that no provider accepts, so that a view of it can be sent again.

A process that dies between a call and its result leaves the call. What is stored stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from redismem.events import Op, facts

log = logging.getLogger("redismem")

NO_RESULT = "The tool call was interrupted, and its result is unknown."
"""The result of a call that has none, in the words for a model."""
_SESSIONS_COUNT = 4_096


@dataclass(slots=True)
class Orphans:
    """The calls and results of a list of messages that have no counterpart next to them."""

    calls: dict[int, set[str]] = field(default_factory=dict)
    """By index of a message: the ids of its calls without a result."""
    ends: dict[int, int] = field(default_factory=dict)
    """By index of a message in `calls`: the index of the first message behind its results."""
    results: dict[int, set[str]] = field(default_factory=dict)
    """By index of a message: the ids of its results without a call."""

    def __bool__(self) -> bool:
        return bool(self.calls or self.results)


Ends = tuple[Collection[str], Collection[str]]
"""The ids of the calls that a message answers, and of the calls that it makes.

Each adapter reads them from the framework's objects: a reader of all formats takes longer than the rest of a read.
"""
NO_ENDS: Ends = (), ()


def find_orphans(messages: Iterable[Ends], *, may_end_open: bool) -> Orphans:
    """Return the calls that the results right behind them do not answer, and the results that answer no such call.

    With `may_end_open`, the last calls may still get results.
    """
    orphans, waiting, caller, count = Orphans(), set[str](), -1, 0

    def close(at: int) -> None:
        if waiting:
            orphans.calls[caller], orphans.ends[caller] = {*waiting}, at

    for at, (answered, made) in enumerate(messages):
        count = at + 1
        if not (answered or made or waiting):
            continue  # nearly all messages
        if lone := {*answered} - waiting:
            orphans.results[at] = lone
        waiting.difference_update(answered)
        if made or not answered:
            close(at)
            waiting, caller = {*made}, at
    if not may_end_open:
        close(count)
    return orphans


def say_repaired(session: object) -> None:
    """Log that the view of a session is repaired, once per process. Its name in the log is that of its handle."""
    _say_once(repr(session))


@lru_cache(maxsize=_SESSIONS_COUNT)
def _say_once(named: str) -> None:
    text = "%s: tool calls without a result, or results without a call, are read as interrupted; both stay stored"
    log.warning(text, named, extra=facts(op=Op.READ))
