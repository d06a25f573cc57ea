"""The A2A agent: each message is taken by another replica, one of which is killed."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

NAME = "a2a_agent.py"
REQUEST = "Refund 20 euros"


async def test_a_task_goes_on_in_another_replica_and_a_killed_one_leaves_no_half(places: Places, proxy: Proxy) -> None:
    assert "Approve: Refund 20 euros?" in await run_example_here(NAME, places, "anna", REQUEST)
    proxy.break_next("swallow", 1, to=b"Refund 20 euros: done")
    with start_example(NAME, places, "anna", "yes", REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)  # the end of the task is not stored
        running.kill()
    assert "no task waits" in await run_example_here(NAME, places, "bo", "yes")
    assert "Refund 20 euros: done." in await run_example_here(NAME, places, "anna", "yes")
    assert "no task waits" in await run_example_here(NAME, places, "anna", "yes")
