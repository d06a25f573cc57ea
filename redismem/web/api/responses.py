"""The routes of turns for clients of OpenAI's Responses API: create, get, cancel."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from redismem.errors import InvalidMessage
from redismem.formats.streams.requests import parse_responses
from redismem.formats.streams.responses import ResponsesStream, parse_response_id
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api.appends import append_id
from redismem.web.api.clients import BODY, Busy
from redismem.web.api.sessions import Owner, TheCaller, TheService, caller_of
from redismem.web.api.streams import STREAM, wait_for_disconnect
from redismem.web.api.tool_schemas import tools_for
from redismem.web.api.turn_streams import OpenTurn, answer_turn, describe, open_known, peek, respond, until_end
from redismem.web.api.turns import Key
from redismem.web.chat.chat import Question
from redismem.web.http.json import Json, decode_json
from redismem.web.http.problems import Problem
from redismem.web.open_streams import StreamKind
from redismem.web.service import Service

router = APIRouter(prefix="/openai/responses", tags=["turns"])
_FORMAT = "openai"
_ANSWER = {"schema": {"type": "object", "additionalProperties": True}}
_ANSWERS: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": _ANSWER, **STREAM[200]["content"]}}}
ResponseId = Annotated[str, Path(min_length=1, max_length=2_000)]


@router.post("", response_class=Response, responses=_ANSWERS, openapi_extra=BODY)
async def create_response(
    request: Request,
    service: TheService,
    caller: TheCaller,
    owner: Owner = None,
    when_busy: Busy = "wait",
    idempotency_key: Key = None,
) -> Response:
    """Answer the input of a create request. `conversation` is the session; `Idempotency-Key` the turn.

    The answer is a stream if `stream` asks for one, and the response at once if `background` asks for it.
    """
    asked = parse_responses(decode_json(await request.body()))
    memory = service.memory(caller)
    session = service.session(caller, asked.session_id or memory.new_session_id(), owner)
    turn_id = uuid.uuid4().hex if idempotency_key is None else append_id(idempotency_key.encode("latin-1"))
    background, tools = service.background(caller, None), tools_for(service, asked.tools)
    question = Question(turn_id, asked.messages, when_busy, background, tools=tools)
    turn = await answer_turn(service, caller, session, question, owner)
    if asked.wants_stream:
        return await respond(service, caller, session, turn, _FORMAT)
    return await _respond_whole(request, service, session, turn, is_whole=not asked.is_background)


@router.get("/{response_id}", response_class=Response, responses=_ANSWERS)
async def get_response(
    request: Request,
    response_id: ResponseId,
    service: TheService,
    caller: TheCaller,
    owner: Owner = None,
    stream: bool = False,
    starting_after: Annotated[int, Query(ge=-1, le=1 << 53)] = -1,
) -> Response:
    """Return a response, or stream its events behind `starting_after`. One in progress has no output yet."""
    session, turn, is_running = await _find(service, caller, response_id, owner)
    if stream:
        return await respond(service, caller, session, turn, _FORMAT, starting_after=starting_after)
    return await _respond_whole(request, service, session, turn, is_whole=not is_running)


@router.post("/{response_id}/cancel", response_class=Response, responses=_ANSWERS)
async def cancel_response(
    request: Request, response_id: ResponseId, service: TheService, caller: TheCaller, owner: Owner = None
) -> Response:
    """Stop a response that is in progress, on whichever server, and return it with its output so far."""
    session, turn, _ = await _find(service, caller, response_id, owner)
    await session.stop("cancelled", turn=turn.turn_id)
    return await _respond_whole(request, service, session, turn, is_whole=True)


async def _find(
    service: Service, caller: Caller, response_id: str, owner: str | None
) -> tuple[Session, OpenTurn, bool]:
    """Return the turn of a response, and True if it runs. Raises Problem: not_found."""
    try:
        name = parse_response_id(response_id)
    except InvalidMessage as refused:
        raise Problem("not_found", refused.text) from None
    session = service.session(caller, name.session_id, owner)
    info = await session.turn_of(name.turn_id)
    if info is None or (info.generation and info.generation != name.generation):
        raise Problem("not_found", "this session has no such response")
    turn = open_known(session, name.turn_id, info)
    return session, replace(turn, generation=name.generation), info.how == "running"


async def _respond_whole(
    request: Request, service: Service, session: Session, turn: OpenTurn, *, is_whole: bool
) -> Response:
    """Answer with the response: once its turn has ended, or as it begins. A client that leaves keeps no place."""
    place = service.take_place(caller_of(request), StreamKind.CHAT)
    telling = asyncio.create_task(_tell_whole(service, session, turn, is_whole=is_whole))
    gone = asyncio.create_task(wait_for_disconnect(request.receive))
    try:
        await asyncio.wait((telling, gone), return_when=asyncio.FIRST_COMPLETED)
        return await telling if telling.done() else Response(status_code=204)  # nobody reads it
    finally:
        telling.cancel()
        gone.cancel()
        place.leave()


async def _tell_whole(service: Service, session: Session, turn: OpenTurn, *, is_whole: bool) -> Response:
    events, first = await peek(turn.events)
    if first is None:
        raise Problem("not_found", "this session has no such response")
    stream = ResponsesStream(await describe(service, session, turn, first, _FORMAT))
    async for event_id, event in until_end(events):
        stream.convert(event_id, event)
        if not is_whole:
            break
    return Json(stream.response() | {"background": not is_whole})
