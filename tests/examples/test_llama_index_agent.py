"""The agent of LlamaIndex: each answer by another process, one of which is killed."""

from __future__ import annotations

import pytest
from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.llama_index import ChatStore

NAME = "llama_index_agent.py"
QUESTION = "How is the weather in Oslo and Rome?"


@pytest.mark.nightly
async def test_a_conversation_goes_on_in_another_process_and_a_killed_one_leaves_no_half_turn(
    places: Places, proxy: Proxy
) -> None:
    proxy.break_next("swallow", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "anna", QUESTION, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)  # the tools were called, and nothing of the answer is stored
        running.kill()
    for question, answer in (
        (QUESTION, "Question 2: 4 degrees in Oslo, 19 degrees in Rome."),
        ("Lima?", "Question 3:"),
    ):
        assert answer in await run_example_here(NAME, places, "anna", question)
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        stored = await ChatStore(memory=memory).get_messages("anna")
    turn = ["user", "assistant", "tool", "tool", "assistant"]
    assert [message.role.value for message in stored] == ["user", *turn, *turn[:3], "assistant"]
