"""Each format of `/context` follows the types of the provider's SDK and the rules of its API."""

from __future__ import annotations

from typing import Any

import pytest
from support.converse_rules import check_converse
from support.http_service import RunningService
from support.openai_rules import check_chat, check_responses
from support.provider_rules import check_anthropic, check_gemini
from support.views import URL, assistant, chat_call, chat_result, text, user

from redismem.formats.converse import decode_bytes

IMAGE = {"type": "image_url", "image_url": {"url": URL}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "words": [{"role": "system", "content": "Be brief."}, user("Hello"), assistant("Hello!"), user("Well?")],
    "tool calls": [
        user("How is Bern?"),
        chat_call("c1", "c2"),
        chat_result("c1"),
        chat_result("c2", [text("cold")]),
        assistant("Sunny and cold."),
        user("And now?"),
        chat_call("c3"),
        chat_result("c3"),
    ],
    "a result that comes late": [user("a"), chat_call("c1"), user("never mind"), chat_result("c1"), user("b")],
    "parts": [user([text("What is it?"), IMAGE, SOUND]), assistant([text("A cat.")]), user([text("Sure?")])],
    "empty contents": [user(""), assistant(""), user(" \n"), assistant(None), user([]), user([text("")])],
    "an assistant that begins": [assistant("How may I help?"), user("Not at all")],
    "nobody": [],
}
CHECKS: dict[str, Any] = {
    "openai": lambda request: check_chat(request["messages"]),
    "responses": lambda request: check_responses(request["input"]),
    "anthropic": check_anthropic,
    "gemini": check_gemini,
    "converse": lambda request: check_converse(decode_bytes(request)),
}


@pytest.mark.parametrize("form", CHECKS)
async def test_a_context_follows_the_rules_of_its_provider(http: RunningService, form: str) -> None:
    for number, told in enumerate(CONVERSATIONS.values()):
        if told:
            answer = await http.ask("POST", f"/v1/sessions/{number}/messages", json=told)
            assert answer.status_code == 201, answer.text
        answer = await http.ask("GET", f"/v1/sessions/{number}/context", params={"format": form})
        assert answer.status_code == 200
        found = answer.json()
        assert found["format"] == form
        CHECKS[form](found["request"])
        assert all(each in answer.text for each in words_of(told)), "nothing that was said is lost"


def words_of(told: list[dict[str, Any]]) -> list[str]:
    parts = [message.get("content") for message in told]
    return [part.strip() for part in parts if isinstance(part, str)]
