"""The routes of conversations."""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel

from redismem.context.info import Policy, SessionEntry
from redismem.errors import CorruptSession
from redismem.formats.streams.encoding import frame
from redismem.inspection.quarantine import read_live
from redismem.memory.memory import Memory
from redismem.messages.decoding import is_gap
from redismem.messages.message import UNSET
from redismem.session.session import Session
from redismem.web import finding, previews, searching
from redismem.web.access import Caller
from redismem.web.api import schemas
from redismem.web.api.appends import append_id, session_id_of
from redismem.web.api.streams import REVOKED, STREAM, EventStream
from redismem.web.http.json import Json, message_document, parse_moment, state_document
from redismem.web.http.problems import Problem
from redismem.web.open_streams import StreamKind
from redismem.web.service import CALLER, Service

router = APIRouter(prefix="/v1", tags=["sessions"])
_MOST_MESSAGES = 1_000


class ForgottenSessionsDocument(BaseModel):
    """The numbers removed, the time at which a scan of all keys found no session, record or copy any more, the items of
    projects that stay, and the contents that were not searched."""

    session_count: int
    quarantined_count: int
    unattributed_count: int
    proven_ms: int
    record_count: int
    item_count: int
    rate_count: int
    left_items: list[str]
    not_searched: list[str]


def service_of(request: Request) -> Service:
    """Return the service that answers this request."""
    service: Service = request.app.state.service
    return service


def caller_of(request: Request) -> Caller:
    """Return the owner of the request's key."""
    caller: Caller = request.scope[CALLER]
    return caller


def memory_of(request: Request) -> Memory:
    """Return the memory of the caller's namespace."""
    return service_of(request).memory(caller_of(request))


Owner = Annotated[str | None, Query(min_length=1, max_length=256, description=schemas.OWNER_TEXT)]


def session_of(request: Request, session_id: Annotated[str, Path(min_length=1)], owner: Owner = None) -> Session:
    """Return the session in the path, which refuses another `owner` than its own. Raises Problem, InvalidSessionId."""
    return service_of(request).session(caller_of(request), session_id_of(session_id), owner)


async def check_owner(session: Session, owner: str | None) -> None:
    """Check the owner that a request names, before work that does not ask Redis for it. Raises OwnerMismatch."""
    if owner is not None:
        with contextlib.suppress(CorruptSession):  # then nobody owns it
            await session.exists()


TheMemory = Annotated[Memory, Depends(memory_of)]
TheSession = Annotated[Session, Depends(session_of)]
TheService = Annotated[Service, Depends(service_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


@router.get("/sessions", response_model=schemas.SessionList)
async def list_sessions(
    memory: TheMemory,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    contains: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    newest: bool = False,
    owner: Owner = None,
) -> Response:
    """Return the live sessions, most recently active first; with `owner` all those of an owner.

    `contains` searches the ids of the next few thousand sessions; a cursor continues the search. `newest`, or `owner`,
    adds to each session its owner, its title, and role and beginning of its last message; `newest` also why its summary
    fails.
    """
    return await _list_page(memory, searching.Filters(contains or "", owner=owner), limit, cursor, newest)


async def _list_page(
    memory: Memory, filters: searching.Filters, limit: int, cursor: str | None, newest: bool
) -> Response:
    try:
        rows, cursor = await searching.search(memory, filters, limit, cursor)
    except ValueError:
        raise Problem("bad_request", "no page gave this cursor") from None
    owner, listed = filters.owner, [SessionEntry(row["session_id"], row["active_ms"]) for row in rows]
    if newest or owner is not None:
        rows = await previews.describe_rows(memory, rows, owner)
    if newest and not filters.failing:
        failures = await searching.failures_of(memory, listed, owner)
        rows = [row | failure for row, failure in zip(rows, failures, strict=True)]
    return Json({"sessions": rows, "cursor": cursor})


@router.post("/search", response_model=schemas.SessionList)
async def search_sessions(memory: TheMemory, asked: schemas.SessionSearch) -> Response:
    """Return the live sessions that meet all conditions, most recently active first. Changes nothing.

    Looks at the next 5,000 sessions at most, 1,000 if `failing` or `name`, 100 if `text`; a cursor continues the
    search. The conditions are in the body, because servers on the way log addresses.
    """
    filters = searching.Filters(
        asked.contains,
        asked.text,
        asked.failing,
        _parse_ms(asked.active_since, "active_since"),
        _parse_ms(asked.active_before, "active_before"),
        asked.owner,
        asked.name,
    )
    return await _list_page(memory, filters, asked.limit, asked.cursor, asked.newest)


def _parse_ms(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    return max(0, int(parse_moment(text, f"{name} is a time with its zone (RFC 3339)").timestamp() * 1000))


@router.delete("/sessions", response_model=ForgottenSessionsDocument)
async def forget_sessions(
    memory: TheMemory,
    owner: Owner = None,
    prefix: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
) -> Response:
    """Remove all sessions and records of an owner, or all whose id begins with `prefix`, and prove it.

    Needs exactly one of both. If the answer is 503, the same request again removes the rest.
    """
    if (owner is None) == (prefix is None):
        raise Problem("invalid", "name either an owner or a prefix of session ids")
    return Json(asdict(await memory.forget(owner=owner, prefix=prefix)))


@router.post("/sessions", status_code=201, response_model=schemas.NewSession)
async def new_session(request: Request, memory: TheMemory) -> Response:
    """Return a new id. The session begins with its first message."""
    if await request.body() not in (b"", b"{}"):
        raise Problem("invalid", "send no body; to choose the id yourself, append the first message to that id")
    session_id = memory.new_session_id()
    return Json({"session_id": session_id}, 201, {"location": f"/v1/sessions/{session_id}"})


@router.get("/sessions/{session_id}", response_model=schemas.SessionNumbers)
async def show_session(session: TheSession) -> Response:
    """Return the numbers of a session."""
    return Json(asdict(await session.info()))


@router.delete("/sessions/{session_id}", status_code=204)
async def clear_session(session: TheSession, service: TheService, caller: TheCaller, owner: Owner = None) -> Response:
    """Remove a session with all its data. Its running turn ends, and nothing of it is stored."""
    await check_owner(session, owner)
    await service.chat.stop_before_clear(caller.namespace, session)
    await session.clear(missing_ok=False)
    return Response(status_code=204)


@router.put("/sessions/{session_id}/policy", status_code=204)
async def set_policy(session: TheSession, policy: schemas.NewPolicy) -> Response:
    """Replace the policy of a session, and mark the session as active now."""
    if not await session.set_policy(Policy(**policy.model_dump())):
        raise Problem("session_not_found")
    return Response(status_code=204)


@router.get("/sessions/{session_id}/messages", response_model=schemas.MessageList)
async def list_messages(
    session: TheSession,
    limit: Annotated[int, Query(ge=1, le=_MOST_MESSAGES)] = 100,
    before: Annotated[str | None, Query(max_length=64, description="A seq, or a time (RFC 3339).")] = None,
    include_originals: bool = False,
) -> Response:
    """Return the newest messages before a seq or a time, oldest first.

    The list contains the messages that no summary covers; with `include_originals`, all stored messages.
    """
    messages = await session.messages(limit, _parse_before(before), include_originals)
    more = messages[0].seq if len(messages) == limit and messages[0].seq > 1 else None
    return Json({"messages": [message_document(message) for message in messages], "before": more})


@router.post("/sessions/{session_id}/find", response_model=schemas.Found)
async def find_messages(session: TheSession, asked: schemas.FindQuery) -> Response:
    """Return the seqs of the messages that contain a text, also behind summaries. Changes nothing.

    Looks at the newest 5,000 messages before `before`; the `before` of the answer continues the search.
    """
    seqs, before = await finding.find(session, asked.text, asked.before)
    return Json({"seqs": seqs, "before": before})


@router.get("/sessions/{session_id}/readable", response_model=schemas.ReadableDocument)
async def show_readable(session: TheSession, memory: TheMemory, owner: Owner = None) -> Response:
    """Return the faults of a session, and the messages and summaries that can be read. Changes nothing.

    A damaged session answers its other routes with `unreadable`, until its next message begins it anew.
    """
    await check_owner(session, owner)
    read = await read_live(memory.store, session.id, owner)
    messages = [message_document(each) for each in read.messages[-_MOST_MESSAGES:] if not is_gap(each)]
    return Json({"faults": [*dict.fromkeys(read.faults)], "summaries": read.summaries, "messages": messages})


def _parse_before(before: str | None) -> int | datetime | None:
    if before is None:
        return None
    if before.isascii() and before.isdigit() and 0 < int(before[:20]) < 1 << 53:
        return int(before)
    return parse_moment(before, "before is a seq, or a time with its zone (RFC 3339)")


@router.get("/sessions/{session_id}/events", response_class=Response, responses=STREAM)
async def watch_session(session: TheSession, service: TheService, caller: TheCaller, owner: Owner = None) -> Response:
    """Stream the events of a session: `changed` with its numbers, at once and after each change through any server.

    `degraded` means that the store does not answer; `end` means that this server stops.
    """
    await check_owner(session, owner)
    frames = partial(service.watch(caller).frames, session.id, service.stopping, owner)
    revoked = frame({"reason": REVOKED}, "end")
    return EventStream(service, caller, StreamKind.EVENTS, frames, revoked=revoked)


@router.get("/sessions/{session_id}/state", response_model=schemas.StateDocument)
async def read_state(
    session: TheSession, service: TheService, caller: TheCaller, include_hidden: bool = False
) -> Response:
    """Return the state. Only administrators can request the values of sensitive params."""
    if include_hidden and "admin" not in caller.scopes:
        raise Problem("not_allowed", "hidden values need the scope admin")
    hidden = frozenset[str]() if include_hidden else service.hidden_params
    state = await session.state()
    return Json(state_document(state, hidden) | {"waiting_for_param": service.chat.current_wait(state)})


@router.patch("/sessions/{session_id}/state", status_code=204)
async def change_state(
    session: TheSession,
    change: schemas.StateChange,
    caller: TheCaller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=128)] = None,
) -> Response:
    """Change the members in the body, all at once. Creates a missing session, which then belongs to `owner`."""
    changes: dict[str, Any] = {
        name: getattr(change, name)
        for name in ("last_intent", "last_result", "plan", "instruction", "title")
        if name in change.model_fields_set
    }
    if "instruction" in changes and caller.owner is not None:
        raise Problem("not_allowed", "a key of one owner cannot choose what the model is told")
    if "waiting_for_param" in change.model_fields_set:
        changes["waiting"] = change.waiting_for_param
    if not change.params.keys().isdisjoint(change.remove_params):
        raise Problem("invalid", "a name is in both params and remove_params: a change sets a param or removes it")
    merge = {**change.params, **dict.fromkeys(change.remove_params, UNSET)}
    if merge:
        changes["merge"] = merge
    if not changes:
        raise Problem("invalid", "the body changes nothing")
    key = None if idempotency_key is None else append_id(idempotency_key.encode("latin-1"))
    await session.update(id=key, **changes)
    return Response(status_code=204)
