"""The agent of LlamaIndex that waits for approvals: each step in another process, some of which are killed."""

from __future__ import annotations

import pytest
from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.llama_index import ChatStore

NAME = "llama_index_approval.py"
QUESTION = "Refund 20 and 35 euros"


@pytest.mark.parametrize("asks_twice", [False, pytest.param(True, marks=pytest.mark.nightly)])
async def test_approvals_arrive_in_another_process_and_killed_ones_answer_once(
    places: Places, proxy: Proxy, asks_twice: bool
) -> None:
    # The two tools run at once, so either may ask and end first.
    for text, killed, expected in (
        *([(QUESTION, True, ())] if asks_twice else []),  # the question is stored, and the agent's snapshot is not
        (QUESTION, False, ("May I? ", "20", "35")),
        ("yes", True, ()),  # the answer is stored, and the snapshot is still there
        ("yes", False, ("Done: ", "refunded 20", "refunded 35")),
        ("Refund 7 euros", False, ("May I? 7",)),
        ("no", False, ("Done: kept 7",)),
    ):
        if killed:
            proxy.forget()
            proxy.break_next("swallow", 1, to=b"param:paused")
            with start_example(NAME, places, "order-7", text, REDISMEM_URL=proxy.url) as running:
                await until(lambda: proxy.broken_count, START_S)
                running.kill()
        else:
            printed = await run_example_here(NAME, places, "order-7", text)
            assert [part for part in expected if part not in printed] == []
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        stored = await ChatStore(memory=memory).get_messages("order-7")
        state = await memory.session("llama_index:order-7").state()
    turn = ["user", "assistant", "tool", "tool", "assistant"]
    assert [message.role.value for message in stored] == [*["user"] * asks_twice, *turn, *turn[:3], "assistant"]
    results = [message.content for message in stored if message.role == "tool"]
    assert (sorted(results[:2], key=str), results[2:]) == (["refunded 20", "refunded 35"], ["kept 7"])
    assert (state.params, state.waiting_for_param) == ({}, None)
