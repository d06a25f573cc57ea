"""What a chat stores of a turn: what the user said, and what was answered. An outage of Redis keeps it from neither."""

from __future__ import annotations

import logging
from typing import Any

from redismem.context import Context
from redismem.errors import Conflict, RedismemError, StoreUnavailable, TooLarge, Unconfirmed
from redismem.events import facts
from redismem.messages.message import Message
from redismem.session.background import PROJECT_TOKENS, Background
from redismem.session.session import Session
from redismem.slots import Step
from redismem.web.chat.answer import Turn

log = logging.getLogger("redismem")

_TRIES_COUNT = 5
_REFUSALS_COUNT = 2
"""So often an answer may be refused and is tried again: with `expect`, and with replicas to confirm it."""
_SAID = {
    "not_stored": "The memory cannot be reached, so this answer is not kept.",
    "too_large": "This answer, or the whole conversation, is longer than the memory takes: the answer is not kept.",
    "unconfirmed": "This is kept, but too few copies of the memory have it yet: a failure just now may lose it.",
    "degraded": "The memory cannot be reached just now: this is kept here until it can.",
    "cleared": "This conversation was cleared meanwhile, so this answer is not kept.",
}


async def appended(turn: Turn, session: Session, step: Step, project: Background | None) -> Context:
    """The context after the user's turn. Raises what `append_and_read` raises, but for Unconfirmed.

    What too few replicas have stands, and is answered. While Redis is away no replica can have it: this process takes
    it unconfirmed, if it takes turns at all.
    """
    message = Message("user", step.text, metadata={"turn": turn.id})
    options: Any = {"id": f"{turn.id}:user", "project": project, **step.changes}
    try:
        return await session.append_and_read(message, **options)
    except Unconfirmed:
        tell(turn, "unconfirmed")
        context = await session.read()
        if project is not None:
            context.background = await project.background([message], PROJECT_TOKENS)
        return context
    except StoreUnavailable:
        if not (await session.state()).degraded:
            raise
    context = await session.append_and_read(message, confirm=0, **options)
    tell(turn, "unconfirmed")
    return context


async def kept(turn: Turn, session: Session, context: Context) -> int | None:
    """Stores what was said, unless the session was cleared meanwhile; gives its seq. Tells the turn if it is not kept.

    `context`: as of the user's turn. Its id is the turn's, so however often it is tried it is made once.
    """
    if not turn.text:
        return None
    metadata = {"turn": turn.id} | ({"incomplete": turn.stop_reason} if turn.stop_reason else {})
    message = Message("assistant", turn.text, metadata=metadata)
    try:
        return await _stored(turn, session, context, message)
    except RedismemError as error:
        kind = type(error).__name__
        log.warning("an answer could not be kept: %s", kind, extra=facts(op="chat", error=kind))
        turn.notice("not_stored", _SAID["too_large" if isinstance(error, TooLarge) else "not_stored"])
    return None


async def _stored(turn: Turn, session: Session, context: Context, message: Message) -> int | None:
    options: Any = {"id": f"{turn.id}:reply"} | ({} if context.degraded else {"expect": context.last_seq})
    refused_count = 0
    for _ in range(_TRIES_COUNT):
        try:
            receipt = await session.append(message, **options)
        except Unconfirmed:
            options["confirm"] = 0  # it stands, and sent again it says at which seq
            continue
        except (Conflict, StoreUnavailable) as failure:
            why: RedismemError = failure
            refused_count += isinstance(failure, StoreUnavailable)
            if refused_count > _REFUSALS_COUNT:
                raise
        else:
            if "confirm" in options:
                tell(turn, "unconfirmed")
            if receipt.degraded:
                tell(turn, "degraded")
            return receipt.last_seq
        now = await session.read(limit=1)
        if not (now.degraded or context.degraded) and now.epoch != context.epoch:
            tell(turn, "cleared")
            return None
        _adapt(options, now)
    raise why


def _adapt(options: dict[str, Any], now: Context) -> None:
    """Asks for no more than can be had now.

    What a process takes while Redis is away it answers by itself: whether others wrote, only Redis could say, and no
    replica has it.
    """
    if not now.degraded:
        options["expect"] = now.last_seq
    elif options.pop("expect", None) is None:
        options["confirm"] = 0


def tell(turn: Turn, code: str) -> None:
    """Tells the turn what became of it."""
    turn.notice(code, _SAID[code])
