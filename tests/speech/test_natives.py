"""What one provider alone understands: sent to it as it is, said in words to the others."""

from __future__ import annotations

from support.views import URL, Payload, anthropic, assistant, chat_call, chat_result, gemini, text, user


def test_what_only_anthropic_understands_stays_as_it_is() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    cached = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": None}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "is_error": True, "content": "no"}
    told: list[Payload] = [user([cached]), assistant([thought, text("Looking."), call]), user([answer, text("Well?")])]
    first, second, third = (message["content"] for message in anthropic(*told)["messages"])
    assert (first, second) == ([cached], [thought, text("Looking."), call])
    assert third == [answer | {"content": [text("no")]}, text("Well?")]
    contents = gemini(*told)["contents"]
    assert contents[2]["parts"] == [{"function_response": {"name": "look", "response": {"error": "no"}}}]
    assert contents[1]["parts"][0] == {"text": '["thinking"]'}


def test_what_only_gemini_understands_stays_as_it_is() -> None:
    signed = {"function_call": {"name": "look", "args": {}}, "thought_signature": "c2ln"}
    answers = [{"function_response": {"name": "look", "response": {"n": n}}} for n in (1, 2)]
    told: list[Payload] = [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "hm", "thought": True}, signed, {"functionCall": {"name": "look"}}]},
        {"role": "user", "parts": answers},
    ]
    contents = gemini(*told)["contents"]
    assert contents[1]["parts"] == [signed, {"function_call": {"name": "look", "args": {}}}]
    assert contents[2]["parts"] == answers
    blocks = anthropic(*told)["messages"][2]["content"]
    assert [block["content"] for block in blocks] == [[text('{"n": 1}')], [text('{"n": 2}')]]
    lost = gemini(*told[:1], *told[2:])
    assert "function_response" not in str(lost)
    assert "result of an earlier call" in str(lost)


def test_a_signature_of_gemini_comes_back_out_of_openai_calls() -> None:
    call = chat_call("c1", extra_content={"google": {"thought_signature": "c2ln"}})
    assert gemini(user("a"), call)["contents"][1]["parts"][0]["thought_signature"] == "c2ln"


def test_calls_without_an_id_are_quoted_and_no_word_is_lost() -> None:
    call = assistant("", tool_calls=[{"function": {"name": "weather", "arguments": {"city": "Bern"}}}])
    told: list[Payload] = [
        user("a"),
        call,
        {"role": "tool", "content": "sunny"},
        assistant(None, refusal="I will not."),
    ]
    for found in (str(anthropic(*told)), str(gemini(*told))):
        assert all(word in found for word in ("weather", "Bern", "sunny", "I will not."))


def test_a_result_with_an_image() -> None:
    image = {"type": "image_url", "image_url": {"url": URL}}
    told: list[Payload] = [user("a"), chat_call("c1"), chat_result("c1", [text("there"), image]), user("b")]
    content = anthropic(*told)["messages"][2]["content"][0]["content"]
    assert content == [text("there"), {"type": "image", "source": {"type": "url", "url": URL}}]
    assert gemini(*told)["contents"][3]["parts"][0]["file_data"]["file_uri"] == URL


def test_calls_of_one_name_without_ids_may_wait_together() -> None:
    asked: Payload = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"n": n}}} for n in (1, 2)]}
    first, second = anthropic(user("a"), asked)["messages"][1]["content"]
    assert (first["input"], second["input"]) == ({"n": 1}, {"n": 2})
    assert first["id"] != second["id"]
