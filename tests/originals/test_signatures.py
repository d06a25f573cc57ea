"""Signatures of blocks: they miss no word of a message, and their size is bounded."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.values import Undecodable
from redismem.originals.blocks import BLOCK_COUNT
from redismem.originals.signatures import (
    STEMS_LIMIT,
    TEXT_CHARS,
    decode_signature,
    distinct_stems,
    encode_signature,
    stem_hash,
)
from redismem.text.stems import QUESTION_STEMS, stems

FORM = (
    "689f000d002000000141005362000000000002020b4373050b43917826720fd386a7e39f326ff84844000000000208000000"
    "200000028000000020004040090000000000000020013ffd0344244444442254"
)
TEXTS = st.lists(st.lists(st.text(max_size=40), max_size=3), min_size=1, max_size=16)


@given(st.lists(st.integers(-800_000, 3_000_000), min_size=1, max_size=16), st.data())
def test_every_day_is_found_where_it_stands(days: list[int], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, BLOCK_COUNT - len(days)))
    signature = decode_signature(encode_signature(place, [["word"]] * len(days), 1_234, days))
    known = [min(max(day, -719_162), 2_932_896) for day in days]
    found = {at: day for day, mask in signature.days for at in range(16) if mask >> at & 1}
    assert [found[at] for at in range(place, place + len(days))] == known
    assert place == 0 or 0 not in found
    assert (
        len(encode_signature(0, [["word"]] * 16, 0, [19_000] * 16)) - len(encode_signature(0, [["word"]] * 16, 0)) == 4
    )


@given(TEXTS, st.data())
def test_every_stem_is_found_where_it_stands(texts: list[list[str]], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, BLOCK_COUNT - len(texts)))
    signature = decode_signature(encode_signature(place, texts, 1_234))
    assert signature.block_bytes == 1_234
    assert signature.count == sum(any(any(stems(text)) for text in each) for each in texts)
    assert list(signature.hashes) == sorted(set(signature.hashes))
    for at, each in enumerate(texts, place):
        for stem in _stems(each):
            assert signature.places()[stem_hash(stem)] >> at & 1
    wanted = {(stem_hash(stem), at) for at, each in enumerate(texts, place) for stem in _stems(each)}
    found = {(hashed, at) for hashed, mask in signature.places().items() for at in range(16) if mask >> at & 1}
    assert found == wanted


def _stems(texts: list[str]) -> list[str]:
    return [stem for text in texts for stem in stems(text) if stem not in QUESTION_STEMS]


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


@given(st.binary(max_size=60), st.integers(0, 20))
def test_foreign_bytes_with_a_checksum_are_no_signature_or_a_whole_one(foreign: bytes, count: int) -> None:
    content = count.to_bytes(2, "big") + b"\0\x04" + foreign
    forged = (crc32(content) & 0xFFFF).to_bytes(2, "big") + content
    try:
        signature = decode_signature(forged)
    except Undecodable:
        return
    assert len(signature.hashes) == len(signature.masks) == count
    assert len(signature.weights) == BLOCK_COUNT


@given(TEXTS, st.data())
def test_a_signature_that_has_changed_is_found_out(texts: list[list[str]], data: st.DataObject) -> None:
    encoded = bytearray(encode_signature(0, texts, 7))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Undecodable):
        decode_signature(bytes(encoded))


def test_words_that_only_ask_have_no_place_in_it() -> None:
    signature = decode_signature(encode_signature(0, [["What would you have said to him?"], ["zebra"]], 0))
    assert list(signature.hashes) == [stem_hash(*stems("zebra"))]
    assert signature.count == 2, "but they make a message longer"


def test_the_form_is_what_it_was() -> None:
    """Stored signatures must stay readable in later releases."""
    texts = [["My order is O-17.", "Thank you"], ["I have noted that."], ["注文番号は O-18 です。"], ["noted orders"]]
    stored = encode_signature(2, texts, 321, [19_000, 19_000, 19_000, 19_030])
    assert stored.hex() == FORM
    signature = decode_signature(bytes.fromhex(FORM))
    assert signature.places()[stem_hash(*stems("order"))] == 0b100100
