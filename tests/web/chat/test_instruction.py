"""The instruction of the chat's model: the server's, or the session's own."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from support.http_service import ASKED, read_events, serve_chat
from support.provider_server import ProviderServer as Provider

from redismem import InvalidState, Memory, Settings, TooLarge
from redismem.settings.settings import Settings as AllSettings
from redismem.web.chat.prompts import INSTRUCTION

OWN = "Speak like a canary."


async def test_a_session_has_its_own_instruction_until_it_is_removed_or_cleared(
    memory: Memory, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with serve_chat(memory, provider, chat={"instruction": "Be brief."}) as http:

        async def told(session_id: str = "s") -> str:
            await read_events(http.client, "/api/chat", json=ASKED | {"session_id": session_id})
            first = provider.bodies[-1]["messages"][0]
            assert first["role"] == "system"
            return str(first["content"])

        async def change(instruction: Any, status: int = 204) -> None:
            answer = await http.ask("PATCH", "/v1/sessions/s/state", json={"instruction": instruction})
            assert answer.status_code == status

        await change(OWN)
        assert (await http.ask("GET", "/v1/sessions/s/state")).json()["instruction"] == OWN
        assert [await told(), await told("other")] == [OWN, "Be brief."]
        await memory.session("s").forget(1)  # it tells nothing of the message
        assert await told() == OWN
        for wrong in ("", " \n", 5, "x" * 20_001):
            await change(wrong, 422)
        await change(None)
        assert await told() == "Be brief."
        await change(OWN)
        await http.ask("DELETE", "/v1/sessions/s")
        assert await told() == "Be brief."
        assert (await memory.session("s").state()).instruction is None
    async with serve_chat(memory, provider) as http:
        assert await told("third") == INSTRUCTION
    assert "canary" not in caplog.text


async def test_an_instruction_is_set_with_an_append_and_is_a_text(memory: Memory) -> None:
    session = memory.session("s")
    context = await session.append_and_read({"role": "user", "content": "hello"}, instruction=OWN)
    assert context.state.instruction == OWN
    assert OWN not in repr(context.state)
    assert OWN not in str(context.to_openai()), "an application's prompt is its own"
    for wrong in ("", " \n", 5, ["x"]):
        with pytest.raises(InvalidState, match="an instruction is a text"):
            await session.update(instruction=wrong)  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        await session.update(instruction="x" * (memory.settings.max_value_bytes + 1))
    assert (await session.state()).instruction == OWN


def test_the_environment_has_the_servers_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDISMEM_CHAT_INSTRUCTION", "Be brief.")
    assert AllSettings().chat_instruction == "Be brief."
    assert Settings is AllSettings
