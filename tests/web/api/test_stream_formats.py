"""The routes for clients of other protocols: the same turns, in their formats, on any server."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import httpx
from support.checks import until
from support.http_service import Servers
from support.provider_answers import PIECES, TEXT
from support.provider_server import ProviderServer as Provider

USER = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "Where is my parcel?"}]}
UI = {"id": "s", "trigger": "submit-message", "messages": [USER]}
RUN = {"threadId": "s", "runId": "r1", "messages": [{"id": "m", "role": "user", "content": "Where is my parcel?"}]}
CREATE = {"model": "any", "conversation": "s", "input": "Where is my parcel?"}


def documents(answer: httpx.Response) -> list[Any]:
    """Return the documents of a stream, without its end mark."""
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_of(found: list[Any], kind: str) -> str:
    return "".join(each["delta"] for each in found if each["type"] == kind)


async def test_the_ai_sdk_gets_its_chunks_and_resumes_on_another_server(servers: Servers, provider: Provider) -> None:
    first, second = servers
    assert (await second.ask("GET", "/ui/chat/s/stream")).status_code == 204
    provider.mode = "hang"
    asking = asyncio.create_task(first.ask("POST", "/ui/chat", json=UI))

    async def is_running() -> bool:
        return (await second.ask("GET", "/v1/sessions/s")).status_code == 200

    await until(is_running)
    resuming = asyncio.create_task(second.ask("GET", "/ui/chat/s/stream"))
    await until(lambda: second.service.streams.streams_count)
    provider.release()
    whole, resumed = await asking, await resuming
    assert whole.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert whole.text.endswith("data: [DONE]\n\n")
    assert [each for each in documents(resumed) if each["type"] != "text-delta"] == [
        each for each in documents(whole) if each["type"] != "text-delta"
    ]
    assert text_of(documents(whole), "text-delta") == text_of(documents(resumed), "text-delta") == TEXT
    again = await second.ask("POST", "/ui/chat", json=UI)
    assert text_of(documents(again), "text-delta") == TEXT
    assert documents(again)[0] == documents(whole)[0]
    ended = await second.ask("GET", "/ui/chat/s/stream", params={"turn": "m1"})
    assert documents(ended) == documents(again)
    assert len(provider.asked) == 1
    assert (await second.ask("GET", "/ui/chat/s/stream")).status_code == 204
    assert (await second.ask("GET", "/ui/chat/s/stream", params={"turn": "m2"})).status_code == 404
    refused = await first.ask("POST", "/ui/chat", json=UI | {"trigger": "regenerate-message"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


async def test_ag_ui_gets_a_run_and_its_error(servers: Servers, provider: Provider) -> None:
    first, second = servers
    provider.modes.extend(["ok", "break"])
    found = documents(await first.ask("POST", "/ag-ui", json=RUN))
    assert [found[0]["type"], found[-1]["type"]] == ["RUN_STARTED", "RUN_FINISHED"]
    assert (found[0]["threadId"], found[0]["runId"]) == ("s", "r1")
    assert text_of(found, "TEXT_MESSAGE_CONTENT") == TEXT
    assert documents(await second.ask("POST", "/ag-ui", json=RUN)) == found
    failed = documents(await first.ask("POST", "/ag-ui", json=RUN | {"runId": "r2"}))
    assert [each["type"] for each in failed[-2:]] == ["TEXT_MESSAGE_END", "RUN_ERROR"]
    followed = await second.ask("GET", "/v1/sessions/s/turns/current", params={"turn": "r2", "format": "ag-ui"})
    assert documents(followed) == failed
    assert len(provider.asked) == 2


async def test_an_agent_of_ag_ui_that_has_a_part_of_its_run_drops_it_first(
    servers: Servers, provider: Provider
) -> None:
    first, second = servers
    found = documents(await first.ask("POST", "/ag-ui", json=RUN))
    answer = {"id": found[1]["messageId"], "role": "assistant", "content": "Your "}
    has_part = RUN | {"messages": [*RUN["messages"], answer]}
    again = documents(await second.ask("POST", "/ag-ui", json=has_part))
    assert again[1] == {"type": "MESSAGES_SNAPSHOT", "messages": RUN["messages"]}
    assert [again[0], *again[2:]] == found
    refused = await second.ask("POST", "/ag-ui", json=has_part | {"runId": "r2"})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid")
    assert len(provider.asked) == 1


async def test_a_response_is_created_read_and_resumed_by_its_numbers(servers: Servers, provider: Provider) -> None:
    first, second = servers
    key = {"Idempotency-Key": "k1"}
    found = documents(await first.ask("POST", "/openai/responses", json=CREATE | {"stream": True}, headers=key))
    assert [each["sequence_number"] for each in found] == list(range(len(found)))
    assert text_of(found, "response.output_text.delta") == TEXT
    response = found[-1]["response"]
    assert (response["status"], response["conversation"]) == ("completed", {"id": "s"})
    path = f"/openai/responses/{response['id']}"
    for http in servers:
        assert (await http.ask("GET", path)).json() == response
        rest = await http.ask("GET", path, params={"stream": "true", "starting_after": "3"})
        assert documents(rest) == found[4:]
    again = await second.ask("POST", "/openai/responses", json=CREATE, headers=key)
    assert again.json() == response
    following = {"previous_response_id": response["id"], "input": "And now?"}
    whole = (await second.ask("POST", "/openai/responses", json=following)).json()
    assert (whole["output"][0]["content"][0]["text"], whole["conversation"]) == (TEXT, {"id": "s"})
    assert [each["content"] for each in provider.bodies[1]["messages"]][1:] == [CREATE["input"], TEXT, "And now?"]
    for unknown in ("resp_x", "resp_MS0wYTFiMmMzZApjaGF0CnQ"):
        assert (await first.ask("GET", f"/openai/responses/{unknown}")).json()["code"] == "not_found"


async def test_a_client_that_leaves_before_its_whole_response_keeps_no_place(
    servers: Servers, provider: Provider
) -> None:
    first, _ = servers
    provider.mode = "hang"
    streams = first.service.streams
    headers = {"Idempotency-Key": "t"}
    leaving = [asyncio.create_task(first.ask("POST", "/openai/responses", json=CREATE, headers=headers)) for _ in "abc"]

    async def has(count: int) -> bool:
        return streams.streams_count == count

    await until(partial(has, 3))
    for each in leaving:
        each.cancel()
    await until(partial(has, 0))
    assert streams.answers_count == 1
    provider.release()
    answer = await first.ask("POST", "/openai/responses", json=CREATE, headers=headers)
    assert answer.json()["output"][0]["content"][0]["text"] == TEXT


async def test_a_response_in_the_background_is_cancelled_on_another_server(
    servers: Servers, provider: Provider
) -> None:
    first, second = servers
    provider.mode = "hang"
    begun = (await first.ask("POST", "/openai/responses", json=CREATE | {"background": True})).json()
    assert (begun["status"], begun["background"], begun["output"]) == ("in_progress", True, [])
    path = f"/openai/responses/{begun['id']}"
    assert (await second.ask("GET", path)).json()["status"] == "in_progress"
    async with second.client.stream("GET", path, params={"stream": "true"}) as answer:
        said = ""
        async for line in answer.aiter_lines():
            if line.startswith("data: ") and "output_text.delta" in line:
                said += json.loads(line[6:])["delta"]
                if said == "".join(PIECES[:2]):
                    break
    ended = (await second.ask("POST", f"{path}/cancel")).json()
    assert ended["status"] == "incomplete"
    assert ended["output"][0]["content"][0]["text"] == said
    assert (await first.ask("POST", f"{path}/cancel")).json() == ended
