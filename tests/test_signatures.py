"""Signatures of blocks: they miss no word of a message, and what they cost has a bound."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.blocks import BLOCK_COUNT, packed
from redismem.signatures import (
    STEMS_LIMIT,
    TEXT_CHARS,
    decode_signature,
    distinct_stems,
    encode_signature,
    stem_hash,
)
from redismem.values import Undecodable
from redismem.words import stems

TEXTS = st.lists(st.lists(st.text(max_size=40), max_size=3), min_size=1, max_size=16)


@given(TEXTS, st.data())
def test_every_stem_is_found_where_it_stands(texts: list[list[str]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, BLOCK_COUNT - len(texts)))
    signature = decode_signature(encode_signature(place, texts, 1_234))
    assert signature.block_bytes == 1_234
    assert signature.count == sum(any(stems(text) for text in each) and bool(list(_stems(each))) for each in texts)
    assert list(signature.hashes) == sorted(set(signature.hashes))
    for at, each in enumerate(texts, place):
        for stem in _stems(each):
            assert signature.places(stem_hash(stem)) >> at & 1
    wanted = {(stem_hash(stem), at) for at, each in enumerate(texts, place) for stem in _stems(each)}
    found = {(hashed, at) for hashed in signature.hashes for at in range(16) if signature.places(hashed) >> at & 1}
    assert found == wanted


def _stems(texts: list[str]) -> list[str]:
    return [stem for text in texts for stem in stems(text)]


def test_a_message_of_distinct_words_costs_a_bound() -> None:
    hostile = " ".join(f"w{number}x" for number in range(150_000))
    assert len(hostile) > 1_000_000
    found, count = distinct_stems([hostile])
    assert len(found) == STEMS_LIMIT == count
    alone = encode_signature(0, [[hostile]], len(hostile))
    assert len(alone) < 4 * STEMS_LIMIT
    full = encode_signature(0, [[hostile.replace("w", chr(97 + at))] for at in range(16)], 1)
    assert len(full) < 4 * STEMS_LIMIT * BLOCK_COUNT + 100
    assert decode_signature(full).count == 16


def test_of_a_long_text_the_beginning_is_looked_at() -> None:
    found, _ = distinct_stems(["a same " * TEXT_CHARS + "needle", "needle"])
    assert found == {"sam"}
    assert len(distinct_stems(["7" * (TEXT_CHARS - 6), "needle"])[0]) == 2
    assert len(distinct_stems(["7" * (TEXT_CHARS - 1), "needle"])[0]) == 1


@given(st.binary(max_size=300))
def test_foreign_bytes_are_no_signature(foreign: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_signature(foreign)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 19, b"x" * 21, b"\0" * 20 + b"\xff\xff\xff\xff" + b"\0" * 4, b"\0" * 100_000]
)
def test_what_is_packed_and_no_signature(content: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_signature(packed(content))
