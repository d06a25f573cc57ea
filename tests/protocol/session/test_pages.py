"""Decoding of pages, readable and unreadable."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.errors import CorruptSession, UnsupportedFormat
from redismem.messages.encoding import encode_message
from redismem.originals.blocks import encode_block
from redismem.protocol.session.pages import Block, MessagePage, find_blocks

STAMP = b"\xcf" + (1_700_000_000_123).to_bytes(8, "big")
ELEMENTS = [encode_message({"role": "user", "content": f"{seq}"})[0] + STAMP for seq in range(41)]


def block(first: int, last: int) -> bytes:
    return encode_block(first, ELEMENTS[first : last + 1])


def page_of(start: int, originals_stop: int, block_count: int, *stored: Any) -> MessagePage:
    numbers = range((start - 1) // 16, (start - 1) // 16 + block_count)
    blocks = find_blocks(numbers, dict(zip(numbers, stored, strict=False)))
    return MessagePage("s", "1-ab", start, originals_stop, blocks, stored[block_count:])


def read_seqs(start: int, originals_stop: int, block_count: int, *stored: Any) -> list[int]:
    messages = page_of(start, originals_stop, block_count, *stored).messages()
    assert [message.content for message in messages] == [str(message.seq) for message in messages]
    assert {message.epoch for message in messages} <= {"1-ab"}
    return [message.seq for message in messages]


def test_a_page_has_its_epoch_and_its_messages() -> None:
    assert read_seqs(4, 4, 0, *ELEMENTS[4:6]) == [4, 5]
    assert read_seqs(6, 6, 0) == []


def test_only_the_requested_messages_of_blocks_are_returned() -> None:
    assert read_seqs(5, 12, 1, block(1, 16)) == list(range(5, 12))
    assert read_seqs(14, 35, 3, block(1, 16), block(17, 32), block(33, 40), *ELEMENTS[35:38]) == list(range(14, 38))
    assert read_seqs(3, 20, 2, block(7, 16), block(17, 19), *ELEMENTS[20:22]) == list(range(7, 22)), "nothing before 7"
    assert read_seqs(1, 40, 3, block(1, 16), None, block(33, 39), ELEMENTS[40]) == [*range(1, 17), *range(33, 41)]


FOREIGN = {
    "empty": b"",
    "a text": b"foreign",
    "another version": b"\x02" + block(17, 32)[1:],
    "more than it has places": block(17, 32)[:1] + b"\x01" + block(17, 32)[2:],
    "one element too few": block(17, 32)[:2] + b"\x11" + block(17, 32)[3:],
    "cut": block(17, 32)[:-1],
    "longer": block(17, 32) + b"x",
    "a bit is another": block(17, 32)[:40] + bytes([block(17, 32)[40] ^ 1]) + block(17, 32)[41:],
    "elements that are none": encode_block(17, [b"\x01"] * 16),
}


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN)
def test_an_unreadable_block_is_listed_and_the_others_are_read(foreign: bytes) -> None:
    found = page_of(1, 35, 3, block(1, 16), foreign, block(33, 34), *ELEMENTS[35:37])
    assert [message.seq for message in found.messages()] == [*range(1, 17), *range(33, 37)]
    assert found.unreadable == ([Block(1, foreign)] if foreign else [])


def test_an_unreadable_window_is_corrupt() -> None:
    with pytest.raises(CorruptSession):
        page_of(4, 4, 0, b"foreign").messages()


def test_messages_of_a_newer_release_are_refused() -> None:
    newer = encode_block(1, [b"\x95\x03" + ELEMENTS[1][2:]])
    with pytest.raises(UnsupportedFormat) as refused:
        read_seqs(1, 2, 1, newer)
    assert refused.value.session_id == "s"
