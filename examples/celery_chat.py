"""Answers in the background, by Celery: a task per turn, retried and redelivered without doubling anything.

The id of the task is the id of the append, so whatever happens to a worker, a question is stored once. The reply is not
a result of the task, which Celery would log and keep: it is in the chat.

    celery -A examples.celery_chat worker --loglevel INFO
    python -m examples.celery_chat anna "Is my bike ready?"
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from typing import Any

from celery import Celery, Task
from openai import APIConnectionError, InternalServerError, OpenAI, RateLimitError

from redismem import Conflict, Context, Message, StoreUnavailable, Unconfirmed
from redismem.blocking import Memory

MODEL = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
SYSTEM: Any = {"role": "system", "content": "You answer customers of a bicycle shop, in two sentences at most."}
TIME_LIMIT_S = 120


class EmptyAnswer(Exception):
    """The model gave no text. It is not stored: providers refuse a request that contains such a message."""


# Each is over later. A Conflict means that another turn of the chat was faster.
RETRIED = (
    Conflict,
    StoreUnavailable,
    Unconfirmed,
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
    """Store the question, ask the model, and store its reply."""
    turn_id = self.request.id  # the same in each retry
    session = memory.session(chat)
    context = session.append_and_read(Message("user", text, id=turn_id), id=turn_id)
    if find_reply(context, turn_id) is None:
        completion = model.chat.completions.create(model=MODEL, messages=[SYSTEM, *context.to_openai()])
        reply = completion.choices[0].message
        if not reply.content:
            raise EmptyAnswer
        session.append(reply, expect=context)


def find_reply(context: Context, turn_id: str) -> str | None:
    """Return the reply to a question. The one behind it has seen it, because of `expect`."""
    messages = context.messages
    asked_seqs = [message.seq for message in messages if message.id == turn_id]
    replies = [m for m in messages if m.role == "assistant" and asked_seqs and m.seq > asked_seqs[0]]
    return str(replies[0].content) if replies else None


def main(chat: str, text: str) -> None:
    turn_id = str(uuid.uuid4())
    answer.apply_async((chat, text), task_id=turn_id, argsrepr="(hidden)")  # monitors show it
    while (reply := find_reply(memory.session(chat).read(), turn_id)) is None:
        time.sleep(0.2)
    print(reply)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m examples.celery_chat CHAT TEXT")
    main(*sys.argv[1:])
