"""The routes of the chat."""

from __future__ import annotations

import contextlib
import uuid
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Response

from redismem.context.info import Policy
from redismem.errors import NotAllowed, StoreUnavailable, TooLarge
from redismem.formats.streams.encoding import frame
from redismem.live.log import parse_event_id
from redismem.messages.zones import find_zone
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api import turn_schemas as schemas
from redismem.web.api.sessions import TheCaller, TheMemory, TheService, check_owner
from redismem.web.api.streams import REVOKED, STREAM, EventStream
from redismem.web.api.tool_schemas import plain_tools
from redismem.web.api.turn_streams import OpenTurn, answer_turn, peek, respond, until_end
from redismem.web.chat.chat import Events, Question
from redismem.web.chat.frames import chat_frames
from redismem.web.http.json import Json
from redismem.web.http.problems import Problem
from redismem.web.open_streams import StreamKind
from redismem.web.service import Service

router = APIRouter(prefix="/api/chat", tags=["chat"])
_STREAM: dict[int | str, dict[str, Any]] = {
    200: STREAM[200]
    | {
        "description": "Server-sent events. "
        + ", ".join(f"`{n}` has {k.__name__}" for n, k in schemas.CHAT_EVENTS.items())
    }
}
_REVOKED = frame({"reason": REVOKED, "complete": False, "seq": None, "waiting_for": None}, "end")


@router.post("", response_class=Response, responses=_STREAM)
async def chat(
    asked: schemas.ChatMessage,
    service: TheService,
    memory: TheMemory,
    caller: TheCaller,
    format: Literal["chat", "events"] = "chat",
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=64, pattern="^[A-Za-z0-9_-]+$")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Answer a message, or results of tools, with a stream of events: start, recalled, text, tool_call, notice, end.

    With `Last-Event-ID` the stream continues after that event, even if another server began the answer. The answer is
    not generated again. In the format `events` the events are those of `GET /v1/sessions/{id}/turns/current`, which
    continues the stream.
    """
    # UTC is what a session without a zone has.
    policy = Policy(zone=asked.zone if asked.zone and asked.zone != "UTC" and find_zone(asked.zone) else None)
    session = memory.session(asked.session_id or memory.new_session_id(), policy=policy, owner=asked.owner)
    with contextlib.suppress(StoreUnavailable):  # the chat goes on, and the turn asks again
        await check_owner(session, asked.owner)
    if last_event_id is not None:
        event = parse_event_id(last_event_id)
        if event is None:
            raise Problem("bad_request", "no stream of a chat gave this Last-Event-ID")
        turn_id, offset = event
        return await _stream(service, caller, session, turn_id, session.follow(turn=turn_id), offset)
    question = Question(
        idempotency_key or uuid.uuid4().hex,
        asked.payloads(),
        when_busy=asked.when_busy,
        project=service.background(caller, asked.project),
        tools=plain_tools(asked.tools),
    )
    try:
        turn = await answer_turn(service, caller, session, question, asked.owner)
    except (StoreUnavailable, NotAllowed, TooLarge) as refused:
        if asked.message is None:  # results alone mean nothing to a model
            raise
        turn = OpenTurn(question.turn_id, "", service.chat.answer_alone(question, refused))
    if format == "events":
        return await respond(service, caller, session, turn, format)
    return await _stream(service, caller, session, turn.turn_id, turn.events)


async def _stream(
    service: Service, caller: Caller, session: Session, turn_id: str, events: Events, offset: int = 0
) -> Response:
    events, first = await peek(events)
    if first is None:
        raise Problem("not_found", "this session has no such turn")
    told = partial(chat_frames, session, turn_id, until_end(events), offset)
    is_elsewhere = not service.chat.is_answering(caller.namespace, session.id)
    return EventStream(service, caller, StreamKind.CHAT, told, revoked=_REVOKED, ends_at_stop=is_elsewhere)


@router.post("/clear", response_model=schemas.Cleared)
async def clear(named: schemas.ChatSession, service: TheService, memory: TheMemory, caller: TheCaller) -> Response:
    """Remove a session with all its data. Its running turn ends, and nothing of it is stored."""
    session = memory.session(named.session_id, owner=named.owner)
    await check_owner(session, named.owner)
    await service.chat.stop_before_clear(caller.namespace, session)
    return Json({"cleared": await session.clear()})


@router.post("/stop", response_model=schemas.Stopped)
async def stop(named: schemas.ChatSession, memory: TheMemory) -> Response:
    """Stop the session's running turn, on any server. The text so far is stored as incomplete."""
    session = memory.session(named.session_id, owner=named.owner)
    await check_owner(session, named.owner)
    return Json({"stopped_count": int(await session.stop("stopped"))})
