"""The agent of Google ADK that recalls other sessions: each answer by another process, one of which is killed."""

from __future__ import annotations

import pytest
from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.google_adk import MemoryService

NAME = "google_adk_memory.py"
TOLD = "The hinge of my left door broke."
QUESTION = "Which door has the broken hinge?"


@pytest.mark.nightly
async def test_each_session_recalls_the_users_others_and_nobody_elses(places: Places, proxy: Proxy) -> None:
    proxy.break_next("swallow", 1, to=b"\xa6author")
    with start_example(NAME, places, "anna", "monday", TOLD, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.broken_count, START_S)  # the session is stored, and its memory is not
        running.kill()
    assert await run_example_here(NAME, places, "bob", "monday", QUESTION) == "You told me nothing of it yet.\n"
    assert "nothing" in await run_example_here(NAME, places, "anna", "monday", "Thank you.")  # adds what was not added
    assert TOLD in await run_example_here(NAME, places, "anna", "tuesday", QUESTION)
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        found = await MemoryService(memory=memory).search_memory(app_name="support", user_id="anna", query="hinge")
        texts = [str(entry.content) for entry in found.memories]
        assert sorted(texts) == sorted({*texts})
        await memory.forget(owner="anna")
    assert "nothing" in await run_example_here(NAME, places, "anna", "friday", QUESTION)
