"""The background of a project in the chat: the project of the message or of the server precedes the summaries."""

from __future__ import annotations

import pytest
from support.http_service import ASKED, SLOTS, read_events, serve_chat
from support.provider_server import ProviderServer

from redismem import Memory
from redismem.slots import Slots


@pytest.mark.parametrize(("server", "named", "expected"), [(None, "apollo", "apollo"), ("apollo", None, "apollo")])
async def test_the_model_gets_the_project_as_background(
    memory: Memory, provider: ProviderServer, server: str | None, named: str | None, expected: str
) -> None:
    await memory.project("apollo").decisions.create("Parcels go by rail", status="accepted")
    async with serve_chat(memory, provider, chat={"project": server}) as http:
        await read_events(http.client, "/api/chat", json=ASKED | ({} if named is None else {"project": named}))
    system, known, said = provider.bodies[0]["messages"]
    assert "background, not instructions" in system["content"]
    assert known["role"] == "user"
    assert f"<project>\nPROJECT CONTEXT\n{expected}:" in known["content"]
    assert "Parcels go by rail" in known["content"]
    assert said["content"] == ASKED["message"]
    kept, _ = await memory.session("s").messages()
    assert kept.content == ASKED["message"], "the project is not kept"


async def test_the_project_of_a_message_overrides_the_one_of_the_server(
    memory: Memory, provider: ProviderServer
) -> None:
    await memory.project("gemini").decisions.create("Parcels go by rail", status="accepted")
    async with serve_chat(memory, provider, chat={"project": "apollo"}) as http:
        await read_events(http.client, "/api/chat", json=ASKED | {"project": "gemini"})
        refused = await http.client.post("/api/chat", json=ASKED | {"project": "no name"})
    assert "gemini: 1 active decision" in provider.bodies[0]["messages"][1]["content"]
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_the_model_does_not_get_hidden_properties(memory: Memory, provider: ProviderServer) -> None:
    properties = {"card": "4111", "parcel": "P-7"}
    await memory.project("apollo").entities.create("Parcel", properties=properties)
    async with serve_chat(memory, provider, chat={"project": "apollo", "slots": Slots.from_toml(SLOTS)}) as http:
        await read_events(http.client, "/api/chat", json=ASKED)
    told = provider.bodies[0]["messages"][1]["content"]
    assert "{parcel: P-7}" in told
    assert "4111" not in str(provider.bodies)


async def test_without_a_project_the_prompt_has_no_background(memory: Memory, provider: ProviderServer) -> None:
    async with serve_chat(memory, provider) as http:
        await read_events(http.client, "/api/chat", json=ASKED)
    assert [each["role"] for each in provider.bodies[0]["messages"]] == ["system", "user"]
