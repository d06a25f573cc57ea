"""Gaps: every seq of a window has its element, in the list and in the blocks of originals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.decoding import decode_messages, is_gap
from redismem.messages.encoding import encode_message
from redismem.messages.gaps import elements_between, encode_gap, fill_gaps, gap_count, last_seqs, place_of, seqs_count
from redismem.messages.message import Message
from redismem.messages.values import Undecodable
from redismem.originals.blocks import block_number, decode_block, encode_block, split_into_blocks

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
SEQS = st.sets(st.integers(1, 200), max_size=40)


def message(seq: int) -> bytes:
    return encode_message({"role": "user", "content": f"{seq}"})[0] + STAMP


def window(seqs: set[int], first_seq: int, last_seq: int) -> list[bytes]:
    return fill_gaps({seq: message(seq) for seq in sorted(seqs)}, first_seq, last_seq, STAMP)


@given(SEQS, st.integers(1, 100), st.integers(0, 150))
def test_each_message_has_its_place_and_each_other_seq_is_in_a_gap(seqs: set[int], first_seq: int, count: int) -> None:
    last_seq = first_seq + count - 1
    elements = window(seqs, first_seq, last_seq)
    assert seqs_count(elements) == count
    gaps = [gap_count(element) for element in elements]
    assert not any(map(min, gaps, gaps[1:])), "no gap follows a gap"
    ends = last_seqs(elements, last_seq)
    for seq in range(first_seq, last_seq + 1):
        place = place_of(seq, first_seq, last_seq, elements)
        assert (elements[place] == message(seq)) == (seq in seqs)
        assert seq in (seqs & {ends[place]} or range(ends[place] - gaps[place] + 1, ends[place] + 1))
    assert place_of(last_seq + 1, first_seq, last_seq, elements) == len(elements)
    assert place_of(first_seq - 1, first_seq, last_seq, elements) < 0


@given(SEQS, st.integers(0, 210), st.integers(0, 210))
def test_a_part_of_a_window_has_one_element_for_each_seq(seqs: set[int], start: int, stop: int) -> None:
    part = elements_between(window(seqs, 1, 200), 200, start, stop)
    wanted = range(max(start, 1), min(stop, 201))
    assert [each.content for each in decode_messages(part, 1, "e")] == [str(s) if s in seqs else None for s in wanted]


@given(SEQS, st.integers(1, 100))
def test_blocks_hold_every_message_and_no_block_has_gaps_alone(seqs: set[int], first_seq: int) -> None:
    elements, kept = window(seqs, first_seq, 200), dict[int, Message]()
    for number, seq, part in split_into_blocks(first_seq, elements):
        assert decode_block(number, encode_block(seq, part)) == (seq, part)
        assert seq == max(first_seq, number * 16 + 1)
        assert seq + len(part) == min(201, number * 16 + 17), "up to the end of the block, or of the window"
        kept |= {each.seq: each for each in decode_messages(part, seq, "e") if not is_gap(each)}
        assert any(block_number(each) == number for each in kept)
    assert {seq: each.content for seq, each in kept.items()} == {s: str(s) for s in sorted(seqs) if s >= first_seq}


def test_a_gap_of_any_size_costs_no_more_than_its_messages() -> None:
    last_seq = 1 << 52
    elements = window({1, last_seq}, 1, last_seq)
    assert [gap_count(element) for element in elements] == [0, last_seq - 2, 0]
    assert last_seqs(elements, last_seq) == [1, last_seq - 1, last_seq]
    assert [(seq, len(part)) for _, seq, part in split_into_blocks(1, elements)] == [(1, 16), (last_seq - 15, 16)]
    assert elements_between(elements, last_seq, last_seq - 1, last_seq + 1) == [encode_gap(1) + STAMP, elements[2]]


@pytest.mark.parametrize("count", [b"", b"\x00", b"\xff", b"\xc3", b"\xa1x", b"\x01\x01"])
def test_a_gap_without_a_number_is_unreadable(count: bytes) -> None:
    with pytest.raises(Undecodable):
        gap_count(encode_gap(1)[:-1] + count + STAMP)
