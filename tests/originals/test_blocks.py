"""Blocks of originals: every element round-trips through the block of its seq."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.encoding import encode_message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import (
    BLOCK_COUNT,
    block_number,
    compress_frame,
    decode_block,
    decompress_frame,
    encode_block,
    first_seq_of,
    split_into_blocks,
    unpacked_bytes,
)
from redismem.originals.built_in import built_in

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
TEXTS = st.text(max_size=50)


def element(text: str) -> bytes:
    return encode_message({"role": "user", "content": text})[0] + STAMP


@given(st.integers(1, 1 << 53), st.lists(TEXTS, max_size=70))
def test_elements_part_into_blocks_and_come_back(first_seq: int, texts: list[str]) -> None:
    elements = [element(text) for text in texts]
    found: list[bytes] = []
    for number, seq, taken in split_into_blocks(first_seq, elements):
        assert seq == first_seq + len(found)
        assert {block_number(seq + at) for at in range(len(taken))} == {number}
        assert decode_block(number, encode_block(seq, taken)) == (seq, list(taken))
        found += taken
    assert found == elements


def test_a_block_has_sixteen_places() -> None:
    assert [block_number(seq) for seq in (1, 16, 17, 32, 33)] == [0, 0, 1, 1, 2]
    assert [first_seq_of(number) for number in (0, 1, 2)] == [1, 17, 33]
    with pytest.raises(AssertionError):
        encode_block(2, [b"x"] * BLOCK_COUNT)


@given(st.lists(TEXTS, min_size=1, max_size=16), st.integers(0, 10_000), st.integers(0, 255))
def test_bytes_that_have_changed_are_found_out(texts: list[str], at: int, other: int) -> None:
    block = encode_block(1, [element(text) for text in texts])
    changed = bytearray(block)
    changed[at % len(block)] = other
    try:
        assert decode_block(0, bytes(changed)) == decode_block(0, block)
    except Undecodable:
        assert bytes(changed) != block
    except AssertionError:
        # The place of the first stands outside of what is checked: no seq beyond the block comes of it.
        assert at % len(block) == 1
        assert block_number(decode_block(0, bytes(changed))[0]) == 0


@given(st.binary(max_size=200))
def test_foreign_bytes_are_no_block(foreign: bytes) -> None:
    for bytes_given in (
        foreign,
        b"\x03\x00\x00" + foreign,
        b"\x05\x00\x00" + foreign,
        b"\x01\x00\x01\x28\xb5\x2f\xfd" + foreign,
    ):
        with pytest.raises(Undecodable):
            decode_block(0, bytes_given)


def test_blocks_are_read_by_several_threads_at_a_time() -> None:
    texts = [f"{letter} " * 20_000 for letter in "abcdefgh"]
    told = [encode_block(1, [element(text)] * BLOCK_COUNT) for text in texts]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda block: decode_block(0, block)[1][-1], told * 4))
    assert found == [element(text) for text in texts] * 4


def test_a_frame_that_claims_to_hold_too_much_is_not_unpacked() -> None:
    with pytest.raises(Undecodable):
        decompress_frame(compress_frame(b"x" * 1_000), most_bytes=999)
    assert decompress_frame(compress_frame(b"x" * 1_000), most_bytes=1_000) == b"x" * 1_000
    claims = b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(Undecodable):
        decompress_frame(claims)


EARLIER_FORM = (
    "032200249ce50200140495c0c093938bcfe5687b4e4d79206f72646572206973204f2d31372e00542c20496e6f74656400e6"
    "b3a8e69687e795aae58fb7e381af3820e381a7e38199e380820800ae0acb067068aff3183c0409f6404b2fe01bc762ec4704"
    "079c0f37"
)
FORM = (
    "052200249c9d0200240395c0c093938bcfe5687b4e4d796973204f2d31372e002c20496e6f74656400e6b3a8e69687e795aa"
    "e58fb7e381af382080820a00d1084bec2abb6c0087f63a8fe121584efe60361e68e9057ce3588cfd88079c0f37"
)


@pytest.mark.parametrize("form", [EARLIER_FORM, FORM])
def test_the_format_is_what_it_was(form: str) -> None:
    """The built-in dictionaries are part of the format: changing a text would make stored blocks unreadable."""
    texts = ["My order is O-17.", "Thank you, I have noted that.", "注文番号は O-18 です。"]
    assert decode_block(1, bytes.fromhex(form)) == (19, [element(text) for text in texts])
    assert unpacked_bytes(bytes.fromhex(form)) == 156


def test_every_byte_of_the_built_in_dictionary_is_part_of_the_format() -> None:
    assert crc32(built_in().content) == 3408055176


@pytest.mark.parametrize("foreign", [b"", b"\x03", b"\x03\x00\x00", b"\x03\x00\x00\x20", b"\x05\x05\x00no frame"])
def test_what_is_no_block_says_no_size(foreign: bytes) -> None:
    assert unpacked_bytes(foreign) == 0
