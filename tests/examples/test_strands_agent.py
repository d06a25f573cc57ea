"""The agent of Strands: each answer by another process, one of which is killed."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

NAME = "strands_agent.py"
QUESTION = "How is the weather in Oslo and Rome?"


async def test_a_killed_process_leaves_the_last_snapshot_and_any_process_goes_on(places: Places, proxy: Proxy) -> None:
    proxy.break_next("swallow", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "anna", QUESTION, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)  # nothing of the turn is stored
        running.kill()
    for question, answer in (
        (QUESTION, "Question 1: 4 degrees in Oslo, 19 degrees in Rome."),
        ("Lima?", "Question 2: 22 degrees in Lima."),
    ):
        assert answer in await run_example_here(NAME, places, "anna", question)
