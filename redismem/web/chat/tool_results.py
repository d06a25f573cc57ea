"""The results of tools that a caller runs: they must answer the calls that the session waits for, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redismem.context.results import Receipt
from redismem.errors import StoreUnavailable
from redismem.formats.elements import Key
from redismem.formats.open_ends import open_ends
from redismem.messages.message import Message
from redismem.session.session import Session
from redismem.web.http.problems import Problem

_GROUP_COUNT = 300
"""The newest messages in which the calls are looked for: more than one answer has."""


async def expect_calls(session: Session, turn_id: str, payloads: Sequence[dict[str, Any]]) -> Receipt | None:
    """Return the `expect` of a turn that begins with results; `None` if these messages answer no earlier call.

    Another process may take any step in between: the session is then not as expected, and the turn is refused.

    Raises:
        Problem: conflict, if no call waits for one of the results; invalid, if one of the calls has no result.
        StoreUnavailable: Redis is down, so the calls are not known.
    """
    answered = _answered_by(payloads)
    if not answered:
        return None
    context = await session.read(limit=_GROUP_COUNT)
    if context.degraded:
        raise StoreUnavailable("only Redis knows which calls wait for a result", session.id)
    waiting = open_calls(context.messages)
    names = waiting.keys() | {name for name in waiting.values() if name is not None}
    if any(key not in names for key in answered):
        if await session.turn_of(turn_id) is not None:  # a retry
            return None
        why = "no call waits for one of these results: it has one, the conversation went on, or it was cleared"
        raise Problem("conflict", why, last_seq=context.last_seq, cleared=not context.total_messages)
    left_count = sum(key not in answered and by_name not in answered for key, by_name in waiting.items())
    if left_count:
        raise Problem(
            "invalid", f"{left_count} of the calls have no result yet: send the results of all in one request"
        )
    return Receipt(
        context.last_seq,
        context.last_seq,
        context.last_seq,
        created=False,
        duplicate=False,
        epoch=context.epoch,
        newest_append=context.newest_append,
    )


def open_calls(messages: Sequence[Message]) -> dict[Key, Key | None]:
    """Return the calls at the end of a conversation that have no result yet, each with its second key or `None`."""
    answered: set[Key] = set()
    calls: dict[Key, Key | None] = {}
    for message in reversed(messages):
        results, made = open_ends(message.visible)
        if (results and calls) or not (results or made):
            break
        answered.update(results)
        calls.update(made)
    return {key: name for key, name in calls.items() if key not in answered and name not in answered}


def _answered_by(payloads: Sequence[dict[str, Any]]) -> set[Key]:
    """Return the keys of the results whose calls are not among the messages themselves."""
    own: set[Key | None] = set()
    answered: set[Key] = set()
    for payload in payloads:
        results, made = open_ends(payload)
        answered.update(key for key in results if key not in own)
        own.update(made, made.values())
    return answered
