"""The agent of Pydantic AI: each answer by another process, one of which is killed, and a fork."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, start_example
from support.proxy import Proxy

from redismem import Memory
from redismem.adapters.pydantic_ai import ConversationStore

NAME = "pydantic_ai_fork.py"
OSLO = "How is the weather in Oslo?"


async def test_a_killed_process_leaves_no_half_turn_and_a_fork_goes_its_own_way(places: Places, proxy: Proxy) -> None:
    proxy.break_next("freeze", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "trip", OSLO, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count)  # the turn is stored, and the process waits for the reply
        running.kill()
    asked = [
        (("trip", "And in Lima?"), "Question 2: 22 degrees in Lima."),
        (("south", "And in Rome?", "trip"), "Question 3: 19 degrees in Rome."),
    ]
    for words, answer in asked:
        with start_example(NAME, places, *words) as running:
            await until(lambda: running.poll() is not None)
            assert answer in running.communicate()[0]
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        records = await ConversationStore(memory=memory).list_conversations()
    assert [(each.conversation_id, each.forked_from) for each in records] == [("south", "trip"), ("trip", None)]
