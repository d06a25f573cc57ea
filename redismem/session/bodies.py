"""Move the bodies of a window's oldest large messages, after an append has made the window too large."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from redismem.concurrency.offload import run_apart
from redismem.errors import RedismemError
from redismem.events import facts
from redismem.messages.message import Message
from redismem.protocol.call import Call
from redismem.protocol.ids import session_hash
from redismem.protocol.session import bodies
from redismem.protocol.session.calls import SessionCalls
from redismem.protocol.session.edits import View, edit, window
from redismem.store.store import Store

log = logging.getLogger("redismem")

Run = Callable[[Call[Any]], Awaitable[Any]]
_ATTEMPTS = 3
_READ_BYTES = 8 * 1024 * 1024


async def move_bodies(store: Store, calls: SessionCalls) -> None:
    """Move the bodies that are too many, and log a failure: the next large append asks for them again."""
    try:
        for _ in range(_ATTEMPTS):
            view = await store.run(window(calls))
            if view is None or await _move_all(store, calls, view):
                break  # otherwise another writer has changed the window meanwhile
    except RedismemError as error:
        session = session_hash(calls.keys.session_id)
        extra = facts(op="move_bodies", session=session, error=type(error).__name__)
        text = "session %s: bodies that are too large for its window stay there for now: %s"
        log.warning(text, session, type(error).__name__, extra=extra)


async def _move_all(store: Store, calls: SessionCalls, view: View) -> bool:
    chosen = await run_apart(store.transport, partial(bodies.choose, calls, view))
    for part in bodies.batches(chosen):
        move = bodies.move(view, part)
        if not await store.run(edit(calls, view, move, bool)):
            return False
        view.context.window_version = (move.version or b"").decode()  # the next part expects it
    return True


async def with_bodies(run: Run, calls: SessionCalls, messages: list[Message]) -> list[Message]:
    """Return the messages, with the whole message in place of each shortened one that can be read.

    Raises StoreUnavailable.
    """
    whole: dict[int, Message] = {}
    for part in _parts([message for message in messages if message.shortened]):
        whole |= await run(bodies.read(calls, part))
    if missing := sum(message.shortened and message.seq not in whole for message in messages):
        session = session_hash(calls.keys.session_id)
        extra = facts(op="read_bodies", session=session)
        log.warning(
            "session %s: the bodies of %d messages cannot be read: notes stand for them", session, missing, extra=extra
        )
    return [whole.get(message.seq, message) for message in messages] if whole else messages


def _parts(shortened: Sequence[Message]) -> list[list[Message]]:
    parts: list[list[Message]] = []
    size_bytes = _READ_BYTES
    for message in shortened:
        more = message.beside["shortened"] if message.beside else 0
        if size_bytes + more > _READ_BYTES:
            parts.append([])
            size_bytes = 0
        parts[-1].append(message)
        size_bytes += more
    return parts
