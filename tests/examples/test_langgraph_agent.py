"""The agent with threads of one person: each step in another process, one of which is killed between two writes."""

from __future__ import annotations

import json

import pytest
from langchain_core.runnables import RunnableConfig
from support.checks import until
from support.commands import wait_for_exit
from support.example_processes import Places, run_example_here, start_example
from support.provider_answers import call_message
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory, OwnerMismatch
from redismem.adapters.langgraph import RedismemSaver

NAME = "langgraph_agent.py"
QUESTION = "Refund 20 and 35 euros"
CALLS = call_message(("call-1", "refund", {"euros": 20}), ("call-2", "refund", {"euros": 35}))
DONE = {"role": "assistant", "content": "Both are refunded, by voucher ZX-481."}


@pytest.mark.parametrize("part", [pytest.param(b"__interrupt__", marks=pytest.mark.nightly), b"35 euros are refunded"])
async def test_a_killed_process_loses_no_step_and_repeats_no_other_task(
    places: Places, proxy: Proxy, part: bytes
) -> None:
    proxy.break_next("swallow", 1, to=part)
    killed = QUESTION if part == b"__interrupt__" else "yes"
    places.provider.script.extend([CALLS, CALLS, DONE] if killed == QUESTION else [CALLS, DONE])
    texts = [QUESTION, QUESTION, "yes"] if killed == QUESTION else [QUESTION, "yes", "yes"]
    environment = {"REDISMEM_URL": proxy.url, "REDISMEM_LIVE_LEASE_S": "1"}
    answers = []
    for text in texts:
        if text != killed or proxy.broken_count:
            answers.append(await run_example_here(NAME, places, "anna", "order-7", text, **environment))
            continue
        with start_example(NAME, places, "anna", "order-7", text, **environment) as running:
            await until(lambda: running.poll() is not None or proxy.broken_count, START_S)
            assert running.poll() is None, wait_for_exit(running).out
            running.kill()  # the checkpoint is stored, and a task's write is not
    assert answers == ["Refund 20 euros? Refund 35 euros?\n", f"{DONE['content']}\n"]
    results = [message["content"] for message in places.provider.bodies[-1]["messages"][-2:]]
    assert results == ["20 euros are refunded", "35 euros are refunded"]
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        config: RunnableConfig = {"configurable": {"thread_id": "order-7", "user": "anna"}}
        saved = await RedismemSaver(memory, owner_key="user").aget_tuple(config)
        assert saved is not None
        assert set(saved.checkpoint["channel_values"]["results"].values()) == set(results)


async def test_another_thread_recalls_what_was_said_and_another_person_does_not(places: Places) -> None:
    provider = places.provider
    provider.script.extend([{"role": "assistant", "content": "Yes."} for _ in range(9)])

    async def say(user: str, thread: str, text: str) -> str:
        return await run_example_here(NAME, places, user, thread, text)

    async def is_known(user: str, thread: str) -> bool:
        assert await say(user, thread, "Which voucher did I get?") == "Yes.\n"
        return "ZX-481" in json.dumps(provider.bodies[-1])

    await say("anna", "order-7", "My voucher is ZX-481.")
    assert await is_known("anna", "order-8")
    assert not await is_known("ben", "order-9")
    with pytest.raises(OwnerMismatch):
        await say("ben", "order-7", "Which voucher did I get?")
    assert sorted((await say("anna", "all", "/threads")).splitlines()) == [
        "order-7: My voucher is ZX-481.",
        "order-8: Which voucher did I get?",
    ]
    assert (await say("anna", "all", "/forget")).startswith("Forgot ")
    assert await say("anna", "all", "/threads") == ""
    assert not await is_known("anna", "order-8")
    assert (await say("ben", "all", "/threads")).startswith("order-9")
