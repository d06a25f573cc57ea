"""Answers in the background, by Celery: a task runs a turn, and the process that asked follows it.

The id of the task is the id of the turn. So a task that is retried, or redelivered because its worker was killed,
doubles nothing. The reply is not a result of the task, which Celery would log and keep: it is in the chat.

    celery -A examples.celery_chat worker --loglevel INFO
    python -m examples.celery_chat anna "Is my bike ready?"
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

from celery import Celery, Task
from openai import APIConnectionError, InternalServerError, OpenAI, RateLimitError

from redismem import SessionNotFound, StoreUnavailable, TurnBusy, TurnKnown, TurnLost
from redismem.blocking import Memory, Session, Turn

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
TIME_LIMIT_S = 120


class EmptyAnswer(Exception):
    """The model gave no text."""


# Each is over later. A turn that failed without any text begins again under its id.
RETRIED = (
    TurnBusy,
    TurnLost,
    StoreUnavailable,
    APIConnectionError,
    InternalServerError,
    RateLimitError,
    EmptyAnswer,
)

app = Celery("chat", broker=os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/1"))
app.conf.update(
    task_acks_late=True,  # a task is done when it has ended, not when it was begun,
    task_reject_on_worker_lost=True,  # and a task whose process was killed is redelivered
    task_ignore_result=True,
    task_time_limit=TIME_LIMIT_S,
    broker_transport_options={"visibility_timeout": 5 * TIME_LIMIT_S},  # longer than a task, or it would run twice
    worker_prefetch_multiplier=1,
)
memory = Memory.connect()  # at REDISMEM_URL; it connects at the first call, in each process of the worker
model = OpenAI(max_retries=0, timeout=60)  # the task is what is retried


@app.task(name="answer", bind=True, autoretry_for=RETRIED, retry_backoff=True, max_retries=8)
def answer(self: Task, chat: str, text: str) -> None:
    """Run the turn, unless it has a reply. If its worker was killed, wait until its lease is over, and begin again."""
    session, turn_id = memory.session(chat), self.request.id
    while True:
        try:
            with session.turn({"role": "user", "content": text}, id=turn_id, when_busy="wait") as turn:
                ask_model(turn)
            return
        except TurnKnown as known:
            if known.how == "ended":
                return
            for _ in session.follow(turn=turn_id):
                pass


def ask_model(turn: Turn) -> None:
    has_text = False
    messages = [SYSTEM, *turn.context.to_openai()]
    with model.chat.completions.create(model=MODEL, messages=messages, stream=True) as stream:
        for choice in (choice for chunk in stream for choice in chunk.choices):
            turn.write(choice.delta.content or "")
            has_text = has_text or bool(choice.delta.content)
    if not has_text:
        raise EmptyAnswer


def follow(session: Session, turn_id: str) -> Iterator[str]:
    """Yield the answer in pieces, until a try of the turn has a reply."""
    while True:
        try:
            for _, event in session.follow(turn=turn_id):
                if event["type"] == "text":
                    yield event["delta"]
                elif event["type"] == "reset":
                    yield "\n"  # the answer comes anew
                elif event["type"] == "end" and event["seq"]:
                    return
        except SessionNotFound:
            pass  # no worker has begun the turn yet
        time.sleep(0.2)


def main(chat: str, text: str) -> None:
    turn_id = str(uuid.uuid4())
    answer.apply_async((chat, text), task_id=turn_id, argsrepr="(hidden)")  # monitors show it
    for piece in follow(memory.session(chat), turn_id):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.celery_chat CHAT TEXT")
    main(*sys.argv[1:])
