"""A turn: one question, one writer, one reply, in this and other processes."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any

import pytest
from support.checks import until
from support.conversations import contents, user_message
from support.told import ASK, answer, answer_later, events_of, has_waiting, text_of

from redismem import (
    Conflict,
    IdReused,
    InvalidMessage,
    Memory,
    Session,
    Settings,
    TooLarge,
    TurnBusy,
    TurnKnown,
    TurnLost,
)


async def test_a_turn_stores_its_question_and_its_reply(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        assert contents(turn.context.messages) == [ASK["content"]]
        await turn.write("Par")
        await turn.write("is")
        assert contents((await other.read()).messages) == [ASK["content"]]
        turn.usage, turn.metadata = {"output_tokens": 2}, {"model": "m"}
    assert (turn.outcome, turn.reason, turn.reply_seq) == ("done", "", 2)
    messages = (await other.read()).messages
    assert contents(messages) == [ASK["content"], "Paris"]
    assert messages[-1].role == "assistant"
    assert messages[-1].metadata == {"model": "m"}
    known = await other.turn_of("t1")
    assert known is not None
    assert (known.how, known.outcome, known.first_seq, known.last_seq, known.reply_seq) == ("ended", "done", 1, 2, 2)
    assert known.reply is not None
    assert known.reply.content == "Paris"
    assert await other.turn_of("t2") is None
    events = await events_of(other, turn="t1")
    assert events[0] == {"type": "message", "first_seq": 1, "last_seq": 1}
    assert text_of(events) == "Paris"
    assert events[-1] == {"type": "end", "outcome": "done", "reason": "", "seq": 2, "usage": {"output_tokens": 2}}


async def test_while_a_turn_runs_no_other_begins(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        with pytest.raises(TurnBusy) as busy:
            async with other.turn(user_message("and?"), id="t2"):
                pytest.fail("two turns")
        assert busy.value.turn == turn.generation
        assert 0 < busy.value.left_ms <= 15_000
        with pytest.raises(TurnBusy, match="inside a turn"):
            async with own.turn(user_message("and?"), id="t2", when_busy="wait"):
                pytest.fail("a turn in a turn")
        await turn.write("Paris")
    assert contents((await own.read()).messages) == [ASK["content"], "Paris"]


async def test_turns_wait_in_order_of_arrival(own: Session, other: Session) -> None:
    order = []

    async def wait(session: Session, name: str) -> None:
        async with session.turn(user_message(name), id=name, when_busy="wait") as turn:
            order.append(name)
            await turn.write(f"re {name}")

    async with own.turn(ASK, id="t1"):
        tasks = []
        for number, session in enumerate((other, own, other)):
            tasks.append(asyncio.create_task(wait(session, f"w{number}")))
            await until(partial(has_waiting, own, number + 1))
    await asyncio.gather(*tasks)
    assert order == ["w0", "w1", "w2"]
    assert contents((await own.read()).messages)[1:] == ["w0", "re w0", "w1", "re w1", "w2", "re w2"]


async def test_too_many_turns_do_not_wait(redis_server: Any, namespace: str) -> None:
    settings = Settings(max_waiting_turns=1)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("user-42")
        async with session.turn(ASK, id="t1"):
            waiting = asyncio.create_task(answer_later(session))
            await until(partial(has_waiting, session, 1))
            with pytest.raises(TurnBusy, match="max_waiting_turns"):
                await asyncio.create_task(answer_later(session, "t3"))
        await waiting


@pytest.mark.parametrize("where", ["here", "there"])
async def test_a_stop_cancels_the_block_and_keeps_the_text(own: Session, other: Session, where: str) -> None:
    stopper = own if where == "here" else other
    assert not await stopper.stop()
    reached = asyncio.Event()

    async def run() -> Any:
        async with own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            reached.set()
            await asyncio.Event().wait()
            pytest.fail("not cancelled")
        return turn

    task = asyncio.create_task(run())
    await reached.wait()
    assert not await stopper.stop(turn="another")
    assert await stopper.stop("enough", turn="t1")
    turn = await task
    assert task.cancelling() == 0
    assert (turn.outcome, turn.reason) == ("stopped", "enough")
    reply = (await other.read()).messages[-1]
    assert (reply.content, reply.metadata) == ("Par", {"incomplete": "enough"})
    assert (await events_of(other, turn="t1"))[-1]["outcome"] == "stopped"


async def test_an_interrupt_stops_the_running_turn_and_begins(own: Session, other: Session) -> None:
    reached = asyncio.Event()

    async def run() -> str:
        async with own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            reached.set()
            await asyncio.Event().wait()
        return turn.outcome

    task = asyncio.create_task(run())
    await reached.wait()
    async with other.turn(user_message("no: Spain"), id="t2", when_busy="interrupt") as turn:
        assert contents(turn.context.messages) == [ASK["content"], "Par", "no: Spain"]
        await turn.write("Madrid")
    assert await task == "stopped"


async def test_a_known_id_has_one_question_and_one_reply(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        with pytest.raises(TurnKnown) as known:
            async with other.turn(ASK, id="t1"):
                pytest.fail("twice")
        assert (known.value.how, known.value.generation) == ("running", turn.generation)
        await turn.write("Paris")
    with pytest.raises(TurnKnown) as known:
        async with other.turn(ASK, id="t1", when_busy="wait"):
            pytest.fail("twice")
    assert (known.value.how, known.value.outcome, known.value.reply_seq) == ("ended", "done", 2)
    with pytest.raises(IdReused, match="the turn id was used before, for another question: 1"):
        async with other.turn(user_message("something else"), id="t1"):
            pytest.fail("another question")
    assert contents((await own.read()).messages) == [ASK["content"], "Paris"]


async def test_a_turn_that_failed_without_a_reply_begins_again_while_its_question_is_the_newest(own: Session) -> None:
    with pytest.raises(ZeroDivisionError):
        async with own.turn(ASK, id="t1") as turn:
            raise ZeroDivisionError
    assert (turn.outcome, turn.reason) == ("failed", "ZeroDivisionError")
    async with own.turn(ASK, id="t1") as turn:
        assert contents(turn.context.messages) == [ASK["content"]]
        await turn.write("Paris")
    assert contents((await own.read()).messages) == [ASK["content"], "Paris"]
    with pytest.raises(ZeroDivisionError):
        async with own.turn(user_message("next"), id="t2"):
            raise ZeroDivisionError
    await answer(own, "t3", "fine", question=user_message("third"))
    with pytest.raises(TurnKnown) as known:
        async with own.turn(user_message("next"), id="t2"):
            pytest.fail("others were answered since")
    assert (known.value.outcome, known.value.reply_seq) == ("failed", 0)


async def test_messages_of_a_turn_are_stored_at_once_and_replace_the_text(own: Session, other: Session) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}  # fmt: skip
    result = {"role": "tool", "tool_call_id": "c1", "content": "42"}
    async with own.turn(ASK, id="t1") as turn:
        await turn.write("let me look")
        receipt = await turn.append(call, result)
        assert (receipt.first_seq, receipt.last_seq) == (2, 3)
        assert [message.role for message in (await other.read()).messages] == ["user", "assistant", "tool"]
        await turn.write("It is 42.")
        turn.finish(waiting="city", merge={"x": 1})
    context = await other.read()
    assert contents(context.messages)[-1] == "It is 42."
    assert (context.state.waiting_for_param, context.state.params) == ("city", {"x": 1})
    assert [event["type"] for event in await events_of(other, turn="t1")] == [
        "message", "text", "message", "text", "message", "end",
    ]  # fmt: skip


async def test_only_a_turn_that_is_done_makes_the_changes_of_finish(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as stopped:
        await stopped.write("Shall I refund?")
        stopped.finish(waiting="approval", plan={"tool_calls": []})
        assert await other.stop(turn="t1")
        await asyncio.wait_for(asyncio.Event().wait(), 20)
    failed = own.turn(ASK, id="t2")
    with contextlib.suppress(LookupError):
        async with failed:
            failed.finish(waiting="approval")
            raise LookupError
    assert (stopped.outcome, failed.outcome) == ("stopped", "failed")
    state = (await other.read()).state
    assert (state.waiting_for_param, state.plan) == (None, None)
    assert contents((await other.read()).messages) == [ASK["content"], "Shall I refund?", ASK["content"]]


async def test_a_turn_that_is_not_entered_says_so(own: Session) -> None:
    turn = own.turn(ASK, id="t1")
    with pytest.raises(RuntimeError, match=r"async with session\.turn"):
        _ = turn.context
    with pytest.raises(RuntimeError, match=r"async with session\.turn"):
        await turn.write("Paris")
    assert not await own.exists()


async def test_what_is_said_during_an_append_follows_it(own: Session, other: Session) -> None:
    async with own.turn(ASK, id="t1") as turn:
        await turn.write("dropped")
        appending = asyncio.create_task(turn.append({"role": "assistant", "content": "whole"}))
        for number in range(50):
            await turn.write(f"{number} ")
            await turn.write({"type": "data", "name": "n", "data": number})
            await asyncio.sleep(0)
        await appending
        await turn.write("end")
    events = await events_of(other, turn="t1")
    at = [number for number, event in enumerate(events) if event["type"] == "message"]
    assert [event["data"] for event in events if event["type"] == "data"] == list(range(50))
    assert contents((await other.read()).messages)[1:] == ["whole", text_of(events[at[1] :])]
    assert text_of(events) == "dropped" + "".join(f"{number} " for number in range(50)) + "end"


async def test_a_cleared_session_ends_its_turn_as_lost(own: Session, other: Session) -> None:
    async def run() -> None:
        async with own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            await other.clear()
            await turn.write("is")
            await asyncio.Event().wait()

    with pytest.raises(TurnLost):
        await asyncio.wait_for(run(), 10)
    assert (await other.read()).messages == []
    assert await other.turn_of("t1") is None


async def test_a_block_that_is_cancelled_keeps_its_text(own: Session) -> None:
    reached = asyncio.Event()

    async def run() -> None:
        async with own.turn(ASK, id="t1") as turn:
            await turn.write("Par")
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reply = (await own.read()).messages[-1]
    assert (reply.content, reply.metadata) == ("Par", {"incomplete": "cancelled"})


async def test_what_cannot_be_said_fails_the_turn(redis_server: Any, namespace: str) -> None:
    async def say(id: str, *said: Any) -> None:
        async with session.turn(ASK, id=id) as turn:
            for each in said:
                await turn.write(each)

    settings = Settings(max_turn_bytes=1024)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("user-42")
        with pytest.raises(TooLarge, match="max_turn_bytes"):
            await say("t1", "x" * 700, "y" * 700)
        known = await session.turn_of("t1")
        assert known is not None
        assert known.reply is not None
        assert (known.outcome, known.reply.content) == ("failed", "x" * 700)
        for event in ({"type": "unknown"}, {"type": "text"}, {"type": "data", "name": "x", "data": object()}, 7):
            with pytest.raises(InvalidMessage):
                await say(f"t-{event}", event)
        async with session.turn(ASK, id="t2") as turn:
            pass
        with pytest.raises(RuntimeError, match="ended"):
            await turn.write("late")


async def test_the_options_of_an_append_count_for_the_question(own: Session) -> None:
    await answer(own, "t1", "Paris")
    with pytest.raises(Conflict):
        async with own.turn(ASK, id="t2", expect=0):
            pytest.fail("not as expected")
    async with own.turn(ASK, id="t2", expect=2, merge={"x": 1}) as turn:
        assert turn.context.state.params == {"x": 1}
    with pytest.raises(ValueError, match="when_busy"):
        own.turn(ASK, id="t3", when_busy="later")  # type: ignore[arg-type]
    for wrong in ("", "x" * 257, 7):
        with pytest.raises(InvalidMessage):
            own.turn(ASK, id=wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage):
        own.turn(id="t3")


async def test_a_reply_has_calls_of_the_clients_tools_if_the_turn_is_done(own: Session) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    for turn_id, text, is_stopped in (("t1", "", False), ("t2", "Let me look.", False), ("t3", "Let me", True)):
        async with own.turn({"role": "user", "content": "hello"}, id=turn_id) as turn:
            if text:
                await turn.write(text)
            turn.tool_calls = calls
            if is_stopped:
                await own.stop("enough", turn=turn_id)
                await asyncio.sleep(60)
        known = await own.turn_of(turn_id)
        assert known is not None
        assert known.reply is not None
        expected = {"role": "assistant", "content": text or None}
        assert known.reply.to_openai() == (expected if is_stopped else expected | {"tool_calls": calls})
    told = await events_of(own, turn="t2")  # its log is gone
    assert [event["type"] for event in told] == ["text", "tool_call", "end"]
