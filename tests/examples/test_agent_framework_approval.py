"""The agent that waits for an approval: each step in another process, one of which is killed between two writes."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.agent_framework import HistoryProvider

NAME = "agent_framework_approval.py"
QUESTION = "Refund 20 and 35 euros"


async def test_an_approval_arrives_in_another_process_and_a_killed_turn_makes_no_refund(
    places: Places, proxy: Proxy
) -> None:
    proxy.break_next("swallow", 1, to=b"param:agent_session")
    with start_example(NAME, places, "order-7", QUESTION, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)  # the history is stored, and what the agent waits for is not
        running.kill()
    for text, answer in ((QUESTION, "May I? "), ("yes", "Done: refunded 20, refunded 35")):
        assert answer in await run_example_here(NAME, places, "order-7", text)
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        history = await HistoryProvider(memory=memory).get_messages("order-7")
    contents = [content.type for message in history for content in message.contents]
    # The question was asked twice, as each request for an approval has an id of its own. Each refund was made once.
    assert [message.text for message in history].count(QUESTION) == 2
    assert contents.count("function_result") == 2
    assert history[-1].text == "Done: refunded 20, refunded 35"
