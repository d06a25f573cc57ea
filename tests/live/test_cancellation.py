"""A turn is stopped, cancelled, timed out or closed, at any moment: it ends once, and keeps its text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from support.checks import until
from support.conversations import contents, user_message
from support.told import ASK, answer, events_of, text_of

from redismem import InvalidMessage, Memory, OwnerMismatch, Session, Settings, Turn, TurnLost


@pytest.fixture
def forever() -> asyncio.Event:
    return asyncio.Event()


async def run_turn(session: Session, begun: asyncio.Future[Turn]) -> None:
    async with session.turn(ASK, id="t1") as turn:
        await turn.write("Par")
        begun.set_result(turn)
        await asyncio.Event().wait()


async def how_it_ended(session: Session) -> tuple[str, Any, Any]:
    known = await session.turn_of("t1")
    assert known is not None
    assert known.reply is not None
    return known.outcome, known.reply.content, (known.reply.metadata or {}).get("incomplete")


@pytest.mark.parametrize("order", ["stop, cancel", "cancel, stop"])
async def test_a_cancellation_beside_a_stop_goes_on(own: Session, order: str) -> None:
    begun: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run_turn(own, begun))
    await begun
    for what in order.split(", "):
        if what == "stop":
            await own.stop()
        else:
            task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await how_it_ended(own) == ("stopped", "Par", "stopped")


@pytest.mark.parametrize("steps_count", range(5))
async def test_a_stop_at_the_end_of_the_block_cancels_nothing_behind_it(own: Session, steps_count: int) -> None:
    async def stop() -> None:
        for _ in range(steps_count):
            await asyncio.sleep(0)
        await own.stop()

    async with own.turn(ASK, id="t1") as turn:
        await turn.write("Paris")
        stopping = asyncio.create_task(stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await stopping
    await asyncio.sleep(0)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert (await how_it_ended(own))[:2] == (turn.outcome, "Paris")


async def test_a_cancellation_at_the_end_of_a_stopped_block_is_not_lost(own: Session) -> None:
    async def stopped_and_cancelled() -> None:
        async with own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            task = asyncio.current_task()
            assert task is not None
            await own.stop()
            task.get_loop().call_soon(task.cancel)

    task = asyncio.create_task(stopped_and_cancelled())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await how_it_ended(own) == ("stopped", "Par", "stopped")


async def test_timeouts_and_scopes_around_a_turn(own: Session, forever: asyncio.Event) -> None:
    with pytest.raises(TimeoutError):  # noqa: PT012 (the scope is what raises)
        async with asyncio.timeout(0.05), own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            await forever.wait()
    assert await how_it_ended(own) == ("stopped", "Par", "cancelled")
    with anyio.move_on_after(0.05) as scope:
        async with own.turn(user_message("and?"), id="t2") as turn:
            await turn.write("more")
            await forever.wait()
    assert scope.cancelled_caught
    assert (turn.outcome, turn.reason) == ("stopped", "cancelled")
    assert contents((await own.read()).messages)[-1] == "more"


async def speak(session: Session, count: int = 1_000_000) -> AsyncGenerator[int, None]:
    async with session.turn(ASK, id="t1") as turn:
        for number in range(count):
            await turn.write("x")
            yield number


async def test_a_generator_that_is_closed_early_ends_its_turn(own: Session) -> None:
    generator = speak(own)
    assert [await anext(generator) for _ in range(3)] == [0, 1, 2]
    await generator.aclose()
    assert await how_it_ended(own) == ("stopped", "xxx", "closed")


async def test_a_stop_ends_a_generator_of_which_each_step_is_a_task(own: Session, other: Session) -> None:
    generator = speak(own)
    await asyncio.create_task(anext(generator))
    assert await other.stop("enough")
    async with asyncio.timeout(10):
        while await asyncio.wait_for(anext(generator, -1), 10) >= 0:
            pass
    outcome, text, why = await how_it_ended(own)
    assert (outcome, why) == ("stopped", "enough")
    assert set(text) == {"x"}


async def test_a_lost_turn_whose_block_goes_on_is_refused(own: Session, other: Session) -> None:
    with pytest.raises(TurnLost):  # noqa: PT012 (the block is what is tested)
        async with own.turn(ASK, id="t1") as turn:
            await other.clear()
            with suppress(asyncio.CancelledError):
                await turn.write("x")
                await asyncio.Event().wait()
            for call in (turn.write("x"), turn.append(ASK)):
                with pytest.raises(TurnLost):
                    await call
    assert not await own.exists()


@pytest.mark.parametrize("where", ["in the block", "beside a block that ignores it"])
async def test_who_closes_the_memory_waits_for_no_lease(redis_server: Any, namespace: str, where: str) -> None:
    settings = Settings(deadline_s=0.2, reply_timeout_s=0.1)
    memory, closed = Memory.connect(redis_server.url, namespace=namespace, settings=settings), asyncio.Event()

    async def close() -> None:
        await memory.aclose()
        closed.set()

    async with asyncio.timeout(10):  # the lease takes longer
        with pytest.raises(TurnLost):  # noqa: PT012 (the block is what is tested)
            async with memory.session("user-42").turn(ASK, id="t1") as turn:
                await turn.write("x")
                if where == "in the block":
                    await close()
                closing = asyncio.create_task(close())
                while not closed.is_set():
                    with suppress(asyncio.CancelledError):
                        await closed.wait()
                await closing
    assert turn.outcome == "lost"


async def test_appends_of_one_turn_wait_for_each_other(own: Session, other: Session) -> None:
    async def step(turn: Turn, number: int) -> None:
        await turn.append(user_message(f"step {number}"))
        await turn.write({"type": "data", "name": "step", "data": number})
        await turn.write(f"{number} ")

    async with own.turn(ASK, id="t1") as turn:
        following = asyncio.create_task(events_of(other))
        await asyncio.gather(*(step(turn, number) for number in range(5)))
        with pytest.raises(InvalidMessage):
            turn.usage = {"tokens": float("nan")}
        turn.usage = {"tokens": 1}
    events = await following
    said = text_of(events[next(at for at, event in enumerate(events) if event.get("first_seq") == 6) :])
    assert contents((await other.read()).messages) == [ASK["content"], *(f"step {n}" for n in range(5)), said]
    assert [event["data"] for event in events if event["type"] == "data"] == list(range(5))
    assert events[-1]["usage"] == {"tokens": 1}


async def test_a_stop_during_an_append_keeps_no_text_that_it_replaced(own: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        await turn.write("let me look")
        appending = asyncio.create_task(turn.append(user_message("found")))
        await asyncio.sleep(0)
        assert await own.stop()
        await appending
    assert contents((await own.read()).messages) == [ASK["content"], "found"]


async def test_a_character_that_two_deltas_split_is_stored_whole(own: Session) -> None:
    await answer(own, "t1", "a\ud83d", "\ude00b")
    assert (await own.read()).messages[-1].content == "a\U0001f600b"


async def test_a_listener_names_the_owner_also_beside_the_writer(redis_server: Any, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        async with memory.session("user-42", owner="alice").turn(ASK, id="t1") as turn:
            await turn.write("x")
            with pytest.raises(OwnerMismatch):
                await events_of(memory.session("user-42", owner="bob"))
        with pytest.raises(OwnerMismatch):
            await events_of(memory.session("user-42", owner="bob"), turn="t1")


async def test_who_joins_others_hears_of_a_turn_that_has_just_begun(own: Session, other: Session) -> None:
    """A feed that others keep open may not know it yet."""
    heard: list[dict[str, Any]] = []

    async def listen() -> list[dict[str, Any]]:
        async for _, event in other.follow():
            heard.append(event)
        return heard

    async with own.turn(ASK, id="t1"):
        first = asyncio.create_task(listen())
        await until(lambda: heard)
        pending = [asyncio.create_task(events_of(other, turn="t1")) for _ in range(3)]
    for events in await asyncio.gather(first, *pending):
        assert events[-1]["type"] == "end"
