"""The routes that change or remove messages of a conversation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response

from redismem.web.api import schemas
from redismem.web.api.appends import ETAG, parse_expected
from redismem.web.api.sessions import TheCaller, TheSession
from redismem.web.http.json import Json, decode_json, message_document
from redismem.web.http.problems import Problem
from redismem.web.owner_keys import check_roles

router = APIRouter(prefix="/v1/sessions/{session_id}", tags=["sessions"])
_MESSAGE = {"type": "object", "additionalProperties": True, "description": "A message in a model API's format."}
_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": {"application/json": {"schema": _MESSAGE}}}}


@router.post("/prune", response_model=schemas.Pruned)
async def prune_session(session: TheSession, limit: schemas.PruneLimit) -> Response:
    """Drop the oldest messages for good, and keep the newest. Summaries and pinned messages stay."""
    return Json({"dropped_count": await session.prune(limit.max_messages)})


@router.post("/forget", response_model=schemas.ForgottenDocument)
async def forget_messages(session: TheSession, named: schemas.ForgetSeqs) -> Response:
    """Remove messages for good, wherever the session has them: also from summaries and originals."""
    forgotten = await session.forget(*named.seqs)
    rewritten, dropped = (_ranges(summaries) for summaries in (forgotten.rewritten, forgotten.dropped))
    return Json({"seqs": forgotten.seqs, "rewritten": rewritten, "dropped": dropped})


def _ranges(summaries: tuple[tuple[int, int], ...]) -> list[dict[str, int]]:
    return [{"first_seq": first, "last_seq": last} for first, last in summaries]


@router.put("/messages/{seq}", response_model=schemas.MessageDocument, openapi_extra=_BODY)
async def replace_message(
    request: Request,
    session: TheSession,
    caller: TheCaller,
    seq: Annotated[int, Path(ge=1, le=1 << 53)],
    if_match: Annotated[str | None, Header(pattern=f"^{ETAG.pattern}$")] = None,
) -> Response:
    """Replace a message that no summary covers by the message in the body, at the same seq."""
    message = decode_json(await request.body())
    if not isinstance(message, dict):
        raise Problem("invalid", "the body is one message")
    check_roles(caller, [message])
    expected = None if if_match is None else parse_expected(if_match.encode("latin-1"))
    return Json(message_document(await session.replace(seq, message, expect=expected)))
