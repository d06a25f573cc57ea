"""Waiting turns: one that gives up holds nobody up, and one that begins as its caller leaves goes to the next."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from support.checks import until
from support.conversations import contents, user_message
from support.proxy import Proxy
from support.told import ASK, answer, answer_later, has_waiting

from redismem import Conflict, Memory, Session, TurnBusy, TurnLost
from redismem.protocol import scripts


async def has_none_waiting(session: Session) -> bool:
    return not await has_waiting(session, 1)


@pytest.mark.parametrize("why", ["cancelled", "too late"])
async def test_who_waits_no_longer_holds_nobody_up(own: Session, other: Session, why: str) -> None:
    async with own.turn(ASK, id="t1"):
        if why == "cancelled":
            waiting = asyncio.create_task(answer_later(other))
            await until(partial(has_waiting, own, 1))
            waiting.cancel()
            await asyncio.wait((waiting,))
        else:
            with pytest.raises(TurnBusy):
                async with other.turn(user_message("second"), id="t2", when_busy="wait", wait_s=0.01):
                    pytest.fail("two turns")
        await until(partial(has_none_waiting, own), 3)  # a place lapses in five seconds
    await answer(own, "t3", "Paris", question=user_message("third"))
    assert contents((await own.read()).messages)[-2:] == ["third", "Paris"]


async def test_a_question_that_waits_goes_with_its_session(redis_server: Any, namespace: str) -> None:
    """It was asked before: behind a forget, it would begin the session of its owner anew."""
    connect = partial(Memory.connect, redis_server.url, namespace=namespace)
    async with connect() as one, connect() as two, connect() as third:
        running, waiting = (memory.session("s", owner="ann") for memory in (one, two))

        forgotten = asyncio.Event()

        async def run() -> None:
            async with running.turn(ASK, id="t1") as turn:
                await turn.write("Par")
                await forgotten.wait()
                await turn.write("is")
                await asyncio.Event().wait()

        first = asyncio.create_task(run())
        await until(running.exists)
        second = asyncio.create_task(answer_later(waiting))
        await until(partial(has_waiting, running, 1))
        assert (await third.forget(owner="ann")).session_count == 1
        forgotten.set()
        with pytest.raises(Conflict) as refused:
            await second
        assert refused.value.cleared
        with pytest.raises(TurnLost):
            await first
        assert not await running.exists()
        await answer_later(waiting)  # asked anew


async def test_a_turn_that_begins_as_its_caller_leaves_may_begin_again(own: Session, proxy: Proxy) -> None:
    async with Memory.connect(proxy.url, namespace=own._store.keys.namespace) as memory:
        session = memory.session(own.id)
        await session.append(user_message("before"))
        proxy.break_next("delay", 1, scripts.load("begin_turn").sha, delay_s=0.2)
        leaving = asyncio.create_task(answer(session, "t1", "nobody asks"))
        await until(partial(getattr, proxy, "broken_count"))
        leaving.cancel()
        with suppress(asyncio.CancelledError):
            await leaving

        async def is_lost() -> bool:
            known = await own.turn_of("t1")
            return known is not None and known.outcome == "lost"

        await until(is_lost, 5)  # its lease is longer
        await answer(own, "t1", "Paris")
    assert contents((await own.read()).messages) == ["before", ASK["content"], "Paris"]
