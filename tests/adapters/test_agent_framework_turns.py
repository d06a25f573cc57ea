"""Agent Framework's history provider within a turn: one run at a time writes, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Content, Message

from examples.agent_framework_approval import ScriptedClient, refund
from redismem import Memory, TurnKnown, TurnLost
from redismem.adapters.agent_framework import HistoryProvider

ASK = "Are you open on Sunday?"


class Echo(BaseChatClient[Any]):
    """Answers with all that it was sent."""

    asked: int = 0

    async def _inner_get_response(self, *, messages: Any, **_: Any) -> ChatResponse:
        self.asked += 1
        return ChatResponse(messages=[Message("assistant", ["|".join(message.text for message in messages)])])


@pytest.fixture
async def histories(redis_server: Any, namespace: str) -> AsyncIterator[list[HistoryProvider]]:
    """The provider of two processes."""
    async with (
        Memory.connect(redis_server.url, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as other,
    ):
        yield [HistoryProvider(memory=each) for each in (memory, other)]


async def run(
    history: HistoryProvider, client: Any, id: str, question: Any = ASK, may_run: Any = None, session: Any = None
) -> Any:
    agent = Agent(client, context_providers=[history], tools=[refund])
    async with history.turn("42", question, id=id):
        if may_run is not None:
            await may_run.wait()
        return await agent.run(question, session=session or AgentSession(session_id="42"))


async def compete(histories: Any, clients: Any, ids: Any, question: Any = ASK, state: Any = None) -> list[Any]:
    """Begin two runs at once, and let the one that began go on once the other one was refused."""
    may_run = asyncio.Event()
    session = AgentSession(session_id="42").to_dict() if state is None else state
    runs = [
        asyncio.create_task(run(*each, question, may_run, AgentSession.from_dict(session)))
        for each in zip(histories, clients, ids, strict=True)
    ]
    await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    may_run.set()
    return await asyncio.gather(*runs, return_exceptions=True)


async def texts(history: HistoryProvider) -> list[str]:
    return [message.text for message in await history.get_messages("42")]


async def test_of_two_runs_at_once_one_asks_the_model_and_a_known_id_asks_none(histories: list[Any]) -> None:
    expected: list[str] = []
    for number in range(10):
        clients = [Echo(), Echo()]
        results = await compete(histories, clients, [f"{number}-a", f"{number}-b"])
        assert sorted(type(each).__name__ for each in results) == ["AgentResponse", "TurnBusy"]
        assert sum(client.asked for client in clients) == 1
        expected += [ASK, "|".join([*expected, ASK])]
        assert await texts(histories[1]) == expected
        with pytest.raises(TurnKnown):
            await run(histories[1], Echo(), f"{number}-{'ab'[clients[1].asked]}")


async def test_of_two_approvals_at_once_one_pays(histories: list[Any]) -> None:
    session = AgentSession(session_id="42")
    response = await run(histories[0], ScriptedClient(), "ask", "Refund 20 euros", session=session)
    yes = [Message("user", [each.to_function_approval_response(True) for each in response.user_input_requests])]
    results = await compete(histories, [ScriptedClient(), ScriptedClient()], ["approve"] * 2, yes, session.to_dict())
    assert sorted(type(each).__name__ for each in results) == ["AgentResponse", "TurnKnown"]
    stored = [content.type for message in await histories[1].get_messages("42") for content in message.contents]
    assert stored.count("function_result") == 1
    assert stored.count("function_approval_response") <= 1
    assert stored[-1] == "text"


async def test_what_a_run_saves_after_it_lost_its_turn_is_refused(histories: list[Any]) -> None:
    async def lose() -> None:
        async with histories[0].turn("42", ASK, id="1"):
            assert await texts(histories[0]) == []
            assert await texts(histories[1]) == [ASK]
            await histories[1]._opened.open("42").clear()
            await histories[0].save_messages("42", [Message("user", [ASK]), Message("assistant", ["late"])])

    with pytest.raises(TurnLost):
        await lose()
    assert await texts(histories[1]) == []


async def test_other_sessions_are_written_in_the_block_as_without_it(histories: list[Any]) -> None:
    async with histories[0].turn("42", [Message("user", [Content.from_text(ASK)])], id="1") as turn:
        await histories[0].save_messages("43", [Message("user", ["beside"])])
        await histories[0].save_messages("42", [Message("user", [ASK])])
        assert await texts(histories[0]) == [ASK]
    assert turn.outcome == "done"
    assert [message.text for message in await histories[1].get_messages("43")] == ["beside"]
