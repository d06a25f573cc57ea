"""The real JavaScript clients run the tools that the model calls, and go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.http_service import serve_chat
from support.node_clients import prepare_drivers, start_driver
from support.provider_answers import TEXT, call_message
from support.provider_server import ProviderServer as Provider

from redismem import Memory

pytestmark = pytest.mark.nightly
TOOL = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}
ROLES = {"ai_sdk": ["user", "assistant"], "ag_ui": ["user", "assistant", "tool", "assistant"], "openai": []}


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_drivers(tmp_path_factory.mktemp("clients"))


@pytest.mark.parametrize("client", ["ai_sdk", "ag_ui", "openai"])
async def test_a_client_runs_a_tool_and_goes_on(memory: Memory, provider: Provider, drivers: Path, client: str) -> None:
    called = call_message(("c1", "find_order", {"id": "O-1"}), content="Let me look.")
    provider.script.append(called)
    given: dict[str, Any] = {"text": "Where is O-1?", "tool": TOOL, "output": "sent", "session": "s", "client": client}
    async with (
        serve_chat(memory, provider) as http,
        start_driver(drivers, "tools", base=str(http.client.base_url), **given) as driver,
    ):
        told = await driver.answer()
    assert told.get("error") is None
    assert (told["calls"], told["text"], told["roles"]) == ([{"id": "O-1"}], TEXT, ROLES[client])
    result = {"role": "tool", "tool_call_id": "c1", "content": "sent"}
    assert provider.bodies[1]["messages"][2:] == [called, result]
    assert [each.role for each in await memory.session("s").messages()][:2] == ["user", "assistant"]
    assert len(provider.bodies) == 2
