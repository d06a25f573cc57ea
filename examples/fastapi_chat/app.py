"""A streaming chat on FastAPI: tools, images by reference, safe retries, errors as statuses, an archive.

POST /chats/<chat>/turns with {"id": "…", "text": "…", "images": […]} answers with server-sent events: `text` pieces,
then `end` or `error`. If the stream breaks off, or its error is a 409, 502 or 503, the client drops the pieces and
sends the same turn again with the same id, to any process.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from openai import AsyncOpenAI
from pydantic import BaseModel, Field

from examples.fastapi_chat import images
from examples.fastapi_chat.problems import FAILURES, problem_of
from examples.fastapi_chat.shop import Shop
from examples.fastapi_chat.turns import Turn
from redismem import Memory
from redismem.workers.archive import JsonlArchive


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
    model: AsyncOpenAI
    shop: Shop


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, Services]]:
    """Open the services for the life of the process. The memory's workers write summaries and evict idle chats."""
    archive = JsonlArchive(os.environ.get("CHAT_ARCHIVE", "chats.jsonl"))
    async with Memory.connect(workers=True, on_evict=archive) as memory, AsyncOpenAI() as model, Shop() as shop:
        yield {"services": Services(memory, model, shop)}


async def get_services(request: Request) -> Services:
    services: Services = request.state.services
    return services


Shared = Annotated[Services, Depends(get_services)]
app = FastAPI(lifespan=lifespan)


@app.post("/chats/{chat}/turns")
async def post_turn(chat: str, question: Question, shared: Shared) -> StreamingResponse:
    await images.check(chat, question.images)
    turn = Turn(shared.memory.session(chat), shared.model, shared.shop, question.id)
    context = await turn.begin(question.message())  # before the stream begins, so that a failure is a status
    return StreamingResponse(encode_events(turn.answer(context)), media_type="text/event-stream")


@app.post("/chats/{chat}/images", status_code=201)
async def post_image(chat: str, request: Request) -> dict[str, str]:
    return {"image": await images.store(chat, request.headers.get("content-type", ""), request.stream())}


@app.get("/chats/{chat}")
async def get_chat(chat: str, shared: Shared) -> dict[str, Any]:
    messages = await shared.memory.session(chat).messages(limit=100, include_originals=True)
    return {"messages": [message.to_openai() for message in messages]}


@app.delete("/chats/{chat}", status_code=204)
async def delete_chat(chat: str, shared: Shared) -> Response:
    await shared.memory.session(chat).clear()
    await images.remove_all(chat)
    return Response(status_code=204)


async def encode_events(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    try:
        async for text in texts:
            yield encode_event("text", {"text": text})
        yield encode_event("end", {})
    except FAILURES as error:  # the status line was sent long ago
        yield encode_event("error", problem_of(error))


def encode_event(name: str, document: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n"


async def tell_failure(_: Request, error: Exception) -> JSONResponse:
    problem = problem_of(error)
    headers = {"Retry-After": "1"} if problem["status"] == 503 else {}
    return JSONResponse(problem, problem["status"], headers)


for failure in FAILURES:
    app.add_exception_handler(failure, tell_failure)
