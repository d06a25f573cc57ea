"""Columns: any elements round-trip byte for byte, and foreign bytes are detected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.encoding import encode_message
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.columns import decode_columns, encode_columns

STAMPS = st.integers(0, (1 << 64) - 1) | st.integers(1_700_000_000_000, 1_700_000_100_000)
TEXTS = st.text(max_size=12) | st.sampled_from(["", "\0", "a\0b", "role", "\ud800"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXTS | st.just("role"), each, max_size=3),
    max_leaves=5,
)
PAYLOADS = st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls"]) | TEXTS, VALUES, max_size=4)


@st.composite
def elements(draw: st.DrawFn) -> bytes:
    counted = draw(st.none() | st.integers(0, (1 << 32) - 1))
    beside = draw(st.none() | st.just({"pinned": True}) | st.just({"metadata": {"a": "b"}}))
    message = Message.restored(draw(PAYLOADS), beside, 0, 0, 0, "")
    packed, _ = encode_message(message, None if counted is None else lambda _: counted)
    return packed + b"\xcf" + draw(STAMPS).to_bytes(8, "big")


@given(st.lists(elements() | st.binary(max_size=20), max_size=6))
def test_elements_come_back_byte_by_byte(given: list[bytes]) -> None:
    assert decode_columns(encode_columns(given), len(given)) == given


@pytest.mark.parametrize(
    "stored",
    [
        pytest.param([b"\x95\x01\xcc\x04\x80\xc0\xcf" + bytes(8)], id="a number in more bytes than it needs"),
        pytest.param([b"\x95\x01\x06\x81\xa1a\x82\xc0\xa1b\xa1c\xa1d\xc0\xcf" + bytes(8)], id="a key that is nil"),
        pytest.param(
            [b"\x95\x01\x04\x80\xc0\xcf" + each * 8 for each in (b"\xff", b"\0", b"\xff")], id="all time apart"
        ),
    ],
)
def test_what_is_unusual_comes_back(stored: list[bytes]) -> None:
    assert decode_columns(encode_columns(stored), len(stored)) == stored


def test_a_large_element_stands_whole() -> None:
    """Splitting nested lists took longer than reading them."""
    large = encode_message({"role": "user", "content": [[""]] * 9_000})[0] + bytes(9)
    _, _, payloads, _, texts = msgspec.msgpack.decode(encode_columns([large]))
    assert (payloads, texts) == ([large], "")
    assert decode_columns(encode_columns([large]), 1) == [large]


def test_each_text_stands_behind_all_else_but_the_role() -> None:
    told: list[dict[str, Any]] = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": [{"": "Two"}], "x": {"role": "y"}},
    ]
    stored = [encode_message(each)[0] + b"\xcf" + (at + 7).to_bytes(8, "big") for at, each in enumerate(told)]
    empty = [{"role": "user", "content": ""}, {"role": "assistant", "content": [{"": ""}], "x": {"role": ""}}]
    assert msgspec.msgpack.decode(encode_columns(stored)) == [None, None, empty, [7, 1], "One\0Two\0y"]


def test_the_form_is_what_it_was() -> None:
    message = Message.restored({"role": "user", "content": "Hi"}, {"pinned": True}, 0, 0, 0, "")
    stored = [encode_message(message, lambda _: 300)[0] + b"\xcf" + (1 << 40).to_bytes(8, "big"), b"foreign"]
    form = (
        "9592cd012c009281a670696e6e6564c3c09282a4726f6c65a475736572a7636f6e74656e74a0c407666f726569676e92cf00"
        "0001000000000000a24869"
    )
    assert encode_columns(stored).hex() == form
    assert decode_columns(bytes.fromhex(form), 2) == stored


@given(st.binary(max_size=40), st.integers(0, 16))
def test_foreign_bytes_are_none(foreign: bytes, count: int) -> None:
    for content in (foreign, b"\x95" + foreign):
        with pytest.raises(Undecodable):
            decode_columns(content, count)


HI = {"role": "user", "content": ""}


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param((None, None, [HI], [1], "a\0b"), id="a text too many"),
        pytest.param((None, None, [HI | {"name": ""}], [1], "a"), id="one too few"),
        pytest.param((None, None, [HI, HI], [1, 1], "a\0b"), id="an element too many"),
        pytest.param(([5, 5], [None, None], [HI, HI], [1, 1], "a\0b"), id="an element too many in each column"),
        pytest.param((None, None, [HI], [1, 1], "a"), id="a time too many"),
        pytest.param(([5, 5], None, [HI], [1], "a"), id="tokens too many"),
        pytest.param((None, [None, None], [HI], [1], "a"), id="too many beside"),
        pytest.param((None, None, [HI], [-1], "a"), id="before all time"),
        pytest.param((None, None, [HI], [1], "a", 1), id="a column too many"),
        pytest.param((None, None, [HI], ["1"], "a"), id="a time that is none"),
    ],
)
def test_columns_that_do_not_fit_each_other_are_none(columns: tuple[Any, ...]) -> None:
    with pytest.raises(Undecodable):
        decode_columns(msgspec.msgpack.encode(columns), 1)
