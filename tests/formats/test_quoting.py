"""Quotations: no text can close its quotation, whatever invisible characters its tags contain."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.formats.quoting import quote_as_data
from redismem.text.plain import escape_tags

INVISIBLE = "\x00\x1b\x7f\x85\xad\u200b\u200d\u200e\u202e\u2060\u2066\ufeff\U000e0041"
_DROP = str.maketrans(dict.fromkeys(INVISIBLE))
gaps = st.text(INVISIBLE, max_size=2)
names = st.sampled_from(["summary", "SUMMARY", "recalled", "params", "summ", "project"])
tags = st.tuples(gaps, st.sampled_from(["", "/", " /", "/ \n"]), gaps, names, gaps).map(
    lambda parts: "<" + "".join(parts[:3]) + parts[4].join(parts[3]) + ">"
)
texts = st.lists(tags | st.text("<>/ \nab" + INVISIBLE, max_size=5), max_size=5).map("".join)


def closing_count(text: str, tag: str) -> int:
    """Count the tags that a reader without invisible characters sees."""
    return len(re.findall(rf"<\s*/?\s*{tag}\b", text.translate(_DROP), re.IGNORECASE))


@pytest.mark.parametrize("tag", ["summary", "recalled", "params"])
@given(text=texts)
def test_property_no_text_closes_its_quotation(tag: str, text: str) -> None:
    content = quote_as_data(tag, "A heading", text)["content"]
    assert closing_count(content, tag) == 2
    assert content.endswith(f"\n</{tag}>")


@given(texts)
def test_property_no_text_closes_the_transcript_of_a_prompt(text: str) -> None:
    assert closing_count(escape_tags(text), "summary") == 0


@pytest.mark.parametrize("text", ["ordinary <b>text</b>", "a < b", "<summaries>", "x<\u200b>y", "</resummary>"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert f"\n{text}\n" in quote_as_data("summary", "A heading", text)["content"]
