"""Merged blocks: four full blocks in one field, and the signatures of the four."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.encoding import encode_message
from redismem.messages.gaps import encode_gap, gap_count
from redismem.messages.values import Undecodable
from redismem.originals.blocks import (
    BLOCK_COUNT,
    MERGED_COUNT,
    block_number,
    decode_block,
    decode_parts,
    head_of,
    is_merged,
    numbers_in,
)
from redismem.originals.fields import MERGED_BYTES, encode_fields, merged_number, replaced_fields
from redismem.originals.signatures import decode_signature, find_signatures, join_signatures, split_signatures
from redismem.protocol.session.pages import find_blocks, with_heads

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
GAP = encode_gap(1) + STAMP


def element(number: int, size: int = 0) -> bytes:
    return encode_message({"role": "user", "content": f"word{number} " + "x" * size})[0] + STAMP


def blocks_of(fields: dict[bytes, bytes]) -> dict[int, bytes]:
    return {int(name): value for name, value in fields.items() if name.isdigit()}


@given(st.integers(1, 80), st.integers(1, 100), st.sets(st.integers(0, 100), max_size=40))
def test_every_seq_is_in_one_block_and_has_the_signature_of_its_own(first: int, count: int, gaps: set[int]) -> None:
    elements = [GAP if at in gaps else element(first + at) for at in range(count)]
    fields = encode_fields(first, elements, "1-ab")
    stored, found = blocks_of(fields), dict[int, bytes]()
    for number, block in stored.items():
        seq, part = decode_block(number, block)
        found |= dict(enumerate(part, seq))
        assert is_merged(block) == (len(part) == MERGED_COUNT)
    wanted = dict(enumerate(elements, first))
    alone = {
        seq for seq in wanted if all(gap_count(wanted[at]) for at in wanted if block_number(at) == block_number(seq))
    }
    assert found == {seq: each for seq, each in wanted.items() if seq not in alone}
    numbers = sorted({block_number(seq) for seq in wanted})
    reread = find_blocks(numbers, {number: stored.get(number) for number in with_heads(numbers)})
    assert {block.number: block.stored for block in reread} == stored
    signed = find_signatures({number: fields.get(b"s%d" % number) for number in with_heads(numbers)}, numbers)
    for number, signature in zip(numbers, signed, strict=True):
        part = [wanted[seq] for seq in sorted(wanted) if block_number(seq) == number]
        own = encode_fields(max(first, number * BLOCK_COUNT + 1), part, "1-ab").get(b"s%d" % number)
        assert signature == (None if own is None else split_signatures(own)[0])


def test_only_four_full_and_small_blocks_are_merged() -> None:
    merged = encode_fields(65, [element(seq) for seq in range(64)], "1-ab")
    assert list(merged) == [b"4", b"s4"]
    assert merged_number(merged) == 4
    assert replaced_fields(4) == ["5", "s5", "6", "s6", "7", "s7"]
    assert [*decode_parts(4, merged[b"4"])] == [4, 5, 6, 7]
    for first, count in ((65, 63), (66, 64), (49, 64)):
        assert merged_number(encode_fields(first, [element(seq) for seq in range(count)], "1-ab")) is None
    large = [element(seq, MERGED_BYTES // 64) for seq in range(64)]
    assert len(encode_fields(1, large, "1-ab")) == 8, "whoever needs one message would decompress them all"


def test_known_signatures_are_not_made_again() -> None:
    elements = [element(seq) for seq in range(64)]
    known = dict(enumerate(split_signatures(encode_fields(1, elements, "1-ab")[b"s0"])[:3])) | {1: b"as it is"}
    signatures = split_signatures(encode_fields(1, elements, "1-ab", None, known)[b"s0"])
    assert signatures[1] == b"as it is"
    assert decode_signature(signatures[3]).count == BLOCK_COUNT


def test_the_merged_block_counts_and_a_damaged_one_hides_none_beside_it() -> None:
    merged = encode_fields(1, [element(seq) for seq in range(64)], "1-ab")[b"0"]
    single = encode_fields(17, [element(16)], "1-ab")[b"1"]
    assert find_blocks([1, 2], {0: merged, 1: single, 2: None}) == [(0, merged)]
    damaged = b"\x07" + merged[1:]
    assert find_blocks([1, 2], {0: damaged, 1: single, 2: None}) == [(1, single), (0, damaged)]
    assert numbers_in(0, damaged) == range(4)
    assert numbers_in(1, single) == range(1, 2)
    assert head_of(7) == 4


@pytest.mark.parametrize("number", [1, 2, 7])
def test_a_merged_block_is_valid_at_its_own_number_only(number: int) -> None:
    merged = encode_fields(1, [element(seq) for seq in range(64)], "1-ab")[b"0"]
    with pytest.raises(Undecodable):
        decode_block(number, merged)
    with pytest.raises(Undecodable):
        decode_block(0, merged[:1] + b"\x01" + merged[2:])
    assert decode_block(4, merged)[0] == 65


@given(st.binary(max_size=60))
def test_foreign_bytes_are_no_signatures(foreign: bytes) -> None:
    assert split_signatures(join_signatures([foreign])) == [foreign]
    four = [foreign, b"", foreign[:7], b"x"]
    assert split_signatures(join_signatures(four)) == four
    for damaged in (join_signatures(four)[:-1], b"\x05" + foreign, b"", b"\x04" + foreign[:11]):
        with pytest.raises(Undecodable):
            split_signatures(damaged)
