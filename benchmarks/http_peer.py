"""The same route in the usual style: FastAPI, pydantic models, a redis-py pool, one MULTI per request.

    uvicorn benchmarks.http_peer:app

It has no append ids, `expect`, session index, summaries, keys or limits. BENCH_URL is the URL of Redis.
"""

from __future__ import annotations

import os
from typing import Any

import redis.asyncio
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
pool = redis.asyncio.Redis.from_url(os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0"))
TIMEOUT_S = 86_400


class Message(BaseModel):
    role: str
    content: str


class State(BaseModel):
    params: dict[str, str]


class Context(BaseModel):
    session_id: str
    total_messages: int
    messages: list[Message]
    state: State


@app.post("/v1/sessions/{session_id}/messages", status_code=201)
async def append_and_read(session_id: str, message: Message, read: bool = False) -> Context | None:
    """Append a message and return the whole conversation."""
    messages, state = f"bench-http-peer:{session_id}", f"bench-http-peer:{session_id}:state"
    async with pool.pipeline(transaction=True) as pipe:
        pipe.rpush(messages, message.model_dump_json())
        pipe.expire(messages, TIMEOUT_S)
        if read:
            pipe.lrange(messages, 0, -1)
            pipe.hgetall(state)
        replies: list[Any] = await pipe.execute()
    if not read:
        return None
    return Context(
        session_id=session_id,
        total_messages=replies[0],
        messages=[Message.model_validate_json(stored) for stored in replies[2]],
        state=State(params={name.decode(): value.decode() for name, value in replies[3].items()}),
    )
