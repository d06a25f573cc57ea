"""A chat on Flask: blocking calls, one memory per process. Summaries are written by `redismem worker`.

POST /chats/<session>/turns with {"id": "…", "text": "…"} answers {"reply": "…"}. A client that gets no answer, or a
409, 502 or 503, sends the same turn again with the same id: the question is stored once, and so is the reply. POST
/chats/<session>/stop ends the running turn, whichever process runs it; the reply is what the model has said so far.
"""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, jsonify, request
from flask.typing import ResponseReturnValue
from openai import OpenAI, OpenAIError

from redismem import (
    IdReused,
    RedismemError,
    SessionNotFound,
    StoreUnavailable,
    TooLarge,
    TurnBusy,
    TurnKnown,
    TurnLost,
)
from redismem.blocking import Memory, Session

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
STATUSES: dict[type[Exception], int] = {
    SessionNotFound: 404,
    TurnBusy: 409,  # other turns of the chat took too long
    IdReused: 422,  # the client used the id for another question
    TooLarge: 413,
    ValueError: 422,  # the root of InvalidMessage, InvalidSessionId and their kind
    StoreUnavailable: 503,
    TurnLost: 503,
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


@app.post("/chats/<session_id>/stop")
def post_stop(session_id: str) -> ResponseReturnValue:
    return jsonify(stopped=memory.session(session_id).stop())


@app.get("/chats/<session_id>")
def get_chat(session_id: str) -> ResponseReturnValue:
    messages = memory.session(session_id).messages(limit=100, include_originals=True)
    return jsonify(messages=[message.to_openai() for message in messages])


@app.delete("/chats/<session_id>")
def delete_chat(session_id: str) -> ResponseReturnValue:
    memory.session(session_id).clear()
    return "", 204


def answer(session: Session, turn_id: str, text: str) -> str:
    """Answer a question, or return the answer of an earlier try. Raises the errors of redismem and of the model."""
    try:
        with session.turn({"role": "user", "content": text}, id=turn_id, when_busy="wait") as turn:
            messages = [SYSTEM, *turn.context.to_openai()]
            with model.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
                finish_reason = None
                for choice in (choice for chunk in stream for choice in chunk.choices):
                    turn.write(choice.delta.content or "")  # leaves the block if the turn was stopped
                    finish_reason = choice.finish_reason
                if finish_reason is None:
                    raise OpenAIError("the answer broke off")  # what was said is stored as incomplete
    except TurnKnown:
        for _ in session.follow(turn=turn_id):
            pass  # until it has ended, in whichever process
    known = session.turn_of(turn_id)
    if known is None or known.reply is None:
        raise OpenAIError("the answer is empty")  # a retry asks the model again
    return str(known.reply.content)


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
