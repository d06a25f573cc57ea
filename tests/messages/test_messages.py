"""Messages and state values round-trip through their format in Redis."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from support.json_values import is_identical, messages, texts, values

from redismem.errors import InvalidMessage, InvalidState, UnsupportedFormat
from redismem.messages.decoding import decode_messages
from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.messages.values import Undecodable, decode_value, encode_value

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")


class Colour(enum.StrEnum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int = 1


UNSTORABLE: list[Any] = [
    (1,),
    {"a"},
    frozenset(["a"]),
    b"bytes",
    bytearray(b"bytes"),
    memoryview(b"bytes"),
    datetime.now(UTC),
    datetime.now(timezone(timedelta(hours=3))),
    datetime(2026, 1, 1),  # noqa: DTZ001
    date(2026, 1, 1),
    timedelta(1),
    decimal.Decimal(1),
    uuid.UUID(int=1),
    Point(),
    object(),
    1j,
    {1: "int key"},
    {None: 1},
    {True: 1},
    {1.5: 1},
    {b"a": 1},
    {("a",): 1},
    range(3),
    iter([1]),
    print,
    msgspec.UNSET,
]


def nested_list(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def store_and_load(message: Any, **options: Any) -> Message:
    """Return the message after a round trip through its encoding."""
    element, _ = encode_message(message, **options)
    return decode_messages([element + STAMP], 7, "1-ab")[0]


@given(payload=messages)
@example(payload={})
@example(payload={"content": None})
def test_a_dict_comes_back_as_it_was_put_in(payload: dict[str, Any]) -> None:
    message = store_and_load(payload)
    assert is_identical(message.to_openai(), payload)
    assert (message.seq, message.epoch, message.stored_ms) == (7, "1-ab", 1_700_000_000_123)


@given(value=values)
def test_a_state_value_comes_back_as_it_was_put_in(value: Any) -> None:
    assert is_identical(decode_value(encode_value(value)), value)


@given(payload=messages, metadata=values, id=texts)
def test_what_is_known_beside_a_message_comes_back_and_goes_to_no_model(payload: Any, metadata: Any, id: str) -> None:
    at = datetime(2026, 3, 1, 12, 0, 0, 123456, timezone(timedelta(hours=2)))
    reserved = {"role", "content", "name", "tool_calls", "tool_call_id", "metadata", "timestamp", "id", "self"}
    payload = {key: value for key, value in payload.items() if key not in reserved or key in {"role", "content"}}
    message = Message(**payload, metadata={"kept": metadata}, timestamp=at, id=id)
    back = store_and_load(message)
    assert is_identical({"kept": back.to_openai()}, {"kept": message.to_openai()})
    assert is_identical(dict(sorted(back.to_openai().items())), dict(sorted(payload.items())))
    assert is_identical(back.metadata, {"kept": metadata})
    assert (back.timestamp, back.id) == (at, id)
    assert back.time_ms == int(at.timestamp() * 1000)


@pytest.mark.parametrize("value", UNSTORABLE, ids=lambda value: type(value).__name__)
def test_what_would_come_back_as_another_is_refused_wherever_it_stands(value: Any) -> None:
    for place in (value, [value], {"a": value}, {"a": [{"b": value}]}, [2**70, value], ["\ud800", value]):
        with pytest.raises(InvalidState):
            encode_value(place)
        with pytest.raises(InvalidMessage):
            encode_message({"role": "user", "content": place})
        with pytest.raises(InvalidMessage):
            encode_message(Message("user", metadata={"m": place}))


@pytest.mark.parametrize("message", [None, "text", ["role"], 5, ("role", "user"), Point(), {1: "x"}, {None: 1}])
def test_what_is_no_dict_with_string_keys_is_refused(message: Any) -> None:
    with pytest.raises(InvalidMessage):
        encode_message(message)


def test_an_enum_of_strings_is_stored_as_its_string() -> None:
    assert store_and_load({"role": Colour.RED}).role == "red"


def test_an_integer_too_long_for_text_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        encode_message({"n": 10**5000})


def test_a_value_that_holds_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidState):
        encode_value(circle)


def test_depth_is_limited_so_that_what_is_stored_can_be_read_from_deep_inside_a_program() -> None:
    element, _ = encode_message({"content": nested_list(99)})
    for value in (nested_list(100), ["\ud800", nested_list(99)]):
        with pytest.raises(InvalidMessage, match="100 deep"):
            encode_message({"content": value})

    def read(frames: int) -> list[Message]:
        return read(frames - 1) if frames else decode_messages([element + STAMP], 1, "e")

    assert read(600)[0].content == nested_list(99)


def test_absent_null_empty_text_and_empty_list_are_four_things() -> None:
    rests: list[dict[str, Any]] = [{}, {"content": None}, {"content": ""}, {"content": []}]
    four = [{"role": "user"} | rest for rest in rests]
    back = [store_and_load(payload) for payload in four]
    assert [message.to_openai() for message in back] == four
    assert ["content" in message for message in back] == [False, True, True, True]
    assert [Message("user").to_openai(), Message("user", None).to_openai()] == four[:2]
    assert Message(None).to_openai() == {"role": None}


def test_the_bytes_are_what_the_module_says() -> None:
    element, tokens = encode_message(Message("user", "hello", metadata={"a": 1}))
    whole = element + STAMP
    assert whole[:2] == b"\x95\x01"
    assert msgspec.msgpack.decode(whole) == [
        1,
        tokens,
        {"role": "user", "content": "hello"},
        {"metadata": {"a": 1}},
        1_700_000_000_123,
    ]
    assert msgspec.msgpack.decode(encode_message({"a": 2**70})[0] + STAMP)[2] == b'{"a":1180591620717411303424}'
    assert msgspec.msgpack.decode(encode_message({"a": 1})[0] + STAMP)[3] is None


def test_tokens_are_a_quarter_of_the_bytes_and_four_or_what_the_counter_says() -> None:
    payload = {"role": "user", "content": "x" * 400}
    size = len(msgspec.msgpack.encode(payload))
    assert store_and_load(payload).tokens == encode_message(payload)[1] == size // 4 + 4
    assert store_and_load(payload, count_tokens=lambda given: len(given["content"])).tokens == 400
    assert store_and_load(Message("user", "ab"), count_tokens=lambda given: len(given["content"])).tokens == 2


@pytest.mark.parametrize("count", [-1, 1.5, "3", None, True, 1 << 32])
def test_a_counter_that_does_not_count_is_refused(count: Any) -> None:
    with pytest.raises(InvalidMessage, match="token counter"):
        encode_message({"role": "user"}, lambda _: count)


GOOD = encode_message({"role": "user"})[0] + STAMP


@pytest.mark.parametrize(
    "element",
    [
        b"",
        b"\x95",
        b"\x95\x01",
        b'{"role": "user"}',
        b"\xc1",
        GOOD[:-1],
        GOOD + b"\x00",
        GOOD[:-9],
        b"\x94" + GOOD[1:],
        b"\x96" + GOOD[1:] + b"\x00",
        b"\x95\x00" + GOOD[2:],
        b"\x95\xff" + GOOD[2:],
        b"\x95\x01\x00\xc4\x01{\xc0" + STAMP,
        b"\x95\x01\x00\xc4\x02\xff\xff\xc0" + STAMP,
        b"\x95\x01\x00\x90\xc0" + STAMP,
        b"\x95\x01\x00\x81\xa1a" + b"\x91" * 200_000 + b"\xc0\xc0" + STAMP,
    ],
)
def test_bytes_that_are_none_of_ours_are_called_so(element: bytes) -> None:
    for elements in ([element], [GOOD, element], [element, GOOD]):
        with pytest.raises(Undecodable):
            decode_messages(elements, 1, "e")


@pytest.mark.parametrize("version", [3, 4, 127])
@pytest.mark.parametrize("rest", [GOOD[2:], b"", b"\xc1 another shape"])
def test_a_newer_version_is_told_from_garbage(version: int, rest: bytes) -> None:
    newer = b"\x95" + bytes([version]) + rest
    for elements in ([newer], [GOOD, newer], [newer, GOOD]):
        with pytest.raises(UnsupportedFormat, match=f"version {version}"):
            decode_messages(elements, 1, "e")


@pytest.mark.parametrize(
    "packed", [b"", b"\xc1", b"\x92\x01", b"\xc4\x01{", b"\xc4\x01\xff", b"\x91" * 200_000 + b"\xc0"]
)
def test_a_state_value_that_is_none_of_ours_is_called_so(packed: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_value(packed)


def test_no_messages_are_no_messages() -> None:
    assert decode_messages([], 1, "e") == []


def test_an_id_and_a_time_are_there_once_a_message_is_stored() -> None:
    message = Message("user", "hello")
    assert (message.id, message.timestamp, message.seq) == (None, None, 0)
    back = store_and_load(message)
    assert back.id == "1-ab:7"
    assert back.timestamp == datetime.fromtimestamp(1_700_000_000.123, UTC)
    assert back.time_ms == 1_700_000_000_123
    assert store_and_load({"role": "user", "id": "mine", "timestamp": "noon"}).id == "mine"
    assert store_and_load({"role": "user", "id": "mine", "timestamp": "noon"}).timestamp == "noon"


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="time zone"):
        Message("user", timestamp=datetime(2026, 1, 1))  # noqa: DTZ001


def test_a_message_shows_its_parts() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    message = Message("assistant", None, name="bot", tool_calls=[call], refusal="no")
    assert (message.role, message.content, message.name, message.tool_calls) == ("assistant", None, "bot", [call])
    assert (message.tool_call_id, message["refusal"], "audio" in message) == (None, "no", False)
    assert Message("tool", "x", tool_call_id="c").tool_call_id == "c"
    assert Message("user", "a") == Message("user", "a") != Message("user", "b")
    assert Message("user", "a") != {"role": "user", "content": "a"}
    assert Message.from_openai({"role": "x"}).to_openai() == {"role": "x"}


def test_a_message_does_not_show_its_text() -> None:
    message = Message("user", "CANARY", name="CANARY", metadata={"CANARY": "CANARY"}, id="CANARY", other="CANARY")
    assert "CANARY" not in repr(message) + repr(store_and_load(message)) + str(message)


@pytest.mark.parametrize(
    "value",
    [{"a CANARY": (1,)}, {"a": ("CANARY",)}, {"CANARY@": 1j}, {"a": {5: "CANARY"}}, {"a": 10**5000, "b": "CANARY"}],
)
def test_a_refusal_does_not_show_the_value(value: Any) -> None:
    for encode in (encode_value, encode_message):
        with pytest.raises((InvalidState, InvalidMessage)) as refused:
            encode(value)
        assert "CANARY" not in str(refused.value)
        assert refused.value.__cause__ is None
