"""The owner of a session, as its state and the index of owners contain it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem import InvalidSessionId
from redismem.protocol.keys import is_session_id
from redismem.protocol.owners import check_owner, decode_owner, encode_owner, is_owner_field, owner_score

OWNERS = st.text(min_size=1, max_size=60).filter(is_session_id)


@given(OWNERS)
def test_an_owner_survives_its_field(owner: str) -> None:
    field = encode_owner(owner)
    assert decode_owner(field) == owner
    assert is_owner_field(field)
    number = int(field.partition(b" ")[0])
    assert number == owner_score(owner) == int(float(number))


@given(OWNERS, OWNERS)
def test_different_owners_have_different_fields(one: str, other: str) -> None:
    assert (encode_owner(one) == encode_owner(other)) == (one == other)


def test_the_score_of_an_owner_never_changes() -> None:
    """Stored indexes contain it."""
    assert encode_owner("ann") == b"2484543934951999 ann"


@pytest.mark.parametrize("owner", ["", " ", " ann", "ann\n", "a\0b", "x" * 257, "\ud800", 7, None, b"ann"])
def test_an_invalid_owner_is_refused(owner: Any) -> None:
    with pytest.raises(InvalidSessionId, match="an owner is a string of 1 to 256 bytes"):
        check_owner(owner)


@pytest.mark.parametrize("field", [b"", b"ann", b"5 ann", b" ann", b"2484543934951999 \xff", b"2484543934951999 "])
def test_a_foreign_field_is_no_owner(field: bytes) -> None:
    assert not is_owner_field(field)


def test_a_session_without_the_field_has_no_owner() -> None:
    assert decode_owner(None) is None
