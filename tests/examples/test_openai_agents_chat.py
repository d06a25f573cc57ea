"""The agent: parallel tools, an approval given to another process, and a kill -9 between two steps."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

from support.commands import wait_for_line
from support.example_processes import ROOT, Places, run_example_here

from redismem import Memory
from redismem.adapters.openai_agents import Session

NAME = "openai_agents_chat.py"
STOPS_BETWEEN_ITS_STEPS = """
import asyncio, time
from examples import openai_agents_chat as chat

def answer(call, model=chat.answer):
    if "output" in call.input[-1]:
        print("between", flush=True)
        time.sleep(600)
    return model(call)

chat.answer = answer
asyncio.run(chat.main("anna", "Where are my orders A-1 and A-2?"))
"""


async def read_items(places: Places) -> list[Any]:
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        return list(await Session("anna", memory=memory).get_items())


def kill_between_two_steps(places: Places) -> None:
    command = [sys.executable, "-c", STOPS_BETWEEN_ITS_STEPS]
    environ = os.environ | places.environment
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as killed:
        wait_for_line(killed.stdout, "between")
        killed.send_signal(signal.SIGKILL)


async def test_a_run_goes_on_in_another_process_and_outlives_a_kill(places: Places) -> None:
    await asyncio.to_thread(kill_between_two_steps, places)
    before = await read_items(places)
    assert [item.get("type", "question") for item in before] == [
        "question",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
    ]
    waiting = await run_example_here(NAME, places, "anna", "Refund A-1 and A-2, please.")
    assert waiting == "Waiting for approval: say approve, to any process.\n"
    assert await run_example_here(NAME, places, "anna", "approve") == "A-1 is refunded, A-2 is refunded\n"
    items = await read_items(places)
    assert items[: len(before)] == before
    calls = Counter(item["call_id"] for item in items if item.get("type") == "function_call")
    results = Counter(item["call_id"] for item in items if item.get("type") == "function_call_output")
    assert calls.keys() == results.keys()
    assert set(calls.values()) == set(results.values()) == {1}
    assert len(calls) == 4
