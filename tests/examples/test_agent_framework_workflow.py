"""The workflow that waits for an approval: each step in another process, one of which is killed."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.agent_framework import CheckpointStorage

NAME = "agent_framework_workflow.py"
QUESTION = "Refund 20 and 35 euros"


async def test_an_approval_survives_the_process_that_took_it(places: Places, proxy: Proxy) -> None:
    assert await run_example_here(NAME, places, "order-7", QUESTION) == "May I? refund 20, refund 35\n"
    proxy.break_next("freeze", 1, to=b"agent_checkpoint")
    with start_example(NAME, places, "order-7", "yes", REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.frozen_count, START_S)  # it took the answers, and stored no further step
        running.kill()
    assert await run_example_here(NAME, places, "order-8", "yes") == "Nothing was refunded.\n"
    assert await run_example_here(NAME, places, "order-7", "yes") == "refunded 20, refunded 35\n"
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        checkpoints = await CheckpointStorage("order-7", memory=memory).list_checkpoints(workflow_name="refund")
    earlier = {checkpoint.checkpoint_id for checkpoint in checkpoints}
    assert {checkpoint.previous_checkpoint_id for checkpoint in checkpoints} <= earlier | {None}
    assert not checkpoints[-1].pending_request_info_events
