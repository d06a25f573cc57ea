"""Numbers and names that a model's summary lost are appended, as many as fit."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from redismem.messages.message import Message
from redismem.models.lost_facts import restore_lost_facts
from redismem.text.sentences import MENTIONED

TOLD = [
    Message("user", "My order is #W2378156, and my neighbour Kovacs will take it on 2024-05-12."),
    Message("assistant", "Noted: Kovacs takes the parcel."),
]


def restore_facts(text: str, messages: list[Message], previous: str = "", limit_bytes: int = 200) -> str:
    return asyncio.run(restore_lost_facts(text, messages, previous, limit_bytes))


def test_numbers_and_names_that_a_summary_lacks_stand_behind_it() -> None:
    assert restore_facts("facts: a neighbour takes the parcel.", TOLD) == (
        f"facts: a neighbour takes the parcel.\n{MENTIONED}Kovacs, 2024-05-12, #W2378156"
    )


def test_what_it_has_is_not_said_again() -> None:
    whole = "facts: order #W2378156 goes to Kovacs on 2024-05-12."
    assert restore_facts(whole, TOLD) == whole
    assert restore_facts("facts: order #W2378156 on 2024-05-12.", TOLD).endswith(f"\n{MENTIONED}Kovacs")


def test_what_the_previous_summary_had_is_looked_for_too() -> None:
    assert restore_facts("facts: none.", [], "facts: the ticket is T-4711.") == f"facts: none.\n{MENTIONED}T-4711"


def test_what_tools_answered_is_left_to_the_model() -> None:
    answer = Message("tool", '{"seats": 14, "of": "Carmen Diaz"}', tool_call_id="c")
    assert restore_facts("facts: none.", [answer]) == "facts: none."


def test_of_too_many_the_newest_numbers_go_first() -> None:
    messages = [Message("user", f"Look at order N-{number}, please.") for number in range(100, 200)]
    text = restore_facts("facts: orders.", messages, limit_bytes=40)
    assert text == f"facts: orders.\n{MENTIONED}N-197, N-198, N-199"


@given(
    st.text(min_size=1, max_size=40),
    st.lists(st.text(max_size=80), max_size=6),
    st.text(max_size=60),
    st.integers(0, 90),
)
def test_property_the_summary_stays_and_the_list_is_bounded(text: str, said: Any, previous: str, limit: int) -> None:
    found = restore_facts(text, [Message("user", each) for each in said], previous, limit)
    assert found.startswith(text)
    assert len(found.encode("utf-8", "surrogatepass")) - len(text.encode("utf-8", "surrogatepass")) <= limit
