"""A chat on Flask: blocking calls, one memory per process. Summaries are written by `redismem worker`.

POST /chats/<session>/turns with {"id": "…", "text": "…"} answers {"reply": "…"}. A client that gets no answer, or a
409, 502 or 503, sends the same turn again with the same id: the question is stored once, and so is the reply.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue
from openai import OpenAI, OpenAIError

from redismem import (
    Conflict,
    Context,
    RedismemError,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    Unconfirmed,
)
from redismem.blocking import Memory, Session

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
STATUSES: dict[type[Exception], int] = {
    SessionNotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    ValueError: 422,  # the root of InvalidMessage, InvalidSessionId and their kind
    StoreUnavailable: 503,
    Unconfirmed: 503,
}

app = Flask(__name__)
memory = Memory.connect()  # at REDISMEM_URL; it connects at the first call, so servers may fork after this line
model = OpenAI()  # at OPENAI_BASE_URL, with OPENAI_API_KEY


@app.post("/chats/<session_id>/turns")
def post_turn(session_id: str) -> ResponseReturnValue:
    turn = request.get_json()
    if not isinstance(turn, dict) or not all(isinstance(turn.get(name), str) for name in ("id", "text")):
        return problem(422, 'the body must be {"id": "…", "text": "…"}')
    return jsonify(reply=answer(memory.session(session_id), turn["id"], turn["text"]))


@app.get("/chats/<session_id>")
def get_chat(session_id: str) -> ResponseReturnValue:
    messages = memory.session(session_id).messages(limit=100, include_originals=True)
    return jsonify(messages=[message.to_openai() for message in messages])


@app.delete("/chats/<session_id>")
def delete_chat(session_id: str) -> ResponseReturnValue:
    memory.session(session_id).clear()
    return "", 204


def answer(session: Session, turn_id: str, text: str) -> str:
    """Store the question, ask the model, and store its reply. A repeated turn returns the reply that is stored."""
    context = session.append_and_read({"role": "user", "content": text}, id=f"{turn_id}:user")
    stored = stored_reply(context)
    if stored is not None:
        return stored
    completion = model.chat.completions.create(model=MODEL, messages=[SYSTEM, *context.to_openai()])
    message = completion.choices[0].message
    if not message.content:
        raise OpenAIError("the answer is empty")  # stored, it would make providers refuse the next request
    session.append(message, expect=context)  # Conflict if another message, or another try's reply, was faster
    return message.content


def stored_reply(context: Context) -> str | None:
    """Return the reply that follows the question, if an earlier try of this turn got as far as that."""
    assert context.receipt is not None  # an append always has one
    asked_seq = context.receipt.last_seq
    replies = [message for message in context.messages if message.seq > asked_seq and message.role == "assistant"]
    return str(replies[0].content) if replies else None


@app.errorhandler(RedismemError)
def tell_memory_error(error: RedismemError) -> ResponseReturnValue:
    status = next((status for kind, status in STATUSES.items() if isinstance(error, kind)), 500)
    if status == 500:
        app.logger.error("%s", error)  # neither errors nor logs contain message text
    return problem(status, error.text)


@app.errorhandler(OpenAIError)
def tell_model_error(error: OpenAIError) -> ResponseReturnValue:
    app.logger.warning("the model failed: %s", type(error).__name__)
    return problem(502, "the model gave no answer")


def problem(status: int, detail: str) -> ResponseReturnValue:
    headers = {"Retry-After": "1"} if status == 503 else {}
    return jsonify(status=status, detail=detail), status, headers
