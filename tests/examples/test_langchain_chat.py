"""The agent loop: parallel tools, an approval given to another process, and a kill -9 between two steps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from support.commands import wait_for_line
from support.example_processes import ROOT, Places, run_example_here

from redismem import Memory
from redismem.adapters.langchain import ChatMessageHistory

NAME = "langchain_chat.py"
STOPS_BEFORE_A_STEP = """
import asyncio, time
from examples import langchain_chat as chat

async def stop(memory, user, step, before, store=chat.store):
    if len(before) == STEPS:
        print("between", flush=True)
        time.sleep(600)
    await store(memory, user, step, before)

chat.store = stop
asyncio.run(chat.main("anna", "Where are my orders A-1 and A-2?"))
"""


async def read(places: Places) -> list[BaseMessage]:
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        return await ChatMessageHistory("anna", memory).aget_messages()


def kill_before(places: Places, step_count: int) -> None:
    command = [sys.executable, "-c", STOPS_BEFORE_A_STEP.replace("STEPS", str(step_count))]
    environ = os.environ | places.environment
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as killed:
        wait_for_line(killed.stdout, "between")
        killed.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("step_count", [2, pytest.param(4, marks=pytest.mark.nightly)])
async def test_a_turn_goes_on_in_another_process_and_outlives_a_kill(places: Places, step_count: int) -> None:
    await asyncio.to_thread(kill_before, places, step_count)
    before = await read(places)
    assert len(before) == step_count
    answer = await run_example_here(NAME, places, "anna", "Where are my orders A-1 and A-2?")
    assert answer == "A-1 is on its way, A-2 is on its way\n"
    for _ in range(2):
        printed = await run_example_here(NAME, places, "anna", "Refund A-1 and A-2, please.")
        assert printed == "Waiting for approval: say approve, to any process.\n"
    assert await run_example_here(NAME, places, "anna", "approve") == "A-1 is refunded, A-2 is refunded\n"
    messages = await read(places)
    assert messages[:step_count] == before
    calls = Counter(call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls)
    assert calls == Counter(each.tool_call_id for each in messages if isinstance(each, ToolMessage))
    assert set(calls.values()) == {1}
    assert (len(calls), len(messages)) == (4, 10)
