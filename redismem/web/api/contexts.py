"""The routes of a context: for a model, as a request alone, and by its parts; and recall, which adds to it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from redismem.web.api import schemas
from redismem.web.api.appends import check_recall_owner
from redismem.web.api.sessions import Owner, TheService, TheSession, check_owner
from redismem.web.http.json import Format, Json, context_document, indent_json, parts_document, request_document
from redismem.web.http.recalled import recalled_document

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["sessions"])

MaxTokens = Annotated[int | None, Query(ge=1, le=1 << 40)]
Form = Annotated[Format, Query(alias="format")]


@router.get("/context", response_model=schemas.ContextDocument)
async def read_context(
    session: TheSession, service: TheService, max_tokens: MaxTokens = None, form: Form = "openai"
) -> Response:
    """Return the input for a model: summaries and the messages after them."""
    context = await session.read(max_tokens=max_tokens)
    document = context_document(context, form, service.hidden_params)
    document["state"]["waiting_for_param"] = service.chat.current_wait(context.state)
    return Json(document)


@router.get("/context/request", response_model=dict[str, object])
async def read_request(session: TheSession, max_tokens: MaxTokens = None, form: Form = "openai") -> Response:
    """Return the `request` of the context alone, as indented JSON that can be copied into a call of the model."""
    context = await session.read(max_tokens=max_tokens)
    return Response(indent_json(request_document(context, form)), media_type="application/json")


@router.get("/context/parts", response_model=schemas.ContextPartsDocument)
async def read_parts(session: TheSession, service: TheService) -> Response:
    """Return the parts of the context with their counts and tokens, and without the messages that are not pinned."""
    context = await session.read()
    document = parts_document(context, service.hidden_params)
    document["state"]["waiting_for_param"] = service.chat.current_wait(context.state)
    return Json(document)


@router.post("/recall", response_model=schemas.RecallDocument)
async def recall(session: TheSession, asked: schemas.RecallQuery, owner: Owner = None) -> Response:
    """Return the old messages that a text is about, which the context has no more. Changes nothing.

    With the scope `owner` they are of all conversations of the owner in the query.
    """
    check_recall_owner(asked.scope, owner)
    await check_owner(session, owner)
    found = await session.recall(asked.query, max_tokens=asked.max_tokens, scope=asked.scope)
    await check_owner(session, owner)  # it may have begun anew meanwhile, for another owner
    return Json(recalled_document(found, session.id))
