"""Patterns give the answers of `re`, in linear time."""

from __future__ import annotations

import re
import time
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redismem.errors import InvalidSettings
from redismem.text.patterns import Pattern

# Characters with a meaning in one of the two engines.
SYNTAX = st.text("[]^-\\wdsb<>&~|a1{},.*+?:()P= ", min_size=1, max_size=7)
TEXTS = st.text("ab1-^]&~ ", max_size=3)

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
def test_a_pattern_matches_as_re_does(pattern: str, text: str) -> None:
    assert Pattern(pattern).fullmatch(text) is (re.fullmatch(pattern, text) is not None)


@example("[]-b]", ["a"])
@example("[^]-}]", ["-"])
@example("[a[b]]", ["b", "b]"])
@example("a)|(b", ["a", "b"])
@example("a*+a", ["aa"])
@given(st.one_of(SYNTAX, SYNTAX.map("[{}]".format)), st.lists(TEXTS, min_size=5))
def test_ambiguous_syntax_is_refused(pattern: str, texts: list[str]) -> None:
    """A pattern that both engines accept means the same to both."""
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            expected = re.compile(pattern)
        compiled = Pattern(pattern)
    except (re.error, InvalidSettings):
        return
    assert [compiled.fullmatch(text) for text in texts] == [expected.fullmatch(text) is not None for text in texts]


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
def test_typical_patterns_of_operators(pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [compiled.fullmatch(text) for text in yes + no] == [True] * len(yes) + [False] * len(no)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "(a*)*b", "a*a*a*a*a*a*b", "(?:a?){200}a{200}", "(.*)*x"])
def test_a_pattern_of_exponential_time_in_re_is_fast(pattern: str) -> None:
    compiled = Pattern(pattern)
    begun_s = time.thread_time()
    assert compiled.fullmatch("a" * 255 + "!") is False
    assert time.thread_time() - begun_s < 1


REFUSED = [
    *(r"(a)\1", "(?=a)a", "(?<!a)b", r"\bword\b", "(?i)a", "(?i:a)", "(?>a*)b", "a*+b", "a{2}+", "a**"),
    *("[a&&b]", "[a--b]", "[a~~b]", "[a[b]", r"\<a", "a)(b", "(", "[", "(" * 5000),
]


@pytest.mark.parametrize("pattern", REFUSED)
def test_patterns_beyond_the_common_syntax_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidSettings):
        Pattern(pattern)


def test_a_pattern_that_grows_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="too large"):
        Pattern(r"((\w{50}){50}){50}")
