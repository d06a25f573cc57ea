"""Normal forms: the same text has one form, in linear time."""

import unicodedata
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from redismem.text.normal_forms import fold_case, normalize, remove_unseen


@given(st.text(max_size=200))
def test_short_texts_have_the_form_that_unicode_defines(text: str) -> None:
    assert normalize("NFC", text) == unicodedata.normalize("NFC", text)
    assert normalize("NFKC", text) == unicodedata.normalize("NFKC", text)


def test_a_long_text_is_composed_across_its_pieces() -> None:
    text = "보고서 최종본。" * 500
    assert normalize("NFC", unicodedata.normalize("NFD", text)) == text


def test_marks_in_the_wrong_order_take_linear_time() -> None:
    marks = "a" + "\u0301\u0316" * 100_000  # takes CPython 30 s as a whole
    began = process_time()
    normalize("NFC", marks)
    assert process_time() - began < 3


def test_unseen_characters_are_removed_and_a_flag_is_not() -> None:
    assert remove_unseen("in\xadter\u200bna\u2060tio\ufeffnal") == "international"
    scotland = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
    assert remove_unseen(scotland) == scotland


def test_case_is_folded_in_any_form() -> None:
    assert fold_case("CAFE\u0301") == fold_case("café") == "café"
