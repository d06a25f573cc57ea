"""What redismem tells of its work: an event after each call, and the facts that its log records carry.

Both name a session by its hash, and hold no text of a message, no value and no id in clear.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypedDict, Unpack


class Event(NamedTuple):
    """One call to Redis that has ended, or one piece of a worker's work.

    A method of a session is one call of its name, `params()` and the like are a `state`, `merge()` and the like an
    `update`; `undo()` is a `pop`, `unpin()` a `replace`. Some take more: `messages` is a call a page, and `pinned` one
    more; a `read_epoch` goes before a `clear`, a `read_window` before a `prune`, `pop` or `replace`. What is refused
    before it is sent, such as a message that cannot be stored, is no call. An `embed` goes to no Redis: it is the
    vector of a question.
    """

    op: str
    """What was done.

    By a session: append, append_and_read, read, messages, state, info, exists, touch, update, read_epoch, clear,
    read_window, prune, pop, replace, pinned, recall, block, quarantine_block, quarantine, embed. By a memory:
    ping, count, sessions, server_time, take, recorded, record.
    By workers, a call each: hold (whose turn it is); provider, pause (whether somebody may be asked); due, claim,
    extend, commit, release; counts, oldest, expiries, queue_eviction, due_evictions, claim_eviction, evict; scan,
    sweep, dictionaries (what originals are compressed with: sessions read them too); vectors, set_vectors.
    By workers, all of it together, with what a strategy or an `on_evict` takes: summary, embedding and eviction (of one
    session), drain (the overdue queue), enforce (the session limit and the timeout), sweep_round.
    By a store: breaker (it has changed: its state is the outcome), replay (an append that was accepted while Redis was
    away).
    By a project: project_read, project_change, project_find, project_words, project_count, project_record.
    By commands for operators: look, depths, members, requeue, recorded_shards, restore, drop.
    """
    outcome: str
    """ok; duplicate (an append whose id was known before the call); degraded (this process has served it while Redis
    was away); conflict (`expect` was another); nothing (no such session, or it is not as the call expected it). A
    claim, a commit, a release and a summary (`redismem.workers.outcomes`) have words of their own. Else the name of the
    error's class, such as StoreUnavailable, TooLarge, CancelledError.
    """
    duration_ms: float
    """How long it took, from the start to the end, with all that was sent again and the pauses between."""
    namespace: str
    session: str | None = None
    """The session's hash, as in the logs; None if the call is not about one session."""
    sent_count: int = 0
    """How often a call was sent: 1, more if it had to be sent again, 0 if a first look at the namespace failed. What a
    client of the caller's own repeats by itself is not seen. 0 for a worker's work: its calls have their own events.
    """
    message_count: int = 0
    """Messages that the call gave back (`messages`), dropped (`prune`), or was to append or to cover (`commit`)."""
    message_bytes: int = 0
    """The stored size of the messages of an append."""
    tokens: int = 0
    """Tokens of the messages of an append or a commit."""
    window_count: int | None = None
    """Messages of the session's window after the call, if the answer tells."""


OnEvent = Callable[[Event], None]
"""Told of each event. It runs where the call runs, on the event loop: it must be quick, and must not wait."""


class Facts(TypedDict, total=False):
    """The attributes of a log record of redismem, beside those that every record has. All but `op` may be missing."""

    op: str
    """What was being done: the word of an event, else `settings`, `connect`, `on_event`, `provider` (it is paused, or
    answers again), `tick` (this process looks after something for all pods, or no more), or `worker` (of a process: it
    began or ended)."""
    session: str
    """The session's hash."""
    namespace: str
    outcome: str
    """What came of it, in the words of an event."""
    error: str
    """The name of the error's class. Of an error that is not redismem's, `exc_info` shows where it was raised."""
    reason: str
    """Why a summary, an eviction or a provider failed: a status and a code, or the kind of the error; never a text."""
    duration_ms: int
    message_count: int
    """Messages that a summary covers."""
    folded_count: int
    """Summaries that became one."""
    session_count: int
    """Sessions that were evicted."""
    attempt: int
    """Which attempt at a summary it was, from 1."""
    backoff_ms: int
    """How long the next attempt waits, or the provider is paused."""
    setting: str
    """A variable of the environment."""


FACTS = tuple(Facts.__annotations__)
"""The names, in the order in which they are shown."""


def facts(**known: Unpack[Facts]) -> Facts:
    """The `extra` of a log record."""
    return known


def unquoted(error: BaseException) -> Exception:
    """For the `exc_info` of a log record: an error of that name, raised where this one was, that says nothing.

    What raises in code of the caller's own may quote a message, and so may what led to it; formatters print both.
    """
    kind = type(error)
    of_that_name = type(kind.__name__, (Exception,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})
    shown: Exception = of_that_name()
    return shown.with_traceback(error.__traceback__)
