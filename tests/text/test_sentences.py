"""Sentences and names: the fast paths find what the general patterns find."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from redismem.text.sentences import names_in, split_sentences

PARTS = st.lists(
    st.sampled_from([*"aB5_.!?…。！\n\t ", "  ", ". ", "? ", "\u3000", "\xa0", "é", "Ada", " Ada", "не ", "5. "]),
    max_size=25,
).map("".join)
SENTENCE = re.compile(r"(?<=[.!?…؟।])\s+|(?<=[。！？])|\n+")
WORD = re.compile(r"[^\W\d_]{2,}")
NAME = re.compile(r"(?<=[^\W\d_,;:] )[^\W\d_]{2,}")


@given(PARTS)
def test_a_sentence_ends_with_its_mark_or_its_line(text: str) -> None:
    parts = [" ".join(part.split()) for part in SENTENCE.split(text) if part and part.split()]
    wanted, held = list[str](), list[str]()
    for part in parts:
        held.append(part)
        if WORD.search(part):
            wanted.append(" ".join(held))
            held = []
    assert list(split_sentences(text)) == wanted + ([" ".join(held)] if held else [])


@given(PARTS)
def test_a_name_is_a_capitalised_word_behind_another_word(text: str) -> None:
    assert names_in(text) == [name for name in NAME.findall(text) if name[0].isupper()]
