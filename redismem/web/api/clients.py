"""The routes for clients of the AI SDK (`DefaultChatTransport`) and of AG-UI (`HttpAgent`), as they call them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from redismem.formats.streams.requests import TurnRequest, parse_ag_ui, parse_ai_sdk, refuse_new_turn
from redismem.live.beginning import WhenBusy
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api.appends import session_id_of
from redismem.web.api.sessions import Owner, TheCaller, TheService, check_owner
from redismem.web.api.streams import STREAM
from redismem.web.api.tool_schemas import tools_for
from redismem.web.api.turn_streams import OpenTurn, answer_turn, read_question, respond
from redismem.web.chat.chat import Question
from redismem.web.http.json import decode_json
from redismem.web.service import Service

router = APIRouter(tags=["turns"])
Busy = Annotated[Literal["refuse", "wait", "interrupt"], Query(description="As in `POST /v1/sessions/{id}/turns`.")]
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "additionalProperties": True}}},
    }
}
"""The OpenAPI description of a body in the form of another protocol."""


@router.post("/ui/chat", response_class=Response, responses=STREAM, openapi_extra=BODY)
async def answer_ai_sdk(
    request: Request, service: TheService, caller: TheCaller, owner: Owner = None, when_busy: Busy = "wait"
) -> Response:
    """Answer the last message of a body of the AI SDK. The chat's id is the session, the message's id the turn."""
    return await _answer(request, service, caller, owner, when_busy, parse_ai_sdk, "ai")


@router.get("/ui/chat/{id}/stream", response_class=Response, responses=STREAM | {204: {"description": "No turn runs"}})
async def resume_ai_sdk(
    id: Annotated[str, Path(min_length=1)],
    service: TheService,
    caller: TheCaller,
    owner: Owner = None,
    turn: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> Response:
    """Stream the running turn of a chat from its beginning, for a client of the AI SDK that connects again.

    `turn` is the id of a user's message: then its turn is streamed, which may have ended.
    """
    session = service.session(caller, session_id_of(id), owner)
    await check_owner(session, owner)
    return await respond(service, caller, session, OpenTurn(turn or "", "", session.follow(turn=turn)), "ai")


@router.post("/ag-ui", response_class=Response, responses=STREAM, openapi_extra=BODY)
async def answer_ag_ui(
    request: Request, service: TheService, caller: TheCaller, owner: Owner = None, when_busy: Busy = "wait"
) -> Response:
    """Answer the last message of a `RunAgentInput`. Its thread is the session, its run the turn.

    If the run is known, an agent may also send what it has of the answer. Then it is told to drop that first.
    """
    return await _answer(request, service, caller, owner, when_busy, parse_ag_ui, "ag-ui")


async def _answer(
    request: Request,
    service: Service,
    caller: Caller,
    owner: str | None,
    when_busy: WhenBusy,
    parse: Callable[[object], TurnRequest],
    format: str,
) -> Response:
    asked = parse(decode_json(await request.body()))
    assert asked.session_id is not None
    turn_id = asked.turn_id
    assert turn_id is not None
    session = service.session(caller, asked.session_id, owner)
    if asked.kept is not None:
        await check_owner(session, owner)
        asked = await _find_question(session, asked, turn_id)
    background, tools = service.background(caller, None), tools_for(service, asked.tools)
    question = Question(turn_id, asked.messages, when_busy, background, tools=tools)
    turn = await answer_turn(service, caller, session, question, owner)
    return await respond(service, caller, session, turn, format, kept=asked.kept, message_id=asked.message_id)


async def _find_question(session: Session, asked: TurnRequest, turn_id: str) -> TurnRequest:
    """Return the request with what its run begins with: the user's message, or the results of tools behind it.

    Raises InvalidMessage if the request has a part of an answer, but its run is not known.
    """
    info, results = await session.turn_of(turn_id), asked.results
    if info is None and (results is None or results.kept is not None):
        raise refuse_new_turn()
    if results is not None and info is not None:
        stored = await read_question(session, info.first_seq)
        results = results if stored is not None and stored.role == "tool" else None
    return asked if results is None else replace(asked, messages=results.messages, kept=results.kept)
