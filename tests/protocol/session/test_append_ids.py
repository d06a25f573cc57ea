"""The ring of append ids in Python, as the fallback uses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import CorruptSession, UnsupportedFormat
from redismem.protocol.keys import Keys
from redismem.protocol.session.append_ids import IDS_COUNT, AppendId, decode_appends, last_appends, remember

LAST_APPENDS = last_appends(Keys("test", 64).session("user-42"), b"token..A")
NO_IDS = (None,) * 5


@given(message_counts=st.lists(st.integers(0, 1_000), max_size=60))
def test_property_the_last_appends_are_remembered_in_order(message_counts: list[int]) -> None:
    fields: dict[bytes, bytes] = {}
    for number, count in enumerate(message_counts):
        remember(fields, b"%07d" % number, count)
    made = [AppendId(b"%07d" % number, count) for number, count in enumerate(message_counts)]
    assert decode_appends(fields) == made[-IDS_COUNT:]
    assert all(len(value) <= 61 for value in fields.values()), "what a hash keeps small"


@given(message_counts=st.lists(st.integers(0, 1_000), max_size=60))
def test_property_remembered_seqs_begin_after_the_forgotten_ones(message_counts: list[int]) -> None:
    fields: dict[bytes, bytes] = {}
    for number, count in enumerate(message_counts):
        remember(fields, b"%07d" % number, count)
    total = sum(message_counts)
    ids = [fields.get(b"ids_%c" % letter) for letter in b"abcd"]
    known = LAST_APPENDS.decode([b"1-ab", b"v1 1 %d 0 0 0" % total, None, *ids], 5_000, 2_000)
    assert known is not None
    assert (known.last_seq, known.server_ms) == (total, 3_000)
    assert known.forgotten_seq == sum(message_counts[:-IDS_COUNT])
    for number, count in enumerate(message_counts):
        first_seq = sum(message_counts[:number]) + 1
        is_remembered = number >= len(message_counts) - IDS_COUNT
        place = known.place(b"%07d" % number)
        assert list(place) == (list(range(first_seq, first_seq + count)) if is_remembered else [])


def test_an_unreadable_ring_counts_as_empty_and_unreadable_counters_are_corrupt() -> None:
    assert LAST_APPENDS.decode([None, None, *NO_IDS], -2, -2) is None
    known = LAST_APPENDS.decode([b"1-ab", b"v1 1 7 0 0 0", None, b"b" + bytes(5), *NO_IDS[2:]], -1, -1)
    assert known is not None
    assert (known.forgotten_seq, known.server_ms) == (7, None)
    with pytest.raises(CorruptSession):
        LAST_APPENDS.decode([b"1-ab", b"foreign", *NO_IDS], 5_000, 2_000)
    with pytest.raises(UnsupportedFormat):
        LAST_APPENDS.decode([b"1-ab", b"v9 1 7 0 0 0", *NO_IDS], 5_000, 2_000)


def test_older_appends_of_the_memory_have_their_seqs() -> None:
    assert b"ids:65" in LAST_APPENDS.commands[0]
    made = ((1, b"\x80\2", 3), (2, b"\0\0", 3), (3, b"\0\1", 9))
    older = b"".join(b"older.%dA-.%b%012d" % each for each in made)
    for field, names in ((older, 3), (older[:-1], 2), (older[:12] + b"x" * 12, 0)):
        known = LAST_APPENDS.decode([b"1-ab", b"v1 1 40 0 0 0", field, b"b", *NO_IDS[2:]], -1, -1)
        assert known is not None
        found = [known.place(b"older.%d" % number) for number in (1, 2, 3, 4)]
        assert len(known.older) == names
        assert found[0] == (range(2, 4) if names else range(0))
        assert [*found[1], *found[3]] == []
        assert found[2] == (range(9, 10) if names == 3 else range(0))
