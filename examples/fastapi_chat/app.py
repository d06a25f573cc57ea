"""A support chat on FastAPI: it remembers a user over all chats, and its answers stream to any process.

The cookie `user` says who asks: `Cookie: user=ada`. Replace it by the signed cookie of your login.

- POST /chats/{chat}/turns with {"id": "…", "text": "…", "images": […]} begins a turn and answers 202. If it gets no
  answer, or a 409 or 503, the client sends the same turn again, to any process; a double click is one turn too, because
  it has one id.
- GET /chats/{chat}/turns/{turn_id} streams the events of the turn, from its first one or behind `Last-Event-ID`, until
  `end`: an `EventSource` of a browser resumes by itself. If the `end` has the outcome failed or lost, and no `seq` of a
  reply, the client may send the turn again. POST /chats/{chat}/turns/{turn_id}/stop stops the turn.
- POST /chats/{chat}/images with the bytes of an image, and its type as Content-Type, answers with the reference that a
  turn takes.
- GET /chats/{chat} returns the newest messages, DELETE /chats/{chat} clears the chat with its images.
- GET /chats lists the user's chats with their titles. DELETE /me forgets the user.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Cookie, Depends, FastAPI, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from examples.fastapi_chat import images
from examples.fastapi_chat.images import Album
from examples.fastapi_chat.problems import FAILURES, Refused, problem_of
from examples.fastapi_chat.shop import Shop
from examples.fastapi_chat.turns import Turns
from redismem import Memory, RedismemError, Session


class Question(BaseModel):
    """A question of the user. The id is new for each turn, and stays the same for each retry of it."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    text: str = Field(min_length=1, max_length=20_000)
    images: list[str] = Field(default=[], max_length=4)

    def message(self) -> dict[str, Any]:
        """Return the message to store. Its images are references, so it stays small."""
        parts = [{"type": "image_url", "image_url": {"url": reference}} for reference in self.images]
        return {"role": "user", "content": [{"type": "text", "text": self.text}, *parts] if parts else self.text}


@dataclass(frozen=True)
class Services:
    """Everything that requests share."""

    memory: Memory
    turns: Turns


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Services]]:
    """Open the services for the life of the process. The memory's workers write summaries and evict idle chats.

    The memory closes first: it stops the turns that still run, and stores what they have said.
    """
    async with AsyncOpenAI() as model, Shop() as shop, Memory.connect(workers=True) as memory:
        yield {"services": Services(memory, Turns(model, shop))}


async def get_services(request: Request) -> Services:
    services: Services = request.state.services
    return services


def get_user(user: Annotated[str, Cookie(pattern=r"^[A-Za-z0-9_-]{1,64}$")]) -> str:
    return user  # replace this: check the signed cookie of your login


User = Annotated[str, Depends(get_user)]
Shared = Annotated[Services, Depends(get_services)]


@dataclass(frozen=True)
class Chat:
    """A chat of the user who asks. A chat of another user is refused by each method of its session."""

    session: Session
    album: Album


def get_chat(chat: str, user: User, shared: Shared) -> Chat:
    return Chat(shared.memory.session(chat, owner=user), Album(user, chat))


EventId = Annotated[str | None, Header(pattern=r"^\d+-[0-9a-f]{8}\.\d{1,10}$")]
TheChat = Annotated[Chat, Depends(get_chat)]
app = FastAPI(lifespan=lifespan)


@app.post("/chats/{chat}/turns", status_code=202)
async def post_turn(chat: TheChat, question: Question, shared: Shared) -> dict[str, str]:
    await chat.album.check(question.images)
    await shared.turns.begin(chat.session, chat.album, question.id, question.message())
    return {"turn": question.id}


@app.get("/chats/{chat}/turns/{turn_id}")
async def get_turn(chat: TheChat, turn_id: str, last_event_id: EventId = None) -> StreamingResponse:
    if await chat.session.turn_of(turn_id) is None:  # before the stream begins, so that it is a status
        raise Refused(404, "there is no such turn")
    events = chat.session.follow(after=last_event_id, turn=turn_id)
    return StreamingResponse(encode_events(events), media_type="text/event-stream")


@app.post("/chats/{chat}/turns/{turn_id}/stop")
async def post_stop(chat: TheChat, turn_id: str) -> dict[str, bool]:
    return {"stopped": await chat.session.stop(turn=turn_id)}


@app.post("/chats/{chat}/images", status_code=201)
async def post_image(chat: TheChat, request: Request) -> dict[str, str]:
    return {"image": await chat.album.store(request.headers.get("content-type", ""), request.stream())}


@app.get("/chats/{chat}")
async def get_messages(chat: TheChat) -> dict[str, Any]:
    messages = await chat.session.messages(limit=100, include_originals=True)
    return {"messages": [message.to_openai() for message in messages]}


@app.delete("/chats/{chat}", status_code=204)
async def delete_chat(chat: TheChat) -> Response:
    await chat.session.clear()
    await chat.album.remove()
    return Response(status_code=204)


@app.get("/chats")
async def get_chats(user: User, shared: Shared) -> dict[str, Any]:
    page = await shared.memory.sessions(owner=user, newest=True)
    return {"chats": [{"id": session.session_id, "title": session.title} for session in page.sessions]}


@app.delete("/me")
async def delete_me(user: User, shared: Shared) -> dict[str, Any]:
    """Forget everything that the user has said. The answer is the proof, and names what was not searched."""
    forgotten = await shared.memory.forget(owner=user)
    await images.remove_all(user)
    return {"chats": forgotten.session_count, "proven_ms": forgotten.proven_ms, "not_searched": forgotten.not_searched}


async def encode_events(events: AsyncGenerator[tuple[str, dict[str, Any]], None]) -> AsyncIterator[str]:
    async with aclosing(events):
        with suppress(RedismemError):  # an outage: the browser comes again with the last id
            async for event_id, event in events:
                head = f"id: {event_id}\n" if event_id else ""  # without one, the browser keeps the id before
                yield f"{head}data: {json.dumps(event)}\n\n"


async def tell_failure(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FAILURES)
    problem = problem_of(error)
    headers = {"Retry-After": "1"} if problem["status"] == 503 else {}
    return JSONResponse(problem, problem["status"], headers)


for failure in FAILURES:
    app.add_exception_handler(failure, tell_failure)
