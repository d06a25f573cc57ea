"""Patterns: the same answers as `re` gives, and never more time than the text is long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.errors import InvalidSettings
from redismem.text.patterns import Pattern

ATOMS = st.sampled_from(["a", "b", ".", r"\d", r"\w", "[ab]", "[^a]", "[a-c0-3]", r"\.", r"[\s\d]", r"[^\w]"])
PIECES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map(lambda text: f"({text})"),
        st.lists(inner, min_size=2, max_size=3).map("".join),
    ),
    max_leaves=6,
)


@given(PIECES, st.text("ab1.x \n", max_size=8))
def test_it_says_what_re_says(pattern: str, text: str) -> None:
    assert Pattern(pattern).fullmatch(text) is (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"^\d{4,6}$", ["1234", "123456"], ["123", "1234567", "12a4", ""]),
        (r"[A-Z]{2}-\d+", ["AB-1"], ["ab-1", "AB-"]),
        (r"yes|no", ["yes", "no"], ["yesno", "maybe"]),
        (r"", [""], ["a"]),
        (r"a^b|^c$", ["c"], ["ab", "a"]),
    ],
)
def test_what_operators_write(pattern: str, yes: list[str], no: list[str]) -> None:
    found = Pattern(pattern)
    assert [found.fullmatch(text) for text in yes + no] == [True] * len(yes) + [False] * len(no)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "a*a*a*a*a*a*b", "(?:a?){200}a{200}", "(.*)*x"])
def test_what_takes_others_for_ever_takes_no_time(pattern: str) -> None:
    found = Pattern(pattern)
    begun_s = time.process_time()
    assert found.fullmatch("a" * 255 + "!") is False
    assert time.process_time() - begun_s < 30


@pytest.mark.parametrize(
    "pattern",
    [r"(a)\1", "(?=a)a", "(?<!a)b", r"\bword\b", "(?i)a", "(?i:a)", "(?>a*)b", "a*+b", "(", "a{9999}", "[", "(" * 5000],
)
def test_what_cannot_be_matched_so_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidSettings):
        Pattern(pattern)


def test_a_pattern_that_grows_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="too large"):
        Pattern("((a{30}){30}){30}")
