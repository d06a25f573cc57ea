"""Begin or find a turn, and stream its events: what all routes of turns have in common."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import Response

from redismem.errors import IdReused, RedismemError, SessionNotFound, StoreUnavailable, TurnKnown
from redismem.formats.streams.opening import open_stream
from redismem.formats.streams.stream import Stream, StreamTurn
from redismem.live.info import TurnInfo
from redismem.messages.message import Message
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api.sessions import check_owner
from redismem.web.api.streams import CutOff, EventStream
from redismem.web.chat.chat import CLEARED, Events, Question
from redismem.web.chat.tool_results import expect_calls
from redismem.web.http.problems import Problem
from redismem.web.open_streams import StreamKind
from redismem.web.owner_keys import check_roles
from redismem.web.service import Service

TURN_ID = "turn-id"
"""The header of a response that names its turn."""
_FIRST_S = 0.5
"""The time to wait for a first event, so that a refusal becomes a problem instead of a stream that breaks off."""
_RUNS_NAMED = ("ag-ui", "openai")
"""The formats whose streams contain the id of the turn."""
_REMOVED: dict[str, Any] = {"type": "end", "outcome": "lost", "reason": CLEARED, "seq": None, "usage": None}


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that a request has begun or found, with its events."""

    turn_id: str
    """"" means that the caller's id is not known."""
    generation: str
    """"" means that only the first event tells it, or that only the stored reply is left."""
    events: Events
    first_seq: int = 0
    """The seq of its question; 0 means that only the first event tells it."""


async def answer_turn(
    service: Service, caller: Caller, session: Session, asked: Question, owner: str | None
) -> OpenTurn:
    """Begin to answer a message, or find the turn that has its id.

    Raises the errors of `Session.turn`, but TurnKnown, and Problem: invalid, not_allowed, stopping, overloaded or
    too_many_requests.
    """
    check_roles(caller, asked.payloads)
    service.take_place(caller, StreamKind.CHAT).leave()  # a message whose answer cannot be streamed is not accepted
    if asked.tools and service.chat.alternate:
        raise Problem("invalid", "this server's model takes no tools, because its messages must alternate")
    if asked.text is None:
        asked = replace(asked, expect=await expect_calls(session, asked.turn_id, asked.payloads))
    has_slots = service.chat.slots is not None
    if has_slots:
        # First, because only the first time can a message be told to be a sensitive value.
        found = await _find_same(service, session, asked)
        if isinstance(found, OpenTurn):
            return found
        asked = found
    try:
        begun = await service.answer(caller, session, asked)
    except TurnKnown as known:
        await check_owner(session, owner)
        return OpenTurn(asked.turn_id, known.generation, session.follow(turn=asked.turn_id), known.first_seq)
    except IdReused:
        found = await _find_same(service, session, asked) if has_slots else asked
        if not isinstance(found, OpenTurn):
            raise _key_reused() from None
        return found
    return OpenTurn(asked.turn_id, begun.generation, begun.events)


async def _find_same(service: Service, session: Session, asked: Question) -> OpenTurn | Question:
    """Return the turn with this id, or the question to answer: as it is stored, if its turn may begin again.

    Raises Problem: invalid, if the turn answers another message.
    """
    info = None
    with contextlib.suppress(StoreUnavailable):  # the fallback may answer
        info = await session.turn_of(asked.turn_id)
    if info is None:
        return asked
    stored = await read_question(session, info.first_seq)
    if stored is not None and not service.chat.is_same(asked.text, stored.content):
        raise _key_reused()
    if stored is not None and info.outcome in ("failed", "lost") and not info.reply_seq:
        return replace(asked, payloads=[stored.to_openai()], is_stored=True)
    return open_known(session, asked.turn_id, info)


def _key_reused() -> Problem:
    return Problem("invalid", "this Idempotency-Key was used for another message of this session")


def open_known(session: Session, turn_id: str, info: TurnInfo) -> OpenTurn:
    """Return a turn that the session knows, with its events from the first one."""
    return OpenTurn(turn_id, info.generation, session.follow(turn=turn_id), info.first_seq)


async def read_question(session: Session, seq: int) -> Message | None:
    """Return the first message of a turn; `None` if the session does not keep it, or cannot be read."""
    with contextlib.suppress(RedismemError):
        found = await session.messages(1, seq + 1, include_originals=True)
        return next((each for each in found if each.seq == seq), None)
    return None


async def respond(
    service: Service,
    caller: Caller,
    session: Session,
    turn: OpenTurn,
    format: str,
    *,
    starting_after: int = -1,
    kept: Sequence[Mapping[str, Any]] | None = None,
    message_id: str = "",
) -> Response:
    """Stream the events of a turn in a format; answer 204 if there are none. The options are those of `StreamTurn`.

    Raises:
        Problem: not_found, if the session knows no such turn; bad_request, if no stream gave this event id.
        StoreUnavailable: Redis did not answer in time.
    """
    events, first = await peek(turn.events)
    if first is None:
        return Response(status_code=204)
    described = await describe(service, session, turn, first, format)
    stream = open_stream(format, replace(described, starting_after=starting_after, kept=kept, message_id=message_id))
    headers = {**stream.content_headers, **name_turn(turn.turn_id)}
    told, is_elsewhere = partial(frames, events, stream), not service.chat.is_answering(caller.namespace, session.id)
    return EventStream(service, caller, StreamKind.CHAT, told, ends_at_stop=is_elsewhere, headers=headers)


def name_turn(turn_id: str) -> dict[str, str]:
    """Return the header that names a turn. An id that no header can hold has none."""
    return {TURN_ID: turn_id} if turn_id.isascii() and turn_id.isprintable() else {}


async def peek(events: Events) -> tuple[Events, tuple[str, Any] | None]:
    """Return the events, and the first of them if it comes soon, or else an empty one; `None` if there are none.

    A reset that nothing follows does not count: the session knows no such turn any more.

    Raises the errors of `Session.follow`, the first two of them as Problem: bad_request, not_found.
    """
    head = asyncio.ensure_future(_read_head(events))
    await asyncio.wait((head,), timeout=_FIRST_S)

    async def tell() -> Events:
        try:
            for each in await head:
                if each is not None:
                    yield each
            async for each in events:
                yield each
        finally:
            head.cancel()
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    if not head.done():
        return tell(), ("", {"type": ""})
    try:
        return tell(), head.result()[-1]
    except ValueError:
        raise Problem("bad_request", "no stream of a turn gave this event id") from None
    except SessionNotFound:
        raise Problem("not_found", "this session has no such turn") from None


async def _read_head(events: Events) -> list[tuple[str, Any] | None]:
    head = [await anext(events, None)]
    if head[0] is not None and head[0][1]["type"] == "reset":
        head.append(await anext(events, None))
    return head


async def describe(
    service: Service, session: Session, turn: OpenTurn, first: tuple[str, Any], format: str
) -> StreamTurn:
    """Return what a converter needs to know of a turn, whose first event this is."""
    event_id, event = first
    turn_id, created_s = turn.turn_id, 0
    generation = turn.generation or event_id.rpartition(".")[0]
    if format in _RUNS_NAMED:
        question = await read_question(session, turn.first_seq or event.get("first_seq") or 0)
        if question is not None:
            created_s = question.stored_ms // 1000
            turn_id = turn_id or str((question.metadata or {}).get("turn", ""))
    model = "redismem" if service.chat.model is None else service.chat.model.name
    return StreamTurn(session.id, turn_id or generation, generation, model, created_s)


async def frames(events: Events, stream: Stream) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a stream. Raises CutOff if the client must connect again."""
    async for event_id, event in until_end(events):
        yield stream.convert(event_id, event)
        if stream.must_reconnect:
            raise CutOff
    yield stream.close()


async def until_end(events: Events) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """Yield events up to the end of the turn, which is `cleared` if its session was removed. Raises CutOff."""
    try:
        async for event_id, event in events:
            yield event_id, event
            if event["type"] == "end":
                return
    except SessionNotFound:
        pass
    except RedismemError:
        raise CutOff from None
    yield "", _REMOVED
