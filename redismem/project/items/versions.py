"""Versions of an item, and the state at any moment that follows from them. No I/O.

A version records a change, the time when the change became true (`at_ms`), and the time when it was written
(`known_ms`). The state at a moment is computed from the versions that were true by then, in the order of `at_ms`. So a
change that is entered late applies in the past, and later changes are kept. Versions do not store the fields that
follow from the status: these are derived from the statuses, ordered by `at_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

from redismem.errors import InvalidItem, InvalidTransition
from redismem.messages.values import Undecodable, decode_value, pack
from redismem.project.items.schema import TASK, ItemKind

State = dict[str, Any]
"""An item's fields, and `version`, `created_ms`, `updated_ms`, `valid_from_ms`, `latest_ms`."""

MENTIONS_LIMIT = 100
_NUMBERS = ("version", "created_ms", "updated_ms", "valid_from_ms", "latest_ms")


@dataclass(slots=True)
class Delta:
    """One version: the fields that it sets, and the values that it adds to, or drops from, lists, dicts and counts."""

    version: int
    at_ms: int
    known_ms: int
    nonce: str
    sets: State = field(default_factory=dict)
    adds: State = field(default_factory=dict)
    drops: dict[str, list[Any]] = field(default_factory=dict)
    reason: str = ""

    def encode(self) -> bytes:
        """Encode the version for storage."""
        parts = [self.version, self.at_ms, self.known_ms, self.nonce, self.sets, self.adds, self.drops, self.reason]
        return pack(parts, InvalidItem, "a version")


def decode_delta(packed: bytes) -> Delta:
    """Decode a stored version. Raises Undecodable."""
    try:
        return Delta(*decode_value(packed))
    except TypeError:
        raise Undecodable("a version of an item cannot be decoded") from None


def fold(
    kind: ItemKind, deltas: Iterable[Delta], at_ms: int | None = None, known_ms: int | None = None
) -> State | None:
    """Return the state at `at_ms`, as known at `known_ms`, both now by default; `None` if the item did not exist."""
    known = [
        delta
        for delta in deltas
        if (known_ms is None or delta.known_ms <= known_ms) and (at_ms is None or delta.at_ms <= at_ms)
    ]
    if not any(delta.version == 1 for delta in known):
        return None
    state = kind.defaults()
    for delta in sorted(known, key=lambda delta: (delta.at_ms, delta.version)):
        _apply(kind, state, delta)
    first = next(delta for delta in known if delta.version == 1)
    state |= {
        "version": max(delta.version for delta in known),
        "created_ms": first.known_ms,
        "updated_ms": max(delta.known_ms for delta in known),
        "valid_from_ms": first.at_ms,
        "latest_ms": max(delta.at_ms for delta in known),
    }
    return state


def advance(kind: ItemKind, state: State, delta: Delta) -> State:
    """Return the state after one more version, which must not be older than the others. Does not modify `state`."""
    advanced = {name: _copy(value) for name, value in state.items()}
    _apply(kind, advanced, delta)
    advanced |= {"version": delta.version, "updated_ms": delta.known_ms, "latest_ms": delta.at_ms}
    return advanced


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, list | dict) else value


def _apply(kind: ItemKind, state: State, delta: Delta) -> None:
    if state["status"] in kind.ended and delta.sets.get("status", state["status"]) not in kind.ended:
        state["valid_until"] = None
    for name, value in delta.sets.items():
        state[name] = _copy(value)
    if "status" in delta.sets:
        state["history"].append([delta.sets["status"], delta.at_ms, delta.reason])
    for name, values in delta.drops.items():
        for value in values:
            if isinstance(state[name], dict):
                state[name].pop(value, None)
            elif value in state[name]:
                state[name].remove(value)
    for name, values in delta.adds.items():
        state[name] = _add_values(name, state[name], values)
    if kind is TASK:
        _update_blocked(state, delta)
    _update_end(kind, state)


def _update_blocked(state: State, delta: Delta) -> None:
    """Clear the blockers of a task that is not blocked. Unblock a task that has no blockers left."""
    before = [status for status, _, _ in state["history"] if status != "blocked"]
    if state["status"] != "blocked":
        state["blocked_by"] = []
    elif before and not state["blocked_by"]:
        state["status"] = before[-1]
        state["history"].append([before[-1], delta.at_ms, delta.reason])


def _update_end(kind: ItemKind, state: State) -> None:
    """Derive the fields that depend on the end of an item: `valid_until`, `archived` and `completed_at`."""
    ends_ms = [at_ms for _, at_ms, _ in takewhile(lambda entry: entry[0] in kind.ended, reversed(state["history"]))]
    if ends_ms:
        until_ms = state["valid_until"]
        state["valid_until"] = ends_ms[-1] if until_ms is None else min(until_ms, ends_ms[-1])
    elif kind.ended:
        state["archived"] = False
    if kind is TASK:
        state["completed_at"] = ends_ms[-1] if state["status"] == "completed" else None


def _add_values(name: str, value: Any, added: Any) -> Any:
    if isinstance(added, int):
        return value + added
    if isinstance(added, Mapping):
        return value | added
    if name == "mentions":
        return sorted(value + added, key=lambda mention: mention[1])[-MENTIONS_LIMIT:]
    return value + [each for each in added if each not in value]


def check_path(kind: ItemKind, state: State) -> None:
    """Raise InvalidTransition for a forbidden change of status, InvalidItem for a forbidden first status."""
    if kind.transitions is None:
        return
    statuses = [entry[0] for entry in state["history"]]
    if not statuses or statuses[0] not in kind.begins:
        raise InvalidItem(f"a {kind.name} begins as {' or '.join(kind.begins)}")
    for before, after in pairwise(statuses):
        if after not in kind.transitions[before]:
            text = (
                f"a {kind.name} that is {before} cannot become {after}; {_describe_possible(kind.transitions, before)}"
            )
            raise InvalidTransition(text, None, before, after)


def _describe_possible(transitions: Mapping[str, frozenset[str]], before: str) -> str:
    """Describe the statuses that may follow."""
    after = [status for status in transitions if status in transitions[before] and status != before]
    if not after:
        return f"it stays {before}"
    listed = ", ".join(after[:-1])
    return f"it can become {f'{listed} or ' if listed else ''}{after[-1]}"


def encode_body(kind: ItemKind, state: State, delta: Delta) -> bytes:
    """Encode the current state of an item; or its only version, since the state follows from it."""
    if delta.version == 1:
        return b"1 " + delta.encode()
    parts = {name: state[name] for name, spec in kind.fields.items() if state[name] != spec.default}
    numbers = [state[name] for name in _NUMBERS]
    # With the change's nonce, so that two writers with equal changes still differ.
    return b"%d %s" % (state["version"], pack([numbers, parts, delta.nonce], InvalidItem, "an item"))


def decode_body(kind: ItemKind, body: bytes) -> tuple[State, Delta | None]:
    """Decode the current state of an item, and its version if it has only one. Raises Undecodable."""
    number, _, packed = body.partition(b" ")
    try:
        if number == b"1":
            delta = decode_delta(packed)
            state = fold(kind, [delta])
            if state is None:
                raise Undecodable("an item cannot be decoded")
            return state, delta
        numbers, parts, _ = decode_value(packed)
        return kind.defaults() | dict(zip(_NUMBERS, numbers, strict=True)) | parts, None
    except (TypeError, ValueError, KeyError, AttributeError):
        raise Undecodable("an item cannot be decoded") from None
