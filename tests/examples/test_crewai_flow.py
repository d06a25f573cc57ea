"""The flow of CrewAI that waits for an approval: each step in another process, one of which is killed."""

from __future__ import annotations

import pytest

pytest.importorskip("crewai")

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

NAME = "crewai_flow.py"
QUESTION = "Refund 20 and 35 euros"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_an_approval_survives_the_process_that_took_it(places: Places, proxy: Proxy) -> None:
    assert "May I? refund 20, refund 35\n" in await run_example_here(NAME, places, "order-7", QUESTION)
    proxy.break_next("swallow", 1, to=b"crewai_flow:order-7")
    with start_example(NAME, places, "order-7", "yes", REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)
        running.kill()
    assert "refunded 20, refunded 35\n" in await run_example_here(NAME, places, "order-7", "yes")
