"""The agent that waits for an approval: each step in another process, some of which are killed between two writes."""

from __future__ import annotations

import pytest
from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.langgraph import RedismemSaver, RedismemStore

NAME = "langgraph_agent.py"
QUESTION = "Refund 20 and 35 euros"


@pytest.mark.parametrize("part", [pytest.param(b"__interrupt__", marks=pytest.mark.nightly), b"refunded 35"])
async def test_a_killed_process_loses_no_step_and_repeats_no_other_task(
    places: Places, proxy: Proxy, part: bytes
) -> None:
    proxy.break_next("swallow", 1, to=part)
    killed = QUESTION if part == b"__interrupt__" else "yes"
    texts = [QUESTION, QUESTION, "yes"] if killed == QUESTION else [QUESTION, "yes", "yes"]
    answers = []
    for text in texts:
        if text != killed or proxy.broken_count:
            answers.append(await run_example_here(NAME, places, "order-7", text, REDISMEM_URL=proxy.url))
            continue
        with start_example(NAME, places, "order-7", text, REDISMEM_URL=proxy.url) as running:
            await until(lambda: running.poll() is not None or proxy.broken_count, START_S)
            if running.poll() is None:
                running.kill()  # the checkpoint is stored, and a task's write is not
            answers.append(running.communicate()[0])
    assert answers[-1] == "Done: refunded 20, refunded 35\n"
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        saved = await RedismemSaver(memory).aget_tuple({"configurable": {"thread_id": "order-7"}})
        item = await RedismemStore(memory).aget(("orders",), "order-7")
    assert saved is not None
    assert item is not None
    assert saved.checkpoint["channel_values"]["done"] == item.value["done"] == ["refunded 20", "refunded 35"]
