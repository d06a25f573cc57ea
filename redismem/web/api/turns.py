"""The routes of turns: begin, follow and stop one, on any server."""

from __future__ import annotations

import uuid
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Response

from redismem.web.api import turn_schemas as schemas
from redismem.web.api.appends import append_id
from redismem.web.api.sessions import Owner, TheCaller, TheService, TheSession, check_owner
from redismem.web.api.streams import STREAM
from redismem.web.api.tool_schemas import plain_tools
from redismem.web.api.turn_streams import OpenTurn, answer_turn, name_turn, respond
from redismem.web.chat.chat import Question
from redismem.web.http.json import Json

router = APIRouter(prefix="/v1/sessions/{session_id}/turns", tags=["turns"])
Format = Literal["events", "ai", "ag-ui", "openai"]
Key = Annotated[str | None, Header(min_length=1, max_length=128)]
_BEGUN = STREAM | {202: {"model": schemas.TurnAccepted, "description": "Begun, as `Prefer: respond-async` asks"}}


@router.post("", response_class=Response, responses=_BEGUN)
async def begin_turn(
    session: TheSession,
    service: TheService,
    caller: TheCaller,
    asked: schemas.NewTurn,
    owner: Owner = None,
    format: Format = "events",
    idempotency_key: Key = None,
    prefer: Annotated[str, Header(max_length=200)] = "",
) -> Response:
    """Store a message, and stream the answer of the server's model. The answer goes on if the client leaves.

    With `tools` the answer may end with calls, which the caller runs: their results are the messages of the next turn.

    `Idempotency-Key` is the id of the turn. A known id streams the answer of its turn, and asks no model again.
    """
    project = service.background(caller, asked.project)
    turn_id = uuid.uuid4().hex if idempotency_key is None else append_id(idempotency_key.encode("latin-1"))
    tools = plain_tools(asked.tools)
    question = Question(turn_id, asked.payloads(), asked.when_busy, project, asked.recall, tools=tools)
    turn = await answer_turn(service, caller, session, question, owner)
    if "respond-async" in prefer:
        path = f"/v1/sessions/{quote(session.id, safe='')}/turns/current?turn={quote(turn_id, safe='')}&format={format}"
        return Json({"session_id": session.id, "turn": turn_id}, 202, {"location": path, **name_turn(turn_id)})
    return await respond(service, caller, session, turn, format)


@router.get("/current", response_class=Response, responses=STREAM | {204: {"description": "No turn runs"}})
async def follow_turn(
    session: TheSession,
    service: TheService,
    caller: TheCaller,
    owner: Owner = None,
    format: Format = "events",
    turn: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Stream the running turn, or the one that `turn` or `Last-Event-ID` names, which may have ended.

    In the format `events` the stream goes on behind `Last-Event-ID`. The other formats begin with the first event.
    """
    await check_owner(session, owner)
    generation = "" if last_event_id is None else last_event_id.rpartition(".")[0]
    after = last_event_id if last_event_id is None or format == "events" else f"{generation}.0"
    found = OpenTurn(turn or "", generation, session.follow(after=after, turn=turn))
    return await respond(service, caller, session, found, format)


@router.post("/current/stop", response_model=schemas.TurnStopped)
async def stop_turn(session: TheSession, named: schemas.TurnStop | None = None, owner: Owner = None) -> Response:
    """Stop the running turn, on whichever server it runs. The text so far is stored as an incomplete reply."""
    await check_owner(session, owner)
    named = named or schemas.TurnStop()
    return Json({"stopped": await session.stop(named.reason, turn=named.turn)})
