"""Storage of a chat's turns: the user's message and the reply, also while Redis is down."""

from __future__ import annotations

import logging
from typing import Any

from redismem.context.context import Context
from redismem.errors import Conflict, IdReused, RedismemError, StoreUnavailable, TooLarge, Unconfirmed
from redismem.events import facts
from redismem.messages.message import Message
from redismem.session.background import PROJECT_TOKENS, Background
from redismem.session.session import Session
from redismem.slots import Step
from redismem.web.chat.answer import LiveAnswer

log = logging.getLogger("redismem")

CLEARED = "cleared"
"""The reason why a turn was stopped, and the code of its notice, if its session was cleared."""
_ATTEMPTS_COUNT = 5
_OUTAGES_COUNT = 2
"""The number of attempts that may fail with StoreUnavailable: one due to `expect`, one due to `confirm`."""
_NOTICES = {
    "not_stored": "The memory is unreachable, so this answer is not stored.",
    "too_large": "This answer or the whole conversation is too long for the memory: the answer is not stored.",
    "unconfirmed": "This is stored, but too few replicas have it yet: a failure now may lose it.",
    "degraded": "The memory is unreachable right now: this server keeps the message until it is back.",
    CLEARED: "This conversation was cleared meanwhile, so this answer is not stored.",
}


async def append_question(turn: LiveAnswer, session: Session, step: Step, project: Background | None) -> Context:
    """Append the user's message and return the context after it. Raises the errors of `append_and_read`.

    If replicas do not confirm the append, the chat answers all the same and shows a notice. While Redis is down, no
    replica can confirm an append; if the fallback is on, this process accepts the append without confirmation.
    """
    message = Message("user", step.text, metadata={"turn": turn.id})
    options: Any = {"id": f"{turn.id}:user", "project": project, **step.changes}
    try:
        return await session.append_and_read(message, **options)
    except Unconfirmed:
        notify(turn, "unconfirmed")
        context = await session.read()
        if project is not None:
            context.background = await project.background([message], PROJECT_TOKENS)
        return context
    except StoreUnavailable:
        if not (await session.state()).degraded:
            raise
    context = await session.append_and_read(message, confirm=0, **options)
    notify(turn, "unconfirmed")
    return context


async def store_reply(turn: LiveAnswer, session: Session, context: Context) -> int | None:
    """Store the reply and return its seq. `None` means that it was not stored; a notice of the turn says why.

    A reply to a session that was cleared meanwhile is dropped. `context` is the context after the user's message. The
    append has an id, so retries store the reply once.
    """
    if not turn.text:
        return None
    if turn.stop_reason == CLEARED:
        notify(turn, CLEARED)
        return None
    metadata = {"turn": turn.id} | ({"incomplete": turn.stop_reason} if turn.stop_reason else {})
    message = Message("assistant", turn.text, metadata=metadata)
    try:
        return await _append_reply(turn, session, context, message)
    except RedismemError as error:
        kind = type(error).__name__
        log.warning("an answer could not be stored: %s", kind, extra=facts(op="chat", error=kind))
        turn.notice("not_stored", _NOTICES["too_large" if isinstance(error, TooLarge) else "not_stored"])
    return None


async def _append_reply(turn: LiveAnswer, session: Session, context: Context, message: Message) -> int | None:
    options: Any = {"id": f"{turn.id}:reply"} | ({} if context.degraded else {"expect": context})
    outages_count = 0
    for _ in range(_ATTEMPTS_COUNT):
        try:
            receipt = await session.append(message, **options)
        except Unconfirmed:
            options["confirm"] = 0  # it is stored; the retry returns its seq
            continue
        except IdReused as reused:  # another server answered this turn first, in other words
            return reused.last_seq
        except (Conflict, StoreUnavailable) as failure:
            last_failure: RedismemError = failure
            outages_count += isinstance(failure, StoreUnavailable)
            if outages_count > _OUTAGES_COUNT:
                raise
        else:
            if "confirm" in options:
                notify(turn, "unconfirmed")
            if receipt.degraded:
                notify(turn, "degraded")
            return receipt.last_seq
        now = await session.read(limit=1)
        if not (now.degraded or context.degraded) and now.epoch != context.epoch:
            notify(turn, CLEARED)
            return None
        _relax(options, now)
    raise last_failure


def _relax(options: dict[str, Any], now: Context) -> None:
    """Adapt the options of the next attempt to the session's present state.

    While Redis is down, this process can neither check `expect` nor wait for replicas. So drop `expect` first, then
    `confirm`.
    """
    if not now.degraded:
        options["expect"] = now
    elif options.pop("expect", None) is None:
        options["confirm"] = 0


def notify(turn: LiveAnswer, code: str) -> None:
    """Show the notice for this code to the listeners of a turn."""
    turn.notice(code, _NOTICES[code])
