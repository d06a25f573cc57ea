"""The routes of the chat."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Response

from redismem.context.info import Policy
from redismem.errors import RedismemError, SessionNotFound, StoreUnavailable
from redismem.messages.message import Message
from redismem.messages.zones import find_zone
from redismem.session.session import Session
from redismem.web.access import Caller
from redismem.web.api import schemas
from redismem.web.api.sessions import TheCaller, TheMemory, TheService, check_owner
from redismem.web.api.streams import STREAM, EventStream
from redismem.web.chat.answer import LiveAnswer, frame, parse_event_id
from redismem.web.http.json import Json
from redismem.web.http.problems import Problem
from redismem.web.open_streams import StreamKind
from redismem.web.service import Service
from redismem.web.watching import HEARTBEAT

router = APIRouter(prefix="/api/chat", tags=["chat"])
_READ_COUNT = 50
_WAIT_S = 30.0


@router.post("", response_class=Response, responses=STREAM)
async def chat(
    asked: schemas.ChatMessage,
    service: TheService,
    memory: TheMemory,
    caller: TheCaller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=64, pattern="^[A-Za-z0-9_-]+$")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> Response:
    """Answer a message with a stream of events: start, text, notice, end.

    With `Last-Event-ID` the stream continues after that event, even if another server began the answer. The answer is
    not generated again.
    """
    stream = partial(EventStream, service, caller, StreamKind.CHAT)
    policy = Policy(zone=asked.zone if asked.zone and find_zone(asked.zone) else None)
    session = memory.session(asked.session_id or memory.new_session_id(), policy=policy, owner=asked.owner)
    with contextlib.suppress(StoreUnavailable):  # the chat goes on, and the append asks again
        await check_owner(session, asked.owner)
    if last_event_id is not None:
        event = parse_event_id(last_event_id)
        if event is None:
            raise Problem("bad_request", "no stream of a chat gave this Last-Event-ID")
        turn_id, offset = event
        turn = await _live(service, caller, session, turn_id, asked.owner)
        if turn is not None:
            return stream(partial(turn.frames, offset))
        stored = await _read_turn(session, turn_id)
        if not stored:
            raise Problem("not_found", "this session has no such answer")
        return stream(lambda: _await_reply(service, caller, session, turn_id, offset))
    turn_id = idempotency_key or uuid.uuid4().hex
    live = await _live(service, caller, session, turn_id, asked.owner)
    if live is not None:
        _check_same(service, asked.message, live.asked)
        return stream(live.frames)
    if idempotency_key is not None and (stored := await _try_read_turn(session, turn_id)):
        _check_same(service, asked.message, *(each.content for each in stored if each.role == "user"))
        if (reply := _reply(stored)) is not None:
            frames = await _reply_frames(session, turn_id, reply, 0)
            return stream(lambda: _stream(frames))
    name = asked.project or service.chat.project
    project = None if name is None else service.project(memory, name)
    service.take_place(caller, StreamKind.CHAT).leave()  # a message whose answer cannot be streamed is not accepted
    place = service.take_place(caller, StreamKind.ANSWER)
    return stream(service.chat.begin(caller.namespace, session, turn_id, asked.message, project, place.leave).frames)


@router.post("/clear", response_model=schemas.Cleared)
async def clear(named: schemas.ChatSession, service: TheService, memory: TheMemory, caller: TheCaller) -> Response:
    """Remove a session with all its data. An answer in progress ends and is not stored."""
    session = memory.session(named.session_id, owner=named.owner)
    await check_owner(session, named.owner)
    await service.chat.stop_before_clear(caller.namespace, session.id)
    return Json({"cleared": await session.clear()})


@router.post("/stop", response_model=schemas.Stopped)
async def stop(named: schemas.ChatSession, service: TheService, memory: TheMemory, caller: TheCaller) -> Response:
    """Stop the session's answers that this server is writing. The text so far is stored as incomplete."""
    session = memory.session(named.session_id, owner=named.owner)
    await check_owner(session, named.owner)
    return Json({"stopped_count": service.chat.stop_all(caller.namespace, session.id, "stopped")})


async def _live(
    service: Service, caller: Caller, session: Session, turn_id: str, owner: str | None
) -> LiveAnswer | None:
    """Return the answer in progress, which is not read from the store. Raises OwnerMismatch, StoreUnavailable."""
    turn = service.chat.live(caller.namespace, session.id, turn_id)
    if turn is not None:
        await check_owner(session, owner)
    return turn


def _check_same(service: Service, text: str, *known: object) -> None:
    """Check that the turn of this key answers this message. Raises Problem: invalid."""
    if not all(service.chat.is_same(text, each) for each in known):
        raise Problem("invalid", "this Idempotency-Key was used for another message of this session")


async def _read_turn(session: Session, turn_id: str) -> list[Message]:
    """Return the stored messages of a turn: the user's message, and the reply if it is stored already."""
    try:
        newest = await session.messages(_READ_COUNT)
    except SessionNotFound:
        return []
    return [each for each in newest if isinstance(each.metadata, dict) and each.metadata.get("turn") == turn_id]


async def _try_read_turn(session: Session, turn_id: str) -> list[Message]:
    """Return the stored messages of a turn. If the memory fails, returns no messages, and the chat shows a notice."""
    try:
        return await _read_turn(session, turn_id)
    except RedismemError:
        return []


def _reply(stored: list[Message]) -> Message | None:
    return next((each for each in stored if each.role == "assistant"), None)


async def _reply_frames(session: Session, turn_id: str, reply: Message, offset: int) -> list[bytes]:
    """Return a stored reply as the events of a stream. If the memory fails, `waiting_for` is null."""
    waiting = None
    with contextlib.suppress(RedismemError):
        waiting = (await session.state()).waiting_for_param
    text, incomplete = str(reply.content), str(reply.metadata.get("incomplete", ""))
    frames = [frame("start", {"session_id": session.id, "turn": turn_id})]
    if rest := text[offset:]:
        frames.append(frame("text", {"text": rest}, f"{turn_id}.{len(text)}"))
    end = {"complete": not incomplete, "reason": incomplete or "done", "seq": reply.seq, "waiting_for": waiting}
    return [*frames, frame("end", end)]


async def _stream(frames: list[bytes]) -> AsyncIterator[bytes]:
    for each in frames:
        yield each


async def _await_reply(
    service: Service, caller: Caller, session: Session, turn_id: str, offset: int
) -> AsyncIterator[bytes]:
    """Wait until the server that writes the reply has stored it, then yield the reply from this offset on.

    Reads messages only after a change of the session, because each read may be large.
    """
    ends_s = asyncio.get_running_loop().time() + _WAIT_S
    async with contextlib.aclosing(service.watch(caller).frames(session.id, service.stopping)) as changes:
        while True:
            reply = _reply(await _try_read_turn(session, turn_id))
            if reply is not None:
                for each in await _reply_frames(session, turn_id, reply, offset):
                    yield each
                return
            yield b": not yet\n\n"
            try:
                async with asyncio.timeout_at(ends_s):
                    while await anext(changes) == HEARTBEAT:
                        pass
            except (TimeoutError, StopAsyncIteration):
                break
    yield frame("end", {"complete": False, "reason": "the answer was lost", "seq": None, "waiting_for": None})
