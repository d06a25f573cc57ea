"""Values that cannot be stored exactly are refused with their path; timestamps out of range are refused."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.json_values import texts, values

from redismem import InvalidMessage, InvalidState, Message, Session
from redismem.context.results import Summary
from redismem.messages import values as values_module
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.values import decode_value, encode_value, pack_unchecked

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
NOT_FINITE = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize(
    ("message", "path"),
    [
        (lambda number: {"content": [{"score": number}]}, "content[0].score"),
        (lambda number: {"score": number}, "score"),
        (lambda number: {"a": [1.5, [number]]}, "a[1][0]"),
        (lambda number: {"big": 2**70, "a": number}, "a"),
        (lambda number: {"half": "\ud800", "a": [number]}, "a[0]"),
        (lambda number: Message("user", metadata={"m": {"x": number}}), "metadata.m.x"),
        (lambda number: {"no name": [number]}, "[…][0]"),
    ],
)
async def test_what_is_no_finite_number_is_refused(session: Session, message: Any, path: str, number: float) -> None:
    with pytest.raises(InvalidMessage, match="not a finite number") as refused:
        await session.append(message(number))
    assert f": {path} is " in str(refused.value)
    with pytest.raises(InvalidState, match="not a finite number") as refused_state:
        await session.merge({"scores": [0.5, number]})
    assert "param 'scores'[1] is" in str(refused_state.value)
    assert not await session.exists()


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": [{"b": (1,)}]}, "a[0].b is a value of type tuple"),
        ({"a": {5: 1}}, "a has a key of type int"),
        ({5: 1}, "the value has a key of type int"),
        ({"a": [1, 10**5000]}, "a[1] is a value of type int"),
        ({"half": "\ud800", "a": [object()]}, "a[0] is a value of type object"),
    ],
)
def test_a_refusal_says_where(payload: Any, where: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        encode_message(payload)
    assert where in str(refused.value)


@pytest.mark.parametrize("sound", [0, "", None, 1.5, [], {}, [[0]], {"k": {"k": 0}}])
def test_a_path_is_made_for_the_fault_alone(sound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str | int] = []

    def counted(path: str, key: str | int) -> str:
        steps.append(key)
        return step(path, key)

    step = values_module._step
    monkeypatch.setattr(values_module, "_step", counted)
    for fault in (math.inf, 10**5000, (1,)):
        with pytest.raises(InvalidMessage, match=re.escape("content.k[200] is ")):
            encode_message({"role": "user", "content": {"k": [*[sound] * 200, fault]}})
        assert steps == ["content", "k", 200]
        steps.clear()


def itself() -> list[Any]:
    value: list[Any] = []
    value += [value, value]
    return value


@pytest.mark.parametrize("value", [[math.inf], [{"a": [(1,)]}], [10**5000], itself()])
def test_what_no_object_of_an_sdk_spoils_is_not_copied_to_look_for_one(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redismem.messages.encoding.dump_models", lambda payload: pytest.fail("a copy was made"))
    with pytest.raises(InvalidMessage):
        encode_message({"role": "user", "content": value})


@given(value=values, key=texts, at=st.integers(0, 3), number=st.sampled_from(NOT_FINITE))
def test_wherever_it_stands(value: Any, key: str, at: int, number: float) -> None:
    encode_value([value])
    for place in ([*[value] * at, number], {key: number}, [{key: [value, number]}]):
        with pytest.raises(InvalidState):
            encode_value(place)


def test_what_an_earlier_release_stored_is_read() -> None:
    assert decode_value(pack_unchecked([math.inf])) == [math.inf]


EDGES = [
    datetime.max.replace(tzinfo=timezone(-timedelta(hours=5))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=5))),
]


@pytest.mark.parametrize("at", EDGES)
def test_a_time_that_could_not_be_read_is_refused(at: datetime) -> None:
    with pytest.raises(InvalidMessage, match="years 1 to 9999"):
        Message("user", "hello", timestamp=at)


@given(at=st.datetimes(timezones=st.timezones() | st.just(UTC)))
def test_any_other_time_comes_back(at: datetime) -> None:
    try:
        at.astimezone(UTC)
    except OverflowError:
        return
    back = decode_messages([encode_message(Message("user", timestamp=at))[0] + STAMP], 1, "e")[0]
    assert back.timestamp == at.astimezone(UTC)
    ms = back.time_ms
    assert "<summary>" in Summary("i", "x", 1, 1, ms, ms, "m", 1, 1, ()).to_openai()["content"]


def test_a_time_stored_by_an_earlier_release_can_be_read() -> None:
    beside = {"timestamp_us": 253_402_318_799_999_999}
    message = Message.restored({"role": "user"}, beside, 1, 1, 1, "e")
    assert message.timestamp.year == 9999
    summary = Summary("i", "x", 1, 1, message.time_ms, message.time_ms, "m", 1, 1, ())
    assert "9999-12-31" in summary.to_openai()["content"]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, "pass them one by one"),
        ({"content": "hi"}, "this has neither"),
        ({}, "this has neither"),
        ({"role": None, "content": "hi"}, "this has neither"),
        ({"role": 3, "content": "hi"}, "the role of a message must be a plain string, not one of the type int"),
        ({"role": "", "content": "hi"}, "this has neither"),
        (Message(content="hi"), "this has neither"),
    ],
)
async def test_a_dict_that_no_provider_takes_is_refused(session: Session, message: Any, why: str) -> None:
    for pin in (None, True):
        with pytest.raises(InvalidMessage, match=why):
            await session.append({"role": "user", "content": "first"}, message, pin=pin)
    assert not await session.exists()


async def test_an_item_with_a_type_is_a_message(session: Session) -> None:
    item = {"type": "function_call_output", "call_id": "c", "output": "sunny"}
    await session.append(item, {"role": "user", "content": "hi"})
    assert (await session.messages())[0].to_openai() == item


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"role": "bot", "content": "Hi."}, "message 1: the role of a message must be one"),
        ({"role": "user", "text": "Hi."}, "message 1: the words .* no provider reads the field text"),
        ({"role": "assistant", "message": "Hi."}, "no provider reads the field message"),
    ],
)
async def test_what_no_provider_reads_is_refused(session: Session, payload: dict[str, Any], reason: str) -> None:
    for message in (payload, Message(**payload)):
        with pytest.raises(InvalidMessage, match=reason):
            await session.append(message)
    assert (await session.read()).total_messages == 0


@pytest.mark.parametrize("role", ["developer", "function", "model", "chatbot", "CHATBOT", "human", "critic"])
async def test_roles_of_providers_and_frameworks_are_open(session: Session, role: str) -> None:
    await session.append({"role": role, "content": "Hi.", "text": "Hi."}, {"role": role, "parts": [{"text": "x"}]})
    await session.append({"type": "reasoning", "summary": []}, Message.opaque({"role": "bot", "text": "x"}))
