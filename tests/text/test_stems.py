"""Stems of words: all forms of a word have the same stem, in any script."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redismem.text.stems import LONGEST_WORD_CHARS, stems

FORMS = (
    "run runs running",
    "hike hikes hiked hiking",
    "party parties",
    "study studies studied studying",
    "class classes",
    "celebrated celebration celebrations",
    "PAINTER painting Paints",
    "cafe café cafe\u0301",
    "Katze Katzen",
    "Straße STRASSEN",
    "libro libros",
    "comprar comprado compró",
    "книга книги книгу",
    "машина машиной машины",
    "كتاب الكتاب",
    "लड़का लड़के लड़कों",
    "ＡＢＣ abc",
    "fly flies",
    "movie movies",
    "cookie cookies",
    "use uses used using",
    "happy happiness",
    "ışık IŞIK isik",
    "İstanbul istanbul",
    "Łódź lodz",
    "inter\xadnational international inter\u200bnational inter\u2060national",
)


@pytest.mark.parametrize("forms", FORMS)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len(set(stems(forms))) == 1, list(stems(forms))


def test_different_words_have_different_stems() -> None:
    words = "run fun party part bus house mouse 12 21 книга карта كتاب قلم"
    assert len(set(stems(words))) == len(words.split())


def test_a_script_without_spaces_gives_pairs_of_letters() -> None:
    assert list(stems("我想要咖啡"))[:4] == ["我想", "想要", "要咖", "咖啡"]
    assert list(stems("iPhoneを買った")) == ["iphon", "を買", "買っ", "った", "買"]
    assert list(stems("茶")) == ["茶"]
    assert set(stems("กาแฟ")) & set(stems("ชอบกาแฟดำ"))
    assert set(stems("서울")) <= set(stems("서울에서"))


def test_a_single_letter_is_no_word_but_a_single_digit_is() -> None:
    assert list(stems("Ann's table, 7 p.m.")) == ["ann", "tabl", "7"]


def test_the_cost_of_a_word_is_bounded() -> None:
    assert [len(stem) for stem in stems("x1" * 5_000)] == [LONGEST_WORD_CHARS]


@pytest.mark.parametrize(("word", "text"), [("茶", "我喝茶了"), ("책", "책을 샀어요"), ("猫", "私の猫です")])
def test_a_single_character_is_found_within_its_text(word: str, text: str) -> None:
    assert set(stems(word)) == {word} <= set(stems(text))


@pytest.mark.parametrize(
    ("typed", "stored"), [("コーヒー", "ｺｰﾋｰ"), ("보고서.pdf", "보고서.pdf"), ("ガイド", "ガイド")]
)
def test_other_forms_of_the_same_letters_have_the_same_stems(typed: str, stored: str) -> None:
    for form in (unicodedata.normalize("NFD", stored), stored):
        assert list(stems(form)) == list(stems(typed))


@given(st.text())
def test_any_text_has_stems(text: str) -> None:
    stemmed = list(stems(text))
    assert all(0 < len(stem) <= 18 * LONGEST_WORD_CHARS for stem in stemmed)
    assert len(stemmed) <= 2 * 18 * len(text)
    assert stemmed == list(stems(text))


@given(st.text())
def test_the_unicode_form_of_a_text_makes_no_difference(text: str) -> None:
    letters = "".join(char for char in text if "a" <= unicodedata.normalize("NFD", char)[0] <= "z")
    assert list(stems(unicodedata.normalize("NFD", letters))) == list(stems(unicodedata.normalize("NFC", letters)))


@given(st.text(st.sampled_from("aZ 09_.-'stringed\n"), max_size=40))
def test_a_text_of_ascii_has_the_stems_that_it_has_among_other_letters(text: str) -> None:
    *found, other = stems(f"{text} größe")
    assert (list(stems(text)), other) == (found, "gros")
