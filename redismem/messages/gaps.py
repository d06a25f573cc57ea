"""Gaps: elements that stand for consecutive seqs without a message. No list holds two gaps side by side. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from redismem.messages.encoding import encode_message
from redismem.messages.message import STAMP_BYTES, Message
from redismem.messages.values import Undecodable

_HEAD = encode_message(Message.restored({}, {"gap": 1}, 0, 0, 0, ""), lambda _: 0)[0][:-1]
"""All bytes of a gap before the number of its seqs."""


def encode_gap(count: int) -> bytes:
    """Return the unstamped element that stands for `count` seqs."""
    return _HEAD + msgspec.msgpack.encode(count)


def gap_count(element: bytes) -> int:
    """Return the number of seqs for which a gap stands; 0 for a message.

    Raises:
        Undecodable: the number cannot be read.
    """
    if not element.startswith(_HEAD):
        return 0
    try:
        count: int = msgspec.msgpack.decode(element[len(_HEAD) : -STAMP_BYTES], type=int)
    except msgspec.MsgspecError:
        raise Undecodable("a gap has no number of seqs") from None
    if count < 1:
        raise Undecodable("a gap stands for no seq")
    return count


def seqs_count(elements: Iterable[bytes]) -> int:
    """Return the number of seqs of these elements. Raises Undecodable."""
    return sum(gap_count(element) or 1 for element in elements)


def last_seqs(elements: Sequence[bytes], last_seq: int) -> list[int]:
    """Return the last seq of each element; `last_seq` is the last seq of the last one. Raises Undecodable."""
    seqs = []
    for element in reversed(elements):
        seqs.append(last_seq)
        last_seq -= gap_count(element) or 1
    seqs.reverse()
    return seqs


def place_of(seq: int, first_seq: int, last_seq: int, elements: Sequence[bytes]) -> int:
    """Return the place of a seq in a window of these elements: negative before it, its length after it.

    Raises:
        Undecodable: a gap cannot be read.
    """
    if seq < first_seq or len(elements) == last_seq - first_seq + 1:
        return seq - first_seq
    return bisect_left(last_seqs(elements, last_seq), seq)


def elements_between(elements: Sequence[bytes], last_seq: int, start_seq: int, stop_seq: int) -> list[bytes]:
    """Return one element per seq from `start_seq` to before `stop_seq`; `last_seq` is the last seq of `elements`.

    Raises:
        Undecodable: a gap cannot be read.
    """
    between: list[bytes] = []
    for element, seq in zip(elements, last_seqs(elements, last_seq), strict=True):
        first = seq + 1 - (gap_count(element) or 1)
        count = min(seq + 1, stop_seq) - max(first, start_seq)
        between += [element] * count if first == seq else [encode_gap(1) + element[-STAMP_BYTES:]] * count
    return between


def fill_gaps(messages: Mapping[int, bytes], first_seq: int, last_seq: int, stamp: bytes) -> list[bytes]:
    """Return the elements of the seqs from `first_seq` to `last_seq`, with gaps where `messages` has no element.

    The keys of `messages` must be in order.
    """
    elements, next_seq = list[bytes](), first_seq
    for seq, element in messages.items():
        if first_seq <= seq <= last_seq:
            elements += [encode_gap(seq - next_seq) + stamp] if seq > next_seq else []
            elements.append(element)
            next_seq = seq + 1
    return [*elements, encode_gap(last_seq + 1 - next_seq) + stamp] if next_seq <= last_seq else elements
