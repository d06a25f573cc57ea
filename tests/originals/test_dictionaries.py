"""Dictionaries: blocks round-trip with every dictionary, and only with the dictionary that compressed them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.dictionaries import WORDS, element, make_dictionary, sessions

from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT, decode_block, dictionary_of, encode_block
from redismem.originals.dictionaries import Dictionary, DictionaryMissing


@given(st.lists(st.text(max_size=60), min_size=1, max_size=16), st.integers(0, 1 << 40), st.sampled_from([1, 2, 255]))
@settings(deadline=None)  # the first trains them
def test_what_was_compressed_with_one_comes_back_with_it_alone(texts: list[str], number: int, version: int) -> None:
    elements, seq = [element(text) for text in texts], 16 * number + 1
    one, other = make_dictionary(version), make_dictionary(version, seed=1)
    block = encode_block(seq, elements, one)
    assert dictionary_of(block) == version
    assert decode_block(number, block, {version: one, version + 1: other}) == (seq, elements)
    with pytest.raises(DictionaryMissing, match=f"dictionary {version}, which is missing"):
        decode_block(number, block, {version + 1: one})
    with pytest.raises(DictionaryMissing, match="another one has its number"):
        decode_block(number, block, {version: other})
    plain = encode_block(seq, elements)
    assert dictionary_of(plain) is None
    assert decode_block(number, plain, {version: one}) == decode_block(number, plain) == (seq, elements)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=16), st.integers(0, 10_000), st.integers(1, 255))
@settings(deadline=None)
def test_bytes_that_have_changed_are_found_out(texts: list[str], at: int, change: int) -> None:
    known = {1: make_dictionary(1), 2: make_dictionary(2)}
    block = encode_block(1, [element(text) for text in texts], known[1])
    changed = bytearray(block)
    changed[at % len(block)] ^= change
    # Some changes make no difference: compressed otherwise, it is the same text.
    with contextlib.suppress(Undecodable):
        assert decode_block(0, bytes(changed), known)[1] == decode_block(0, block, known)[1]


def test_any_byte_that_is_another_is_found_out() -> None:
    known = {1: make_dictionary(1), 2: make_dictionary(2)}
    block = encode_block(1, [element(text) for text in WORDS[:BLOCK_COUNT]], known[1])
    for at in range(len(block)):
        changed = bytearray(block)
        changed[at] ^= 0xFF
        with pytest.raises(Undecodable):
            decode_block(0, bytes(changed), known)


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_foreign_bytes_are_no_dictionary_and_no_block(foreign: bytes) -> None:
    for content in (foreign, b"\x37\xa4\x30\xec" + foreign, make_dictionary(1).content[:-1] + foreign[:1] + b"x"):
        with pytest.raises(Undecodable):
            Dictionary(1, 0, content)
    for head in (b"\x02\x00\x01\x01", b"\x02\x00\x01\x01\x28\xb5\x2f\xfd"):
        with pytest.raises(Undecodable):
            decode_block(0, head + foreign, {1: make_dictionary(1)})


def test_it_makes_blocks_smaller_that_it_has_not_seen() -> None:
    others = [block for blocks in sessions(99).values() for block in blocks]
    with_one, without = (
        sum(len(encode_block(1, each, used)) for each in others) for used in (make_dictionary(1), None)
    )
    assert with_one < 0.9 * without
