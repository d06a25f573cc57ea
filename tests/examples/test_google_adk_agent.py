"""The agent of Google ADK: each answer by another process, one of which is killed."""

from __future__ import annotations

from support.checks import until
from support.example_processes import Places, run_example_here, start_example
from support.proxy import Proxy
from support.waiting import START_S

from redismem import Memory
from redismem.adapters.google_adk import SessionService
from redismem.inspection.loading import load_scripts

NAME = "google_adk_agent.py"
QUESTION = "How is the weather in Oslo and Rome?"


async def test_a_killed_process_loses_no_event_and_a_user_is_known_in_every_session(
    places: Places, proxy: Proxy
) -> None:
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        await load_scripts(memory.store)  # else the lost reply could be that the server does not know the script
    proxy.break_next("freeze", 1, to=b"4 degrees in Oslo")
    with start_example(NAME, places, "anna", "monday", QUESTION, REDISMEM_URL=proxy.url) as running:
        await until(lambda: proxy.frozen_count, START_S)  # the tools were called, and nothing more is stored
        running.kill()
    answered = await run_example_here(NAME, places, "anna", "tuesday", "And in Lima?")
    assert "Question 1: 22 degrees in Lima. Cities so far: 3." in answered
    async with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        service = SessionService(memory=memory)
        stored = await service.get_session(app_name="weather", user_id="anna", session_id="monday")
    assert stored is not None
    assert [event.author for event in stored.events] == ["user", "weather", "weather"]
