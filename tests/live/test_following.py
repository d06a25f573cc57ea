"""Follow a turn: each event once and in order, resumed, and also once its log or its process is gone."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
from support.checks import until
from support.conversations import contents, user_message
from support.told import ASK, answer, events_of, has_heard, text_of

from redismem import (
    Memory,
    Session,
    SessionNotFound,
    Settings,
    TurnKnown,
    TurnLost,
)


async def test_another_process_follows_each_event_once_and_resumes(own: Session, other: Session) -> None:
    started, ids = asyncio.Event(), []

    async def listen(session: Session) -> list[dict[str, Any]]:
        heard = []
        async for event_id, event in session.follow():
            started.set()
            ids.append(event_id)
            heard.append(event)
        return heard

    async with own.turn(ASK, id="t1") as turn:
        far, near = asyncio.create_task(listen(other)), asyncio.create_task(listen(own))
        await started.wait()
        for number in range(200):
            await turn.write(f"{number} ")
            if number % 7 == 0:
                await asyncio.sleep(0)
        await turn.write({"type": "reasoning", "delta": "hm"})
        await turn.write({"type": "tool_call", "id": "c1", "name": "look", "delta": "{}"})
    whole = "".join(f"{number} " for number in range(200))
    for heard in (await far, await near):
        assert text_of(heard) == whole
        assert [event["type"] for event in heard if event["type"] != "text"] == [
            "message", "reasoning", "tool_call", "message", "end",
        ]  # fmt: skip
    every = [(event_id, event) async for event_id, event in other.follow(turn="t1")]
    assert text_of([event for _, event in every]) == whole
    for at in (0, len(every) // 2, len(every) - 1):
        rest = [(event_id, event) async for event_id, event in other.follow(after=every[at][0])]
        assert rest == every[at + 1 :]


async def test_who_follows_nothing_is_told_nothing(own: Session, other: Session) -> None:
    assert await events_of(own) == []
    await answer(own, "t1", "Paris")
    assert await events_of(other) == []
    with pytest.raises(SessionNotFound):
        await events_of(own, turn="unknown")
    with pytest.raises(ValueError, match="event"):
        await events_of(own, after="nonsense")


async def test_a_turn_whose_log_is_gone_is_told_from_its_reply(own: Session, other: Session) -> None:
    await answer(own, "t1", "Par", "is")
    (event_id, _), *_ = [each async for each in other.follow(turn="t1")]
    store = own._store
    await store.transport.run([("DEL", store.keys.session(own.id).live)], 5)
    for events in (await events_of(other, turn="t1"), (await events_of(other, after=event_id))[1:]):
        assert text_of(events) == "Paris"
        assert (events[-1]["type"], events[-1]["outcome"], events[-1]["seq"]) == ("end", "done", 2)
    await answer(own, "t2", "more", question=user_message("and?"))
    assert text_of(await events_of(other, turn="t1")) == "Paris"
    assert await events_of(other, after=event_id) == [{"type": "reset"}]
    assert [event["type"] for event in await events_of(other, after=event_id, turn="t1")] == ["reset", "text", "end"]


async def test_a_stopped_turn_whose_log_is_gone_is_told_with_its_reason(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        await turn.write("Par")
        await own.stop("enough")
        await asyncio.Event().wait()
    store = own._store
    await store.transport.run([("DEL", store.keys.session(own.id).live)], 5)
    events = await events_of(other, turn="t1")
    assert (text_of(events), events[-1]["outcome"], events[-1]["reason"]) == ("Par", "stopped", "enough")


async def test_who_resumes_a_turn_that_has_begun_again_is_told_it_anew(own: Session, other: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        async with own.turn(ASK, id="t1"):
            raise ZeroDivisionError
    *_, (event_id, _) = [each async for each in other.follow(turn="t1")]
    async with own.turn(ASK, id="t1") as turn:
        await turn.write("Paris")
        following = [asyncio.create_task(events_of(each, after=event_id, turn="t1")) for each in (own, other)]
        await asyncio.sleep(0)
    for events in await asyncio.gather(*following):
        assert [event["type"] for event in events] == ["reset", "message", "text", "message", "end"]


async def test_a_dead_turn_is_ended_by_who_follows_or_begins(redis_server: Any, namespace: str) -> None:
    settings = Settings(live_lease_s=0.3)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("user-42")
        turn = session.turn(ASK, id="t1")
        await turn.__aenter__()
        await turn.write("Par")
        await until(partial(has_heard, session))
        turn._live.end(turn._writing)  # its process says nothing more
        async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as watching:
            follower = watching.session("user-42")
            events = await asyncio.wait_for(events_of(follower), 20)
        assert text_of(events) == "Par"
        assert (events[-1]["outcome"], events[-1]["reason"]) == ("lost", "lost")
        reply = (await session.read()).messages[-1]
        assert (reply.content, reply.metadata) == ("Par", {"incomplete": "lost"})
        with pytest.raises(TurnLost):
            await turn.__aexit__(None, None, None)
        assert len((await session.read()).messages) == 2


async def test_a_dead_turn_that_has_said_nothing_begins_again_under_its_id(redis_server: Any, namespace: str) -> None:
    settings = Settings(live_lease_s=0.3)
    async with (
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory,
        Memory.connect(redis_server.url, namespace=namespace, settings=settings) as other,
    ):
        turn = memory.session("user-42").turn(ASK, id="t1")
        await turn.__aenter__()
        turn._live.end(turn._writing)  # its process says nothing more

        async def try_again() -> bool:
            with contextlib.suppress(TurnKnown):
                await answer(other.session("user-42"), "t1", "Paris")
                return True
            return False

        await until(try_again, 20)
        with pytest.raises(TurnLost):
            await turn.__aexit__(None, None, None)
        assert contents((await other.session("user-42").read()).messages) == [ASK["content"], "Paris"]
