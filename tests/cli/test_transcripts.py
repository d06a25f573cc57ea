"""Parsing lines into transcripts with marked answers, and cutting them into requests, without a store."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.transcripts import CHAT, write

from redismem.cli.terminal import Stop
from redismem.cli.transcripts import BadLine, Question, exchanges, is_of_model, parse, questions_of, sample
from redismem.protocol.keys import Keys

CHECK_ID = Keys("test", 64).session
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.fixed_dictionaries({}, optional={"role": ROLES, "content": st.text()})), st.integers(1, 5))
def test_each_request_ends_before_the_reply_of_the_model(messages: Any, most: Any) -> None:
    found = list(exchanges(messages, most))
    assert [place for first, _, end in found for place in range(first, end)] == list(range(len(messages)))
    for first, reply, end in found:
        assert end - first > 0
        assert max(reply - first, end - reply) <= most
        assert not any(map(is_of_model, messages[first:reply]))
        assert all(map(is_of_model, messages[reply:end]))


@pytest.mark.parametrize(
    ("message", "is_reply"),
    [
        ({"role": "assistant", "content": "a"}, True),
        ({"role": "model", "parts": [{"text": "a"}]}, True),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, True),
        ({"type": "reasoning", "summary": []}, True),
        ({"type": "ai", "data": {"content": "a"}}, True),
        ({"type": "function_call_output", "call_id": "c", "output": "1"}, False),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]}, False),
        ({"role": "tool", "tool_call_id": "c", "content": "1"}, False),
    ],
)
def test_replies_are_recognised_in_each_format(message: Any, is_reply: bool) -> None:
    assert is_of_model(message) is is_reply


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"hello", "not JSON"),
        (b'{"session_id": "a", "messages": [', "not JSON"),
        (b'{"session_id": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "cannot represent"),
        (b'{"session_id": "a", "messages": [{"n": ' + b"9" * 5_000 + b"}]}", "cannot represent"),
        (b'["a"]', "not a JSON object"),
        (b'{"messages": [{}]}', "no session_id"),
        (b'{"session_id": null, "messages": [{}]}', "no session_id"),
        (b'{"session_id": 7, "messages": [{}]}', "not a string"),
        (b'{"session_id": "a ", "messages": [{}]}', "a session id is"),
        (b'{"session_id": "a"}', "no messages"),
        (b'{"session_id": "a", "messages": []}', "no messages"),
        (b'{"session_id": "a", "messages": {"role": "user"}}', "no messages"),
        (b'{"session_id": "a", "messages": [{}, "secret"]}', "message 2 is not an object"),
    ],
)
def test_a_bad_line_says_why_and_quotes_nothing(line: Any, why: Any) -> None:
    with pytest.raises(BadLine, match=why) as refused:
        parse(7, line, CHECK_ID)
    assert "secret" not in str(refused.value)


def test_a_line_keeps_every_key_and_type() -> None:
    messages = [{"role": "user", "content": None, "n": [1, 1.0, True, 2**70], "s": "\ud800é"}]
    found = parse(3, json.dumps({"session_id": "a", "messages": messages, "more": 1}).encode(), CHECK_ID)
    assert (found.line, found.session_id) == (3, "a")
    assert json.dumps(found.messages) == json.dumps(messages)
    assert parse(3, b'{"messages": [{}]}').session_id == "", "tune needs no ids"


def test_marked_answers_have_a_text_and_an_answer() -> None:
    def line(questions: Any) -> Any:
        return parse(1, json.dumps({"session_id": "a", "messages": [{}], "questions": questions}).encode(), CHECK_ID)

    assert questions_of(line([{"text": "Where?", "answer": "Lisbon", "gold": [3]}])) == [Question("Where?", "Lisbon")]
    assert questions_of(line(None)) == []
    for wrong in ([{"text": "Where?"}], [{"text": "secret", "answer": " "}], ["secret"], {"text": 1, "answer": "a"}):
        with pytest.raises(BadLine, match="question 1 has no text and answer"):
            questions_of(line(wrong))


async def test_a_sample_is_spread_over_the_file_and_only_its_lines_are_parsed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", *({"messages": CHAT} for _ in range(9)), b"not of the sample\n")
    found, count = await sample(file, 3, lambda transcript: transcript.line)
    assert (found, count) == ([1, 4, 7], 10)
    with pytest.raises(Stop, match="line 10: not JSON"):
        await sample(file, 10, lambda transcript: transcript.line)
    with pytest.raises(Stop, match="Is a directory"):
        await sample(tmp_path, 3, lambda transcript: transcript.line)
