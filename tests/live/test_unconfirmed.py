"""A turn of which too few replicas have the question, or the reply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.conversations import contents, user_message
from support.replicated import Replicated
from support.stores import LONG_DEADLINES

from redismem import Memory, Unconfirmed
from redismem.live.turn import Turn

ASK = user_message("What is the capital of France?")


@pytest.fixture(scope="module")
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicated]:
    servers = Replicated(tmp_path_factory.mktemp("replicated"))
    yield servers
    servers.stop()


async def answer(turn: Turn) -> None:
    async with turn:
        await turn.write("Paris")
        turn.finish(merge={"x": 1})


async def test_a_turn_that_is_not_confirmed_is_not_left_running(replicated: Replicated, namespace: str) -> None:
    await replicated.wait_until_ready()
    settings = LONG_DEADLINES.model_copy(update={"shards": 2, "confirm": 2, "confirm_timeout_s": 0.05})
    async with Memory.connect(replicated.url, namespace=namespace, settings=settings) as memory:
        session = memory.session("s")
        with replicated.stop_replicas(1):
            with pytest.raises(Unconfirmed):
                await answer(session.turn(ASK, id="t1"))
            known = await session.turn_of("t1")
            assert known is not None
            assert (known.how, known.outcome) == ("ended", "failed")
            turn = session.turn(ASK, id="t1", confirm=0)
            with pytest.raises(Unconfirmed):
                await answer(turn)
            assert (turn.outcome, turn.reply_seq) == ("done", 2)
        context = await session.read()
        assert (contents(context.messages), context.state.params) == ([ASK["content"], "Paris"], {"x": 1})
        assert [event["type"] async for _, event in session.follow(turn="t1")] == ["message", "text", "message", "end"]
