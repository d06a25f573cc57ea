"""An agent whose tools need approval: the answer arrives in another process, and a killed one refunds nothing twice."""

from __future__ import annotations

from pathlib import Path

from support.commands import wait_for_exit
from support.example_processes import Places, run_example_here, start_example
from support.provider_answers import call_message

from redismem.blocking import Memory

CALLS = call_message(("call-1", "refund", {"euros": 20}), ("call-2", "refund", {"euros": 35}))
DONE = {"role": "assistant", "content": "Both are refunded."}


async def test_an_approval_arrives_in_another_process_also_after_one_was_killed(places: Places, tmp_path: Path) -> None:
    provider = places.provider
    provider.script.append(CALLS)
    asked = await run_example_here("approval_agent.py", places, "order-7", "Refund 20 and 35 euros")
    assert asked == "Shall I refund 20 euros and 35 euros?\n"
    provider.modes.append("silent")
    with start_example("approval_agent.py", places, "order-7", "yes", REDISMEM_LIVE_LEASE_S="0.5") as killed:
        provider.wait_for_asked(2)  # the refunds are made and stored, and the model is silent
        killed.kill()
        wait_for_exit(killed)
    with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        session = memory.session("order-7")
        assert [message.role for message in session.messages()][2:] == ["user", "assistant", "tool", "tool"]
        assert session.waiting() is None
        provider.script.append(DONE)
        told = await run_example_here(
            "approval_agent.py", places, "order-7", "Is it done?", REDISMEM_LIVE_LEASE_S="0.5"
        )
        assert told == "Both are refunded.\n"
        contents = [message.content for message in session.messages()]
    assert contents[4:] == ["20 euros are refunded", "35 euros are refunded", "Is it done?", "Both are refunded."]
