"""The ring of append ids, as a process keeps it itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from redismem.protocol.append_ids import IDS_COUNT, AppendId, remember, remembered


@settings(max_examples=100)
@given(message_counts=st.lists(st.integers(0, 1_000), max_size=60))
def test_property_the_last_ones_are_remembered_in_order(message_counts: list[int]) -> None:
    fields: dict[bytes, bytes] = {}
    for number, count in enumerate(message_counts):
        remember(fields, b"%07d" % number, count)
    made = [AppendId(b"%07d" % number, count) for number, count in enumerate(message_counts)]
    assert remembered(fields) == made[-IDS_COUNT:]
    assert all(len(value) <= 61 for value in fields.values()), "what a hash keeps small"
