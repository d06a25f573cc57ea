"""The view repairs messages that OpenAI's client or API would refuse: half emoji, cut-off arguments, expired audio."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from formats.test_tool_pairing import context_of
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import is_identical, messages, texts, values
from support.provider_rules import check_sendable
from support.views import assistant, chat_call, chat_result, user

from redismem import Message, Session
from redismem.context.context import Context
from redismem.formats.openai_chat import chat_messages
from redismem.formats.sendable import replace_unsendable

Payload = dict[str, Any]
HALF = "look \ud83d"
WHOLE = "look \ufffd"
AUDIO: Payload = {"id": "audio_1", "data": "UklGRg==", "expires_at": 1_700_000_000, "transcript": "It rains."}
EXPIRY_MS = 1_700_000_000_000


def views(context: Context) -> list[Any]:
    return [context.to_openai(), context.to_responses(), context.to_anthropic(), context.to_gemini()]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "told",
    [
        [user(HALF)],
        [user([{"type": "text", "text": HALF}])],
        [user("hello") | {"name": HALF}],
        [user("hello") | {HALF: {HALF: [HALF]}}],
        [user("show it"), chat_call(HALF, arguments=json.dumps({"q": "x"})), chat_result(HALF, HALF)],
        [user("show it"), chat_call("a", arguments=f'{{"q": "{HALF}"}}'), chat_result("a")],
        [user("show it"), chat_call("a", arguments=f'{{"q": "{HALF}'), chat_result("a")],
        [{"role": HALF, "content": HALF}],
    ],
)
def test_no_half_of_a_character_reaches_a_client(told: list[Payload], stored: bool) -> None:
    for view in views(context_of(told, stored=stored)):
        check_sendable(view)
    shown = context_of(told, stored=stored).to_openai()
    assert "\ufffd" in json.dumps(shown, ensure_ascii=False)
    assert len(shown) == len(told)


async def test_a_half_emoji_in_a_session_fails_no_turn(session: Session) -> None:
    await session.append({"role": "system", "content": HALF})
    context = await session.append_and_read({"role": "user", "content": HALF})
    assert context.to_openai() == [{"role": "system", "content": WHOLE}, {"role": "user", "content": WHOLE}]
    assert [message.content for message in (*context.pinned, *context.messages)] == [HALF, HALF]
    for view in views(context):
        check_sendable(view)


def test_quoted_background_has_no_half_of_a_character() -> None:
    context = context_of([user("hello")])
    context.background = HALF
    context.recalled = [Message("user", HALF)]
    for view in views(context):
        check_sendable(view)
    assert sum(WHOLE in message["content"] for message in context.to_openai()) == 2


@given(st.lists(messages, max_size=6), st.booleans())
def test_whatever_is_stored_a_client_can_send_it(told: list[Payload], stored: bool) -> None:
    context = context_of(told, stored=stored)
    for view in views(context):
        json.dumps(view, ensure_ascii=False).encode()
    assert all(map(is_identical, (message.to_openai() for message in context.messages), told)), "messages stay exact"


@given(values)
def test_a_value_with_nothing_wrong_is_not_copied(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        json.dumps(replace_unsendable(value), ensure_ascii=False).encode()
    else:
        assert replace_unsendable(value) is value


@pytest.mark.parametrize("stored", [True, False])
def test_sound_messages_are_the_same_dicts(stored: bool) -> None:
    told = [
        user("größe"),
        chat_call("a", "b"),
        chat_result("a"),
        chat_result("b"),
        assistant("done", audio={"id": "x"}),
    ]
    context = context_of([*told, user(HALF)], stored=stored)
    payloads = [message.to_openai() for message in context.messages]
    view = context.to_openai()
    assert all(shown is payload for shown, payload in zip(view[:-1], payloads[:-1], strict=True))
    assert view[-1] == user(WHOLE)


CUT = '{"city": "Be'
FORMS: dict[str, tuple[Payload, Callable[[Payload], Any]]] = {
    "chat": (chat_call("a", arguments=CUT), lambda shown: shown["tool_calls"][0]["function"]["arguments"]),
    "function": (
        assistant(None, function_call={"name": "f", "arguments": CUT}),
        lambda shown: shown["function_call"]["arguments"],
    ),
    "item": (
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": CUT},
        lambda shown: shown["arguments"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stored", [True, False])
def test_arguments_that_were_cut_off_go_as_in_the_other_views(form: str, stored: bool) -> None:
    told, arguments_in = FORMS[form]
    context = context_of([user("the weather?"), told], stored=stored)
    view = context.to_responses() if form == "item" else context.to_openai()
    arguments = json.loads(arguments_in(view[-1]))
    assert arguments == {"arguments": CUT}
    assert context.to_anthropic()["messages"][-1]["content"][0]["input"] == arguments
    assert context.to_gemini()["contents"][-1]["parts"][0]["function_call"]["args"] == arguments
    assert context.messages[-1].to_openai() == told


@given(st.one_of(texts, values.map(json.dumps), values.map(lambda value: json.dumps(value)[:-1])))
def test_arguments_are_valid_json_and_unchanged_if_they_were(text: str) -> None:
    told = chat_call("a", arguments=text)
    (shown,) = chat_messages([told])
    arguments = shown["tool_calls"][0]["function"]["arguments"]
    json.loads(arguments)
    arguments.encode()
    if shown is not told:
        assert isinstance(json.loads(arguments), dict)
    else:
        assert arguments is text


@pytest.mark.parametrize(
    ("audio", "now_ms", "content", "sent"),
    [
        (AUDIO, EXPIRY_MS - 1, None, {"content": None, "audio": {"id": "audio_1"}}),
        (AUDIO, EXPIRY_MS, None, {"content": "It rains."}),
        (AUDIO, None, None, {"content": "It rains."}),
        (AUDIO, EXPIRY_MS, "Well:", {"content": "Well:\n\nIt rains."}),
        (AUDIO, EXPIRY_MS, [{"type": "text", "text": "Well:"}], None),
        (AUDIO | {"transcript": " "}, EXPIRY_MS, None, {"content": "[audio]"}),
        (AUDIO | {"expires_at": None}, EXPIRY_MS, None, {"content": None, "audio": {"id": "audio_1"}}),
        ({"data": "UklGRg==", "transcript": "It rains."}, 0, None, {"content": "It rains."}),
        ({"id": "a", "data": "x", "transcript": "It"}, EXPIRY_MS, None, {"content": None, "audio": {"id": "a"}}),
    ],
)
@pytest.mark.parametrize("stored", [True, False])
def test_audio_goes_back_as_a_reference_until_it_expires(
    audio: Payload, now_ms: int | None, content: Any, sent: Payload | None, stored: bool
) -> None:
    told = [user("the weather?"), assistant(content, audio=audio)]
    context = context_of(told, stored=stored)
    shown = context.to_openai(now_ms=now_ms)[-1]
    if sent is None:
        sent = {"content": [*content, {"type": "text", "text": "It rains."}]}
    assert shown == {"role": "assistant", **sent}
    assert context.messages[-1].to_openai() == told[-1]
    if "transcript" in audio and audio["transcript"].strip():
        assert audio["transcript"] in str(context.to_anthropic())


def test_expired_audio_beside_calls_needs_no_text() -> None:
    told = chat_call("a") | {"audio": AUDIO | {"transcript": ""}}
    (shown,) = chat_messages([told], now_ms=EXPIRY_MS)
    assert shown == chat_call("a")
