"""Standing rules of users are told from habits, in the languages of the cues."""

from __future__ import annotations

import pytest

from redismem.text.rules import is_rule, replaces, subject_of


@pytest.mark.parametrize(
    "text",
    [
        "Thanks! When I ask about hotels, give me the price in Swiss francs.",
        "never suggest a class before nine",
        "I'd rather not fly.",
        "Please don't use bullet points.",
        "Call me Captain.",
        "No emojis, please.",
        "Ab jetzt bitte ohne Nüsse.",
        "Ich möchte Preise immer in Franken.",
        "A partir de ahora, sin nueces.",
        "Llámame Capitán.",
        "Désormais, sans noix.",
        "Prefiro o trem.",
        "Отныне пиши кратко.",
        "从现在起，价格用瑞士法郎。",
        "これからは短く答えて。",
        "من الآن فصاعدا أجب بإيجاز.",
        "מעכשיו תענה בקצרה.",
        "अब से छोटा जवाब दो।",
    ],
)
def test_a_rule_is_recognised(text: str) -> None:
    assert is_rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "We always liked that hotel.",
        "I have never been there, and I asked about the price.",
        "What did I call the dog?",
        "Ich war immer gern dort.",
        "Siempre nos gustó.",
    ],
)
def test_a_habit_is_none(text: str) -> None:
    assert not is_rule(text)


def test_a_newer_rule_of_the_same_subject_replaces_an_older_one() -> None:
    older = subject_of("When I ask about hotels, always give me the price in Swiss francs.")
    assert replaces(older, subject_of("From now on I want the price of hotels in yen, please."))
    assert not replaces(older, subject_of("When I ask about films, always give me the name of the director."))
