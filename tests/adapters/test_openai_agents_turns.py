"""The session for the OpenAI Agents SDK within a turn: one run at a time writes, in any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import Agent, Runner, RunState, function_tool, set_tracing_disabled
from agents.testing import ScriptedModel, assistant_message, function_call

from redismem import Memory, TurnBusy, TurnKnown, TurnLost
from redismem.adapters import openai_agents

ASK = "Are you open on Sunday?"
QUESTION = {"content": ASK, "role": "user"}
paid: list[str] = []
set_tracing_disabled(True)


@function_tool(needs_approval=True)
async def pay(order: str) -> str:
    """Pay an order."""
    paid.append(order)
    return f"{order} is paid"


@pytest.fixture
async def sessions(redis_server: Any, namespace: str) -> AsyncIterator[list[Any]]:
    """One session, as two processes have it."""
    async with (
        Memory.connect(redis_server.url, namespace=namespace) as memory,
        Memory.connect(redis_server.url, namespace=namespace) as other,
    ):
        yield [openai_agents.Session("user-42", memory=each) for each in (memory, other)]


def agent_of(*answers: Any) -> Any:
    return Agent(name="shop", model=ScriptedModel(answers), tools=[pay])


async def ask(session: Any, agent: Any, id: str, question: str = ASK, **options: Any) -> Any:
    async with session.turn(question, id=id, **options):
        return await Runner.run(agent, question, session=session)


async def run_when(may_run: asyncio.Event, session: Any, agent: Any, id: str, question: Any) -> Any:
    async with session.turn(question, id=id):
        await may_run.wait()
        return await Runner.run(agent, question, session=session)


def texts(items: Any) -> list[str]:
    return [each["content"] if each["role"] == "user" else each["content"][0]["text"] for each in items]


async def test_of_two_runs_at_once_one_asks_the_model_and_a_known_id_asks_none(sessions: list[Any]) -> None:
    for number in range(10):
        agents = [agent_of([assistant_message(f"answer {number}")]) for _ in sessions]
        may_run = asyncio.Event()
        runs = [
            asyncio.create_task(run_when(may_run, *each, f"{number}-{at}", ASK))
            for at, each in enumerate(zip(sessions, agents, strict=True))
        ]
        await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)  # one is refused
        may_run.set()
        results = await asyncio.gather(*runs, return_exceptions=True)
        assert sorted(type(each).__name__ for each in results) == ["RunResult", "TurnBusy"]
        assert sum(len(each.model.calls) for each in agents) == 1
        winner = next(at for at in (0, 1) if agents[at].model.calls)
        assert texts(agents[winner].model.first_call.input) == texts(await sessions[0].get_items())[:-1]
        silent = agent_of()
        with pytest.raises(TurnKnown) as known:
            await ask(sessions[1 - winner], silent, f"{number}-{winner}")
        assert (known.value.how, known.value.outcome) == ("ended", "done")
    expected = [text for number in range(10) for text in (ASK, f"answer {number}")]
    assert texts(await sessions[1].get_items()) == expected
    assert texts(await sessions[1].get_items(3)) == expected[-3:]


async def test_a_second_run_waits_and_sees_what_the_first_has_said(sessions: list[Any]) -> None:
    second = agent_of([assistant_message("second")])
    async with sessions[0].turn(ASK, id="1"):
        assert await sessions[0].get_items() == await sessions[0].get_items(1) == []
        assert await sessions[1].get_items() == [QUESTION]
        waiting = asyncio.create_task(ask(sessions[1], second, "2", "And on Monday?", when_busy="wait"))
        await Runner.run(agent_of([assistant_message("first")]), ASK, session=sessions[0])
        assert texts(await sessions[0].get_items(1)) == ["first"]
    await waiting
    assert texts(second.model.first_call.input) == [ASK, "first", "And on Monday?"]


async def test_a_run_whose_model_failed_runs_again_under_its_id(sessions: list[Any]) -> None:
    with pytest.raises(ZeroDivisionError):
        await ask(sessions[0], agent_of(ZeroDivisionError()), "1")
    await ask(sessions[1], agent_of([assistant_message("Yes.")]), "1")
    assert texts(await sessions[0].get_items()) == [ASK, "Yes."]


async def test_what_a_run_adds_after_it_lost_its_turn_is_refused(sessions: list[Any]) -> None:
    async def lose() -> None:
        async with sessions[0].turn(ASK, id="1"):
            await sessions[1].clear_session()
            await sessions[0].add_items([QUESTION, {"role": "assistant", "content": "late"}])

    with pytest.raises(TurnLost):
        await lose()
    assert await sessions[1].get_items() == []
    late = asyncio.Event()

    async def add_late() -> None:
        await late.wait()
        await sessions[0].add_items([{"role": "assistant", "content": "late"}])

    async with sessions[0].turn(ASK, id="2"):
        task = asyncio.create_task(add_late())
    late.set()
    with pytest.raises(RuntimeError, match="ended"):
        await task
    assert await sessions[1].get_items() == [QUESTION]


async def test_of_two_approvals_at_once_one_pays(sessions: list[Any]) -> None:
    calls = [function_call("pay", {"order": "o1"}, call_id="c1")]
    result = await Runner.run(agent_of(calls), "Pay o1.", session=sessions[0])
    paused = result.to_state().to_json()
    may_run, runs = asyncio.Event(), []
    for session in sessions:
        agent = agent_of([assistant_message("Paid.")])
        state = await RunState.from_json(agent, paused)
        for waiting in state.get_interruptions():
            state.approve(waiting)
        runs.append(asyncio.create_task(run_when(may_run, session, agent, "approve-c1", state)))
    await asyncio.wait(runs, return_when=asyncio.FIRST_COMPLETED)
    may_run.set()
    results = await asyncio.gather(*runs, return_exceptions=True)
    assert sorted(type(each).__name__ for each in results) == ["RunResult", "TurnKnown"]
    assert paid == ["o1"]
    kinds = [each.get("type") or each["role"] for each in await sessions[0].get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]


async def test_a_turn_in_a_turn_and_another_run_of_the_session_are_refused(sessions: list[Any]) -> None:
    async with sessions[0].turn(ASK, id="1"):
        with pytest.raises(TurnBusy):
            await ask(sessions[0], agent_of(), "2")
