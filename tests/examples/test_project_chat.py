"""The team's assistant: a decision of one chat is in the prompt of another, in another process."""

from __future__ import annotations

import pytest
from support.commands import wait_for_exit
from support.example_processes import Places, start_example
from support.provider_answers import call_message

from redismem.blocking import Memory

DECISION = {"title": "Use Redis", "rationale": "it is fast"}


@pytest.mark.nightly
def test_a_decision_of_one_chat_is_known_in_another(places: Places) -> None:
    provider = places.provider
    calls = call_message(
        ("c1", "record_decision", DECISION),
        ("c2", "add_task", {"title": "Move the data", "assignee": "Ada"}),
        ("c3", "add_task", {"name": "no title"}),
    )
    said = [{"role": "assistant", "content": text} for text in ("Noted.", "You decided on Redis.")]
    provider.script.extend([calls, said[0], call_message(("c4", "record_decision", DECISION)), said[1]])
    with start_example("project_chat.py", places, "apollo", "anna") as chat:
        assert wait_for_exit(chat, "We use Redis. Ada moves the data.\n\n").out == "Noted.\n"
    with start_example("project_chat.py", places, "apollo", "ben") as chat:
        assert wait_for_exit(chat, "What did we decide?\n\n").out == "You decided on Redis.\n"

    results = [each["content"] for each in provider.bodies[1]["messages"] if each["role"] == "tool"]
    assert [result.split(" ")[0] for result in results] == ["Recorded", "Added", "This"]
    background = provider.bodies[2]["messages"][1]["content"]
    assert "Use Redis" in background
    assert "Move the data" in background
    assert provider.bodies[3]["messages"][-1]["content"] == "This is already recorded."
    with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        apollo = memory.project("apollo")
        assert [decision.title for decision in apollo.decisions.active()] == ["Use Redis"]
        assert [(task.title, task.assignee) for task in apollo.tasks.active()] == [("Move the data", "Ada")]
