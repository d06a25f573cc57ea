"""One session with the clients of three providers: what one of them wrote, each other reads and answers."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types
from support.refusing_server import refusing_server
from support.views import PNG, Payload

from redismem import Session

USAGE = {"input_tokens": 1, "output_tokens": 1}


def _anthropic(*content: Payload) -> Payload:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    return message | {"content": list(content), "stop_reason": "end_turn", "usage": USAGE}


def _chat(message: Payload) -> Payload:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": None, **message}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def _responses(*output: Payload) -> Payload:
    response: Payload = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    others = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": list(output)}
    return response | others


def _gemini(*parts: Payload) -> Payload:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP"}]}


THOUGHT = {"type": "thinking", "thinking": "a map will do", "signature": "s"}
LOOK = {"type": "tool_use", "id": "toolu_01", "name": "look", "input": {"city": "Bern"}}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
PAY = {"id": "call_1", "type": "function", "function": {"name": "pay", "arguments": '{"chf": 5}'}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
CONTENT = [{"type": "output_text", "text": "It is paid, says Responses.", "annotations": []}]
SAID = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": CONTENT}
ANSWERS = [
    _anthropic(THOUGHT, LOOK),
    _anthropic({"type": "text", "text": "A map, says Anthropic."}),
    _chat({"tool_calls": [PAY]}),
    _responses(REASONING, SAID),
    _gemini({"functionCall": {"name": "book", "args": {"seat": 7}}, "thoughtSignature": "c2ln"}),
    _gemini({"text": "Seat 7, says Gemini."}),
    _anthropic({"type": "text", "text": "Safe travels."}),
]


async def test_a_session_goes_from_provider_to_provider(session: Session) -> None:
    with refusing_server(ANSWERS) as (url, accepted):
        claude = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
        gpt = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        gemini = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))

        def ask_claude(context: Any) -> Any:
            return claude.messages.create(model="m", max_tokens=9, **context.to_anthropic())

        def ask_gemini(context: Any) -> Any:
            answer = gemini.models.generate_content(model="m", contents=context.to_gemini()["contents"])
            assert answer.candidates
            return answer.candidates[0].content

        said = "Where is it?"
        await session.append(
            ask_claude(await session.append_and_read({"role": "user", "name": "Anna", "content": said}))
        )
        result = {"type": "tool_result", "tool_use_id": "toolu_01", "content": [PICTURE]}
        await session.append(ask_claude(await session.append_and_read({"role": "user", "content": [result]})))
        context = await session.append_and_read({"role": "user", "name": "Ben Müller", "content": "I pay."})
        chat = gpt.chat.completions.create(model="m", messages=context.to_openai())
        await session.append(chat.choices[0].message)
        context = await session.append_and_read({"role": "tool", "tool_call_id": "call_1", "content": "receipt 9"})
        response = gpt.responses.create(model="m", input=context.to_responses())
        await session.append(*response.output)
        context = await session.append_and_read({"role": "user", "content": "Book it."})
        await session.append(ask_gemini(context))
        booked = {"role": "user", "parts": [{"functionResponse": {"name": "book", "response": {"seat": 7}}}]}
        await session.append(ask_gemini(await session.append_and_read(booked)))
        ask_claude(await session.append_and_read({"role": "user", "content": "Thanks."}))

    check_sent(accepted)


def check_sent(accepted: list[Payload]) -> None:
    """Check that the requests hold the words and the picture of all that came before, in calls and results."""
    assert len(accepted) == len(ANSWERS)
    for at, words in (
        (2, ["Anna", '"Ben Müller": I pay.', "Bern", "A map, says Anthropic.", PNG]),
        (3, ["receipt 9", "call_1", "toolu_01", PNG]),
        (5, ["c2ln", "receipt 9", "It is paid, says Responses.", PNG]),
        (6, ["a map will do", "Seat 7, says Gemini.", "receipt 9", PNG]),
    ):
        sent = json.dumps(accepted[at], ensure_ascii=False).replace('\\"', '"')
        assert [word for word in words if word not in sent] == []
        assert "quoted as background" not in sent
