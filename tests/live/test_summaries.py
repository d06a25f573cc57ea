"""Turns beside summaries: a summary in mid-turn, and turns whose messages have left the window."""

from __future__ import annotations

import pytest
from support.conversations import user_message
from support.redis_server import RedisServer
from support.told import answer, events_of, text_of
from support.writers import Echo

from redismem import IdReused, Memory, Settings, TurnKnown
from redismem.workers.summaries import Worker


async def test_a_summary_in_mid_turn_leaves_the_turn_as_it_is(redis_server: RedisServer, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        session, worker = memory.session("user-42"), Worker(memory.store, Echo())
        await session.append(*[user_message(number) for number in range(20)])
        async with session.turn(user_message("now?"), id="t1") as turn:
            await turn.write("Now ")
            await worker.drain()
            assert (await session.read()).summaries
            await turn.append({"role": "assistant", "content": "a step"})
            await worker.drain()
            await turn.write("and then.")
        assert (turn.outcome, turn.reply_seq) == ("done", 23)
        context = await session.read()
        assert [message.content for message in context.messages[-3:]] == ["now?", "a step", "and then."]
        assert context.total_messages == 23


async def test_each_of_many_turns_has_its_own_answer_after_summaries(redis_server: RedisServer, namespace: str) -> None:
    async with Memory.connect(redis_server.url, namespace=namespace) as memory:
        session, worker = memory.session("user-42"), Worker(memory.store, Echo())
        for number in range(100):
            await answer(session, f"t{number}", f"re {number}", question=user_message(number))
            if number % 10 == 9:
                await worker.drain()
        assert (await session.read()).first_seq > 150
        for number in (0, 1, 42, 98, 99):
            known = await session.turn_of(f"t{number}")
            assert known is not None
            assert known.reply is not None
            assert (known.reply.content, known.first_seq) == (f"re {number}", 2 * number + 1)
            with pytest.raises(TurnKnown):
                await answer(session, f"t{number}", "again", question=user_message(number))
            with pytest.raises(IdReused):
                await answer(session, f"t{number}", "again", question=user_message("another"))
            assert text_of(await events_of(session, turn=f"t{number}")) == f"re {number}"


async def test_without_originals_the_newest_turns_are_known(redis_server: RedisServer, namespace: str) -> None:
    settings = Settings(keep_originals=False)
    async with Memory.connect(redis_server.url, namespace=namespace, settings=settings) as memory:
        session, worker = memory.session("user-42"), Worker(memory.store, Echo())
        for number in range(100):
            await answer(session, f"t{number}", f"re {number}", question=user_message(number))
        await worker.drain()
        known = [await session.turn_of(f"t{number}") for number in range(100)]
        assert all(known[36:])
        assert not known[0]
        assert known[99] is not None
        assert known[99].reply is not None
        assert known[40] is not None
        assert known[40].reply is None, "a summary covers it"
