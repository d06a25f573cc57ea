"""The MCP client: the second conversation knows what the first one stored, and other processes do too."""

from __future__ import annotations

import pytest
from support.commands import wait_for_exit
from support.example_processes import Places, start_example

from redismem.blocking import Memory


@pytest.mark.nightly
def test_the_second_conversation_knows_the_first(places: Places) -> None:
    with start_example("mcp_client.py", places) as running:
        printed = wait_for_exit(running).out.splitlines()
    assert [line for line in printed if not line.startswith("redismem: ")][:2] == [
        "planning has 0 messages",
        "appended 1 to 2",
    ]
    assert printed[-1] == "waiting for region"
    assert any(line.startswith("- Sessions are in Redis (") for line in printed)
    with Memory.connect(places.redis_url, namespace=places.namespace) as memory:
        assert memory.session("planning").info().total_messages == 2
