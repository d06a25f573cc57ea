"""Irregular forms: a question finds "went" with "go"."""

import pytest

from redismem.text.forms import other_forms
from redismem.text.stems import QUESTION_STEMS, stems


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("go", "went"),
        ("bought", "buys"),
        ("children", "child"),
        ("favourite", "favorites"),
        ("gehen", "ging"),
        ("isst", ""),
        ("viene", "vino"),
        ("écrire", "écrit"),
        ("walk", ""),
    ],
)
def test_the_irregular_forms_of_a_word_are_known(asked: str, said: str) -> None:
    (stem,) = stems(asked)
    others = {*other_forms(stem)}
    assert others >= {*stems(said)}
    assert bool(said) == bool(others)
    assert stem not in others
    assert others.isdisjoint(QUESTION_STEMS)
