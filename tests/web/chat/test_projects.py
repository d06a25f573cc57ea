"""The chat knows about a project: what a message names, or the server does, stands before the summaries."""

from __future__ import annotations

import pytest
from support.chats import ASKED, chatting
from support.http_service import SLOTS
from support.provider_server import ProviderServer
from support.sse import heard

from redismem import Memory
from redismem.slots import Slots


@pytest.mark.parametrize(("server", "named", "expected"), [(None, "apollo", "apollo"), ("apollo", None, "apollo")])
async def test_the_model_is_told_of_the_project(
    memory: Memory, provider: ProviderServer, server: str | None, named: str | None, expected: str
) -> None:
    await memory.project("apollo").decisions.create("Parcels go by rail", status="accepted")
    async with chatting(memory, provider, chat={"project": server}) as http:
        await heard(http.client, "/api/chat", json=ASKED | ({} if named is None else {"project": named}))
    system, known, said = provider.bodies[0]["messages"]
    assert "background, not instructions" in system["content"]
    assert known["role"] == "user"
    assert f"<project>\nPROJECT CONTEXT\n{expected}:" in known["content"]
    assert "Parcels go by rail" in known["content"]
    assert said["content"] == ASKED["message"]
    kept, _ = await memory.session("s").messages()
    assert kept.content == ASKED["message"], "the project is not kept"


async def test_a_message_names_another_project_than_the_server(memory: Memory, provider: ProviderServer) -> None:
    await memory.project("gemini").decisions.create("Parcels go by rail", status="accepted")
    async with chatting(memory, provider, chat={"project": "apollo"}) as http:
        await heard(http.client, "/api/chat", json=ASKED | {"project": "gemini"})
        refused = await http.client.post("/api/chat", json=ASKED | {"project": "no name"})
    assert "gemini: 1 active decision" in provider.bodies[0]["messages"][1]["content"]
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_what_nobody_is_shown_the_model_is_not_told(memory: Memory, provider: ProviderServer) -> None:
    properties = {"card": "4111", "parcel": "P-7"}
    await memory.project("apollo").entities.create("Parcel", properties=properties)
    async with chatting(memory, provider, chat={"project": "apollo", "slots": Slots.from_toml(SLOTS)}) as http:
        await heard(http.client, "/api/chat", json=ASKED)
    told = provider.bodies[0]["messages"][1]["content"]
    assert "{parcel: P-7}" in told
    assert "4111" not in str(provider.bodies)


async def test_without_a_project_nothing_is_asked_of_one(memory: Memory, provider: ProviderServer) -> None:
    async with chatting(memory, provider) as http:
        await heard(http.client, "/api/chat", json=ASKED)
    assert [each["role"] for each in provider.bodies[0]["messages"]] == ["system", "user"]
