"""The agent of the Claude Agent SDK: each answer by another process, one of which is killed."""

from __future__ import annotations

from pathlib import Path

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

NAME = "claude_agent"
QUESTION = "How is the weather in Oslo and Rome?"


async def test_a_session_is_resumed_where_its_files_are_not(places: Places, proxy: Proxy, tmp_path: Path) -> None:
    proxy.break_next("swallow", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "anna", QUESTION, REDISMEM_URL=proxy.url, HOME=str(tmp_path)) as running:
        await until(lambda: proxy.broken_count, START_S)  # nothing of the turn is stored
        running.kill()
    for number, (question, answer) in enumerate(
        (
            (QUESTION, "Question 1: 4 degrees in Oslo, 19 degrees in Rome."),
            ("Lima?", "Question 2: 22 degrees in Lima."),
        )
    ):
        home = str(tmp_path / str(number))
        assert answer in await run_example_here(f"{NAME}.agent", places, "anna", question, HOME=home)
