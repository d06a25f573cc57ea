"""Turns of the tests: write one, and hear what others are told of it."""

from __future__ import annotations

from typing import Any

from redismem import Session
from support.conversations import user_message

ASK = user_message("What is the capital of France?")


async def events_of(session: Session, **where: Any) -> list[dict[str, Any]]:
    return [event async for _, event in session.follow(**where)]


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "text")


async def answer(session: Session, id: str, *pieces: str, question: Any = ASK) -> None:
    async with session.turn(question, id=id) as turn:
        for piece in pieces:
            await turn.write(piece)


async def has_waiting(session: Session, count: int) -> bool:
    store = session._store
    (reply,) = await store.transport.run([("GET", store.keys.session(session.id).waiters)], 5)
    return bool(reply) and reply.count(b",") + 1 == count


async def answer_later(session: Session, id: str = "t2") -> None:
    async with session.turn(user_message("second"), id=id, when_busy="wait") as turn:
        await turn.write("re second")


async def has_heard(session: Session) -> bool:
    store = session._store
    (log,) = await store.transport.run([("GET", store.keys.session(session.id).live)], 5)
    return bool(log) and b"Par" in log
