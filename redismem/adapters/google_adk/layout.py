"""The fields of a session's record, and the events and states that they are decoded to. No I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from google.adk.events.event import Event
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from redismem import InvalidMessage
from redismem.record import Found, Related

SESSION, STATE, EVENT, ID = b"m", b"s:", b"e:", b"i:"
"""The fields of a session: time and count of events; a value of the state; an event; the numbers of an event's id.

All but the last are members too. Records of users and apps have the values of the state alone.
"""
VALUES = Related(b"s", b":")


def split_state(delta: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the changes of the app's, the user's and the session's state. Those of `temp:` keys are left out."""
    split: dict[str, dict[str, Any]] = {"app": {}, "user": {}, "session": {}}
    for key, value in delta.items():
        for kind, prefix in (("app", State.APP_PREFIX), ("user", State.USER_PREFIX), ("temp", State.TEMP_PREFIX)):
            if key.startswith(prefix):
                split.setdefault(kind, {})[key.removeprefix(prefix)] = value
                break
        else:
            split["session"][key] = value
    split.pop("temp", None)
    return split


def encode_event(event: Event) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """Return an event as JSON without `temp:` keys, and the changes of state that it contains.

    Raises:
        InvalidMessage: its timestamp is no finite number: the session could not be read again.
    """
    if not math.isfinite(event.timestamp):
        raise InvalidMessage("the timestamp of an event is not a finite number, and JSON has no other")
    if not event.actions.state_delta:
        return event.model_dump_json().encode(), split_state({})
    delta = {key: value for key, value in event.actions.state_delta.items() if not key.startswith(State.TEMP_PREFIX)}
    stored = event.model_copy(update={"actions": event.actions.model_copy(update={"state_delta": delta})})
    text = stored.model_dump_json()
    return text.encode(), split_state(json.loads(text)["actions"]["state_delta"])


def encode_state(values: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Return the fields of values of a state."""
    return {STATE + key.encode("utf-8", "surrogatepass"): json.dumps(value).encode() for key, value in values.items()}


def decode_state(pairs: Iterable[tuple[bytes, bytes | None]]) -> dict[str, Any]:
    """Return the values of a state from its fields."""
    named = ((name.removeprefix(STATE).decode("utf-8", "surrogatepass"), value) for name, value in pairs)
    return {name: json.loads(value) for name, value in named if value is not None}


def make_session(
    app_name: str,
    user_id: str,
    session_id: str,
    found: Found,
    app: Mapping[str, Any],
    user: Mapping[str, Any],
    events: list[Event],
) -> Session:
    """Return ADK's session with the state of its user and app."""
    state = decode_state(found.related)
    state |= {State.APP_PREFIX + key: value for key, value in app.items()}
    state |= {State.USER_PREFIX + key: value for key, value in user.items()}
    stored = found.value or b"0 0"
    session = Session(app_name=app_name, user_id=user_id, id=session_id, state=state, events=events)
    session.last_update_time = float(stored.split()[1])
    session._storage_update_marker = stored.decode()
    return session


def encode_update(count: int, updated_s: float) -> bytes:
    """Return count of events and time of the last one, as a session's record has them."""
    return b"%d %s" % (count, repr(float(updated_s)).encode())


def count_of(stored: bytes) -> int:
    """Return the count of events that `encode_update` has encoded."""
    return int(stored.split()[0])
