"""Merged blocks: four full blocks in one field, and the signatures of the four."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.remembered.friends import friends
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
from redismem.originals.signatures import (
    decode_signature,
    encode_signature,
    find_signatures,
    is_signature,
    join_signatures,
    split_signatures,
)
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
        assert (signature is None) == (own is None)
        if signature is not None and own is not None:
            assert decode_signature(signature) == decode_signature(split_signatures(own)[0])


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
    other = encode_signature(0, [["zebra"]], 7)
    known = dict(enumerate(split_signatures(encode_fields(1, elements, "1-ab")[b"s0"])[:3])) | {1: other}
    signatures = split_signatures(encode_fields(1, elements, "1-ab", None, known)[b"s0"])
    assert decode_signature(signatures[1]) == decode_signature(other)
    assert decode_signature(signatures[3]).count == BLOCK_COUNT
    single = encode_fields(17, elements[:BLOCK_COUNT], "1-ab", None, {1: signatures[1]})[b"s1"]
    assert split_signatures(single) == [other], "one of a merged block stands alone again"


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
    sizes = b"".join(len(each).to_bytes(3, "big") for each in four)
    earlier = b"\x04" + sizes + b"".join(four)
    assert split_signatures(earlier) == four
    for damaged in (earlier[:-1], b"\x06" + foreign, b"", b"\x04" + foreign[:11]):
        with pytest.raises(Undecodable):
            split_signatures(damaged)
    checked = (crc32(foreign) & 0xFFFF).to_bytes(2, "big") + foreign
    for merged in (foreign, checked):
        for part in split_signatures(b"\x05" + merged):
            with pytest.raises(Undecodable):
                decode_signature(part)


def test_signatures_of_a_merged_block_take_a_tenth_less_and_a_changed_one_is_found_out() -> None:
    texts = [turn.payload["content"] for turn in friends("en", 64, seed=5).turns]
    four = [encode_signature(0, [[text] for text in texts[at : at + 16]], 3_000) for at in range(0, 64, 16)]
    field = join_signatures(four)
    assert len(field) < 0.9 * sum(map(len, four))
    assert [decode_signature(each) for each in split_signatures(field)] == [decode_signature(each) for each in four]
    for at in range(1, len(field), 7):
        changed = split_signatures(field[:at] + bytes([field[at] ^ 1]) + field[at + 1 :])
        assert not any(map(is_signature, changed))
