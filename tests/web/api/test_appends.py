"""Appends over HTTP: idempotency keys that belong to another message, and answers while Redis is down."""

from __future__ import annotations

from typing import Any

import pytest
from support.http_service import RunningService, numbered_message, serve_memory
from support.proxy import Proxy
from support.stores import LONG_DEADLINES, short_deadlines

from redismem import Memory

URL = "/v1/sessions/s"
TOOLS = [
    {
        "role": "assistant",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "sunny"},
]
KEY = {"Idempotency-Key": "turn-1"}
OTHERS: list[Any] = [
    [numbered_message(2), *TOOLS],
    [numbered_message(1, "assistant"), *TOOLS],
    [numbered_message(1), TOOLS[0]],
    [numbered_message(1), *TOOLS, numbered_message(2)],
    [numbered_message(1), {"role": "assistant", "content": "sunny"}, TOOLS[1]],
    numbered_message(1),
]


@pytest.mark.parametrize("query", ["", "?read=true"])
async def test_an_idempotency_key_of_another_message_is_refused(http: RunningService, query: str) -> None:
    messages = f"{URL}/messages{query}"
    system = {"role": "system", "content": "Be brief."}
    await http.ask("POST", messages, json=system, headers={"Idempotency-Key": "system"})
    await http.ask("POST", messages, json=[numbered_message(1), *TOOLS], headers=KEY)
    await http.ask("POST", messages, json=numbered_message(9))
    for other in OTHERS:
        refused = await http.ask("POST", messages, json=other, headers=KEY)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid"), other
        assert "for other messages" in refused.json()["detail"]
    refused = await http.ask("POST", messages, json=numbered_message(2), headers={"Idempotency-Key": "system"})
    assert refused.status_code == 422
    again = await http.ask("POST", messages, json=[numbered_message(1) | {"timestamp": "later"}, *TOOLS], headers=KEY)
    assert again.status_code == 200
    assert (await http.ask("GET", URL)).json()["total_messages"] == 5


@pytest.mark.parametrize("change", ["replaced", "pruned"])
async def test_a_retry_of_a_message_that_was_changed_since_is_accepted(
    http: RunningService, memory: Memory, change: str
) -> None:
    await http.ask("POST", f"{URL}/messages", json=numbered_message(1), headers=KEY)
    session = memory.session("s")
    if change == "replaced":
        await session.replace(1, numbered_message("without a secret"))
    else:
        await session.append(numbered_message(2))
        await session.prune(1)
    for query in ("", "?read=true"):
        again = await http.ask("POST", f"{URL}/messages{query}", json=numbered_message(1), headers=KEY)
        assert again.status_code == 200


async def test_answers_during_an_outage_are_marked_as_degraded(proxy: Proxy, namespace: str) -> None:
    options: Any = {"namespace": namespace, "settings": LONG_DEADLINES, "fallback": True}
    async with Memory.connect(proxy.url, **options) as memory, serve_memory(memory) as http:
        sound = await http.ask("POST", f"{URL}/messages?read=true", json=numbered_message(1))
        assert [part["degraded"] for part in (sound.json(), sound.json()["receipt"], sound.json()["state"])] == [
            False
        ] * 3
        await proxy.refuse()
        with short_deadlines(memory):
            key = {"Idempotency-Key": "turn-2"}
            for status in (201, 200):
                posted = await http.ask("POST", f"{URL}/messages", json=numbered_message(2), headers=key)
                assert (posted.status_code, posted.json()["degraded"], "etag" in posted.headers) == (
                    status,
                    True,
                    False,
                )
            read = await http.ask("POST", f"{URL}/messages?read=true", json=numbered_message(3))
            assert "etag" not in read.headers
            for found in (read.json(), (await http.ask("GET", f"{URL}/context")).json()):
                assert (found["degraded"], found["state"]["degraded"], found["last_seq"]) == (True, True, 3)
            assert read.json()["receipt"]["degraded"]
            assert (await http.ask("GET", f"{URL}/state")).json()["degraded"]
            assert (await http.ask("GET", URL)).json()["degraded"]
            refused = await http.ask("POST", f"{URL}/messages", json=numbered_message(4), headers={"If-Match": '"3"'})
            assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        await proxy.accept_again()
