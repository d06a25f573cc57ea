"""Requests to each provider, decoding of its answers, and refused settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.provider_answers import gemini_answer
from support.provider_server import request_turns

from redismem.errors import InvalidSettings, ModelFailed
from redismem.messages.message import Message
from redismem.models import open_model
from redismem.models.http_model import INSTRUCTION

KEY = "canary-key"
MESSAGES = [Message("user", "Where is order W123?"), Message("assistant", "On its way: canary-text.")]
MESSAGES_OF_ONE = [{"role": "user", "content": "Why?"}]
TRANSCRIPT = (
    "<transcript>\n[0] user:\n  Where is order W123?\n[0] assistant:\n  On its way: canary-text.\n</transcript>\n"
    "Write the summary of all of this now."
)
REQUESTS = {
    "openai": (
        "/v1/chat/completions",
        {"authorization": f"Bearer {KEY}"},
        {
            "model": "some-model-1.5",
            "messages": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": TRANSCRIPT}],
            "max_completion_tokens": 300,
        },
    ),
    "anthropic": (
        "/v1/messages",
        {"authorization": f"Bearer {KEY}", "anthropic-version": "2026-10-21"},
        {
            "model": "some-model-1.5",
            "max_tokens": 300,
            "system": INSTRUCTION,
            "messages": [{"role": "user", "content": TRANSCRIPT}],
        },
    ),
    "gemini": (
        "/v1/models/some-model-1.5:generateContent",
        {"x-goog-api-key": KEY},
        {
            "contents": [{"role": "user", "parts": [{"text": TRANSCRIPT}]}],
            "systemInstruction": {"parts": [{"text": INSTRUCTION}]},
            "generationConfig": {"maxOutputTokens": 300},
        },
    ),
}


async def test_a_request_is_exactly_what_the_provider_wants(server: Any, model: Any, provider: Any) -> None:
    draft = await model.summarize(MESSAGES, None, 300)
    path, headers, body = REQUESTS[provider]
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", path, body)
    expected = {
        "host": f"127.0.0.1:{server.port}",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "keep-alive",
        "content-type": "application/json",
        "content-length": str(len(asked.raw)),
        "user-agent": "redismem",
    }
    assert asked.headers == expected | headers
    assert (draft.text, draft.input_tokens, draft.output_tokens, draft.model) == (server.text, 101, 11, model.name)
    assert model.name == "some-model-1.5"


async def test_a_server_that_wants_the_older_name_of_the_limit_and_no_key(server: Any) -> None:
    where = {"base_url": server.base_url + "/", "allow_http": True}
    model = open_model("openai", "llama", max_tokens_field="max_tokens", **where)
    await model.summarize(MESSAGES, None, 300)
    await model.aclose()
    assert server.asked[0].path == "/v1/chat/completions"
    assert server.asked[0].body["max_tokens"] == 300
    assert "max_completion_tokens" not in server.asked[0].body
    assert "authorization" not in server.asked[0].headers


TOKEN = "ey.canary.key"


@pytest.mark.parametrize(
    ("key", "header"), [(KEY, ("api-key", KEY)), (TOKEN, ("authorization", f"Bearer {TOKEN}"))], ids=["key", "token"]
)
async def test_a_deployment_of_azure(server: Any, key: str, header: tuple[str, str]) -> None:
    base_url = server.base_url.removesuffix("/v1") + "/openai/deployments/mini/?api-version=2026-10-21&x=a%20b"
    model = open_model("openai", "mini", key, base_url=base_url, allow_http=True)
    await model.summarize(MESSAGES, None, 300)
    await model.aclose()
    (asked,) = server.asked
    assert asked.path == "/openai/deployments/mini/chat/completions?api-version=2026-10-21&x=a%20b"
    assert [(name, value) for name, value in asked.headers.items() if key in value] == [header]


async def test_any_provider_keeps_the_query_of_its_address(server: Any, provider: Any) -> None:
    model = open_model(provider, "some-model", KEY, base_url=f"{server.base_url}?team=shop", allow_http=True)
    await model.summarize(MESSAGES, None, 300)
    await model.aclose()
    assert server.asked[0].path.endswith("?team=shop")
    assert server.asked[0].provider == provider


async def test_the_name_of_a_model_stays_one_piece_of_the_path(server: Any) -> None:
    model = open_model("gemini", "../../x?key=1#", KEY, base_url=server.base_url, allow_http=True)
    await model.summarize(MESSAGES, None, 300)
    await model.aclose()
    assert server.asked[0].path == "/v1/models/..%2F..%2Fx%3Fkey%3D1%23:generateContent"


async def test_reply_sends_the_conversation(server: Any, model: Any, provider: Any) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": [{"type": "text", "text": "Anyone?"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": "Yes?"},
        {"role": "assistant", "content": ""},
    ]
    assert await model.reply(messages, max_tokens=50) == server.text
    (asked,) = server.asked
    if provider == "openai":
        assert asked.body["messages"] == messages
    else:
        assert request_turns(asked) == [("user", "Hello\n\nAnyone?\n\n[image]"), ("assistant", "Yes?")]
        system = (
            asked.body["system"] if provider == "anthropic" else asked.body["systemInstruction"]["parts"][0]["text"]
        )
        assert system == "Be kind."


async def test_half_of_a_surrogate_pair_is_replaced(server: Any, model: Any) -> None:
    await model.reply([{"role": "user", "content": "half \ud83d pair"}], max_tokens=9)
    assert request_turns(server.asked[0]) in ([("user", "half ? pair")], [("user", "half \ufffd pair")])


@pytest.mark.parametrize("provider", ["gemini"], indirect=True)
async def test_gemini_says_more_than_its_answer(server: Any, model: Any, provider: Any) -> None:
    server.mode = "raw"
    parts = [{"text": "let me think", "thought": True}, {"text": "It is "}, {"text": "late."}]
    server.raw = json.dumps(gemini_answer("", content={"parts": parts})).encode()
    assert await model.reply(MESSAGES_OF_ONE, max_tokens=9) == "It is late."
    server.raw = json.dumps(gemini_answer("It i", finishReason="SAFETY")).encode()
    with pytest.raises(ModelFailed, match="refused") as caught:
        await model.reply(MESSAGES_OF_ONE, max_tokens=9)
    assert caught.value.permanent


async def test_what_json_cannot_hold_is_refused_before_it_is_sent(server: Any) -> None:
    model = open_model("openai", "some-model", KEY, base_url=server.base_url, allow_http=True)
    with pytest.raises(ModelFailed) as caught:
        await model.reply([{"role": "user", "content": "hi", "weight": float("nan")}], max_tokens=9)
    await model.aclose()
    assert caught.value.permanent
    assert server.asked == []


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/v1",
        "ftp://api.example.com",
        "https://user:canary-key@api.example.com/v1",
        "https://api.example.com/v1?key=canary-key",
        "https://api.example.com/v1?api-version=1&access_token=canary-key",
        "https://api.example.com/v1?subscription-key=canary-key",
        "https://api.example.com/v1#canary-key",
        "https://",
        "/v1",
        "",
        "https://[::canary-key/",
    ],
)
def test_a_base_url_is_https_without_secrets(url: Any, provider: Any) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_model(provider, "some-model", KEY, base_url=url)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ""},
        {"model": "a\nb"},
        {"api_key": "two words"},
        {"api_key": "line\r\nx-injected: 1"},
        {"api_key": "ключ"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"input_tokens": 999},
        {"max_summary_bytes": 1},
        {"provider": "acme"},
        {"allow_http": True, "base_url": "ftp://127.0.0.1/v1"},
    ],
)
def test_wrong_settings_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSettings) as caught:
        open_model(**{"provider": "openai", "model": "some-model", "api_key": KEY} | wrong)
    assert str(wrong.get("api_key", KEY)) not in str(caught.value)


async def test_the_model_has_no_default(provider: Any) -> None:
    with pytest.raises(TypeError):
        open_model(provider)  # type: ignore[call-arg]


async def test_a_key_out_of_a_file_may_end_in_a_newline(server: Any) -> None:
    model = open_model("openai", "some-model", f"{KEY}\n", base_url=server.base_url, allow_http=True)
    await model.summarize(MESSAGES, None, 300)
    await model.aclose()
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
