"""Every operation of a session: how it is called, and what tests expect of it in each situation.

A new operation gets a row here. `tests/session/test_operations.py` fails until it has one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from redismem import Conflict, CorruptSession, Policy, SessionNotFound, State
from support.checks import user

Call = Callable[[Any], Any]


class Unset:
    """Marks a situation that the row is not about."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
ANY: Final = object()
"""Any value: the session starts afresh."""


class Operation(NamedTuple):
    """One operation, or one way to call it."""

    call: Call
    trips_count: int | None = None
    """The number of round trips it takes on a session of a few messages."""
    unknown: Any = UNSET
    """Its value for a session that does not exist, or the error it raises. It writes nothing."""
    corrupt: Any = UNSET
    """Its value for a session whose state is a foreign key, or the error it raises: `ANY` value will do."""
    refuses_layout: bool = False
    """True if it refuses a session of another layout version."""
    outage: Literal["served", "refused", ""] = ""
    """The behaviour of the fallback while Redis is down."""


OPERATIONS: dict[str, Operation] = {
    "append": Operation(
        lambda session: session.append(user()), 1, UNSET, ANY, refuses_layout=True, outage="served"
    ),
    "append that expects": Operation(
        lambda session: session.append(user(), expect=1), unknown=Conflict, outage="refused"
    ),
    "append with confirm": Operation(lambda session: session.append(user(), confirm=1), outage="refused"),
    "append_and_read": Operation(
        lambda session: session.append_and_read(user(), merge={"a": 1}, waiting="b", id="b"),
        1, UNSET, ANY, refuses_layout=True, outage="served",
    ),
    "append_and_read that expects": Operation(
        lambda session: session.append_and_read(user(), expect=1), unknown=Conflict
    ),
    "append_and_read that recalls": Operation(
        lambda session: session.append_and_read(user(), recall=100, id="b"), 1, UNSET, ANY, outage="served"
    ),
    "read": Operation(lambda session: session.read(), 1, UNSET, CorruptSession, refuses_layout=True, outage="served"),
    "read limited": Operation(lambda session: session.read(limit=2), 1, UNSET, CorruptSession, refuses_layout=True),
    "read that renews": Operation(
        lambda session: session.read(renew=True), 1, UNSET, CorruptSession, refuses_layout=True, outage="served"
    ),
    "tail that renews": Operation(
        lambda session: session.tail(2, renew=True), 1, [], CorruptSession, refuses_layout=True, outage="served"
    ),
    "state that renews": Operation(
        lambda session: session.state(renew=True), 1, State(), CorruptSession, refuses_layout=True, outage="served"
    ),
    "tail": Operation(lambda session: session.tail(2), 1, [], CorruptSession, refuses_layout=True, outage="served"),
    "messages": Operation(
        lambda session: session.messages(), 1, SessionNotFound, CorruptSession, refuses_layout=True, outage="served"
    ),
    "messages of none": Operation(lambda session: session.messages(limit=0), unknown=SessionNotFound),
    "messages before": Operation(
        lambda session: session.messages(limit=1, before=2), unknown=SessionNotFound, refuses_layout=True
    ),
    "messages with originals": Operation(lambda session: session.messages(include_originals=True), outage="refused"),
    "recall": Operation(
        lambda session: session.recall("a"), 1, [], CorruptSession, refuses_layout=True, outage="refused"
    ),
    "update": Operation(lambda session: session.update(merge={"a": 1}, plan=["b"]), 1, outage="served"),
    "merge": Operation(lambda session: session.merge({"a": 1}), 1, UNSET, ANY, refuses_layout=True, outage="served"),
    "state": Operation(lambda session: session.state(), 1, State(), CorruptSession, outage="served"),
    "params": Operation(lambda session: session.params(), 1, {}, CorruptSession, outage="served"),
    "waiting": Operation(lambda session: session.waiting(), unknown=None, outage="served"),
    "last_intent": Operation(lambda session: session.last_intent(), unknown=None, outage="served"),
    "last_result": Operation(lambda session: session.last_result(), unknown=None, outage="served"),
    "plan": Operation(lambda session: session.plan(), unknown=None, outage="served"),
    "title": Operation(lambda session: session.title(), 1, unknown=None, outage="served"),
    "exists": Operation(
        lambda session: session.exists(), 1, unknown=False, corrupt=CorruptSession, outage="refused"
    ),
    "set_aside": Operation(
        lambda session: session.set_aside(), 2, unknown=False, corrupt=True, refuses_layout=True, outage=""
    ),
    "set_policy": Operation(
        lambda session: session.set_policy(Policy(exempt=True)),
        1,
        unknown=False,
        corrupt=False,
        refuses_layout=True,
        outage="refused",
    ),
    "touch": Operation(
        lambda session: session.touch(), 1, unknown=False, corrupt=False, refuses_layout=True, outage="refused"
    ),
    "info": Operation(
        lambda session: session.info(), 1, SessionNotFound, CorruptSession, refuses_layout=True, outage="served"
    ),
    "telemetry": Operation(
        lambda session: session.telemetry(),
        1, {"history_count": 0, "params_keys": [], "waiting_for_param": None}, CorruptSession,
        refuses_layout=True, outage="served",
    ),
    "turn_of": Operation(
        lambda session: session.turn_of("t1"), 1, None, CorruptSession, refuses_layout=True, outage="refused"
    ),
    "stop": Operation(lambda session: session.stop(), 1, unknown=False, outage="refused"),
    "prune": Operation(
        lambda session: session.prune(1), 2, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused"
    ),
    "archive": Operation(
        # The third trip reads the block of originals that the messages extend.
        lambda session: session.archive(1), 3, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused"
    ),
    "pop": Operation(
        lambda session: session.pop(1), 2, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused"
    ),
    "undo": Operation(
        lambda session: session.undo(), 2, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused"
    ),
    "rewrite": Operation(
        lambda session: session.rewrite(1, [user()]),
        2, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused",
    ),
    "replace": Operation(
        lambda session: session.replace(2, user()),
        2, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused",
    ),
    "unpin": Operation(
        lambda session: session.unpin(2), 1, SessionNotFound, SessionNotFound, refuses_layout=True, outage="refused"
    ),
    "forget": Operation(
        lambda session: session.forget(*range(1, 17)),
        2,
        SessionNotFound,
        SessionNotFound,
        refuses_layout=True,
        outage="refused",
    ),
    "clear": Operation(lambda session: session.clear(), unknown=False, corrupt=False, outage="refused"),
    "clear that insists": Operation(lambda session: session.clear(missing_ok=False), unknown=SessionNotFound),
}  # fmt: skip
"""By name. Rows of one operation begin with its name."""
