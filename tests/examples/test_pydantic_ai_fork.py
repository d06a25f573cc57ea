"""The agent of Pydantic AI: each answer by another process, one of which is killed, and a fork."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.pydantic_ai import ConversationStore
from redismem.inspection.loading import load_scripts

NAME = "pydantic_ai_fork.py"
OSLO = "How is the weather in Oslo?"


async def test_a_killed_process_leaves_no_half_turn_and_a_fork_goes_its_own_way(places: Places, proxy: Proxy) -> None:
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        await load_scripts(memory.store)  # else the lost reply could be that the server does not know the script
    proxy.break_next("freeze", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "trip", OSLO, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.frozen_count, START_S)  # the turn is stored, and the process waits for the reply
        running.kill()
    asked = [
        (("trip", "And in Lima?"), "Question 2: 22 degrees in Lima."),
        (("south", "And in Rome?", "trip"), "Question 3: 19 degrees in Rome."),
    ]
    for words, answer in asked:
        assert answer in await run_example_here(NAME, places, *words)
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        records = await ConversationStore(memory=memory).list_conversations()
    assert [(each.conversation_id, each.forked_from) for each in records] == [("south", "trip"), ("trip", None)]
