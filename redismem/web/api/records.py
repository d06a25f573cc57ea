"""The routes of records: the conversations that agent frameworks keep, for reading."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from redismem.record.transcripts.transcript import Transcript
from redismem.web.api import record_schemas
from redismem.web.api.appends import session_id_of
from redismem.web.api.record_schemas import OWNER_TEXT, Framework
from redismem.web.api.sessions import TheMemory
from redismem.web.http.json import Json
from redismem.web.http.problems import Problem

router = APIRouter(prefix="/v1/records", tags=["records"])
Owner = Annotated[str | None, Query(min_length=1, max_length=256, description=OWNER_TEXT)]


@router.get("", response_model=record_schemas.RecordList)
async def list_records(
    memory: TheMemory,
    kind: Framework | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=8_000)] = None,
    owner: Owner = None,
) -> Response:
    """Return the conversations of frameworks by the ids of their records, each with its title and last message.

    A request looks at 5,000 records; a cursor continues.
    """
    try:
        page = await memory.transcripts.list(kind=kind, owner=owner, limit=limit, cursor=cursor)
    except ValueError:
        raise Problem("bad_request", "no page gave this cursor") from None
    return Json({"records": [_row(each) for each in page.transcripts], "cursor": page.cursor})


@router.get("/{kind}/{record_id}", response_model=record_schemas.RecordDocument)
async def show_record(
    memory: TheMemory,
    kind: Framework,
    record_id: Annotated[str, Path(min_length=1)],
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    owner: Owner = None,
) -> Response:
    """Return a conversation of a framework with its newest messages.

    The id is that of the record, or the framework's own if its adapter has the default `key_prefix`.
    """
    found = await memory.transcripts.read(kind, session_id_of(record_id), owner=owner, limit=limit)
    if found is None:
        raise Problem("not_found")
    messages = [
        {"seq": each.seq, "time_ms": each.time_ms or None, "message": each.to_openai()} for each in found.messages
    ]
    return Json({**_row(found), "messages": messages, "is_whole": found.is_whole})


def _row(transcript: Transcript) -> dict[str, Any]:
    row = asdict(replace(transcript, messages=()))
    del row["messages"], row["is_whole"]
    return row
