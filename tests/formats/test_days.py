"""Days in texts: relative days get their dates, questions name periods, and no text takes more than linear time."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.test_linear import check_growth, no_collections, room  # noqa: F401 (autouse fixtures)

from redismem.formats.days import date_of, name_day, read_period, resolve_days
from redismem.messages.message import DAY_MS, day_of

# A Monday.
SAID = datetime(2023, 5, 8, 10, tzinfo=UTC)
SAID_MS = int(SAID.timestamp() * 1_000)
SAID_DAY = day_of(SAID_MS)


@pytest.mark.parametrize(
    ("said", "resolved"),
    [
        ("Yesterday I went there.", "Yesterday (7 May 2023) I went there."),
        ("last week, and two weeks ago.", "last week (1–7 May 2023), and two weeks ago (24–30 April 2023)."),
        ("Last Friday, last month, LAST YEAR", "Last Friday (5 May 2023), last month (April 2023), LAST YEAR (2022)"),
        ("yesterday and yesterday", "yesterday (7 May 2023) and yesterday"),
        ("a month ago; 10 years ago", "a month ago (April 2023); 10 years ago (2013)"),
        ("next weekend; tomorrow", "next weekend (20–21 May 2023); tomorrow (9 May 2023)"),
        ("Gestern war ich hier.", "Gestern (7 Mai 2023) war ich hier."),
        ("Guten Morgen, bis morgen!", "Guten Morgen, bis morgen (9 Mai 2023)!"),
        ("vor drei Tagen, letzten Montag", "vor drei Tagen (5 Mai 2023), letzten Montag (1 Mai 2023)"),
        ("Ayer por la mañana, hace dos días", "Ayer (7 mayo 2023) por la mañana, hace dos días (6 mayo 2023)"),
        ("la semana pasada, el lunes pasado", "la semana pasada (1–7 mayo 2023), el lunes pasado (1 mayo 2023)"),
        ("Hier, je suis allée chez toi.", "Hier (7 mai 2023), je suis allée chez toi."),
        ("avant-hier, il y a deux mois", "avant-hier (6 mai 2023), il y a deux mois (mars 2023)"),
        ("la semaine dernière, lundi dernier", "la semaine dernière (1–7 mai 2023), lundi dernier (1 mai 2023)"),
        ("today, this week, next Friday, in 2 days", "today, this week, next Friday, in 2 days"),
        ("999 years ago", "999 years ago (1024)"),
        ("İ yesterday", "İ yesterday"),
    ],
)  # fmt: skip
def test_a_relative_day_gets_its_date(said: str, resolved: str) -> None:
    assert resolve_days(said, SAID_DAY) == resolved


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What did she do in May 2022?", date(2022, 5, 1), date(2022, 5, 31)),
        ("What did she do in 2021?", date(2021, 1, 1), date(2021, 12, 31)),
        ("What happened last week?", date(2023, 5, 1), date(2023, 5, 7)),
        ("the 7th of March 2023", date(2023, 3, 7), date(2023, 3, 8)),
        ("on March 7, 2023", date(2023, 3, 7), date(2023, 3, 8)),
        ("am 7. März 2023", date(2023, 3, 7), date(2023, 3, 8)),
        ("el 7 de marzo de 2023", date(2023, 3, 7), date(2023, 3, 8)),
        ("le 7 mars 2023", date(2023, 3, 7), date(2023, 3, 8)),
        ("on 2023-03-07?", date(2023, 3, 7), date(2023, 3, 7)),
        ("in 2023-03?", date(2023, 3, 1), date(2023, 3, 31)),
        ("What was it last Monday?", date(2023, 5, 1), date(2023, 5, 1)),
        ("Was war vorgestern?", date(2023, 5, 6), date(2023, 5, 6)),
    ],
)
def test_a_question_names_its_days(question: str, first: date, last: date) -> None:
    period = read_period(question, SAID_DAY)
    assert period is not None
    meant = [day for day in range(15_000, 20_000) if period.matches(day)]
    assert [date_of(day) for day in meant] == [first + timedelta(days=at) for at in range((last - first).days + 1)]


@pytest.mark.parametrize("asked", range(8, 15))
def test_this_monday_is_in_the_week_of_the_question(asked: int) -> None:
    period = read_period("What did I say this Monday?", SAID_DAY + asked - 8)
    assert period is not None
    assert [date_of(day).day for day in range(19_400, 19_700) if period.matches(day)] == [8]


def test_months_and_weekdays_recur() -> None:
    for question, months in (("Where to in July?", {7}), ("im Oktober", {10}), ("en février", {2}), ("in Sept", {9})):
        period = read_period(question, SAID_DAY)
        assert period is not None
        assert {date_of(day).month for day in range(18_000, 20_000) if period.matches(day)} == months
    period = read_period("What is on Tuesday, am Dienstag?", SAID_DAY)
    assert period is not None
    assert {date_of(day).weekday() for day in range(19_000, 19_100) if period.matches(day)} == {1}


@pytest.mark.parametrize("question", ["May I ask?", "We march on.", "Is Mars red?", "room 12", "9999-99-99", ""])
def test_a_question_without_days_names_none(question: str) -> None:
    assert read_period(question, SAID_DAY) is None


@given(st.text(max_size=200), st.integers(-(10**6), 10**7))
def test_a_text_keeps_all_that_it_says(text: str, said_day: int) -> None:
    resolved = resolve_days(f"{text} yesterday, next year, vor 9 Jahren", said_day)
    kept = iter(resolved)
    assert all(char in kept for char in text)
    assert len(resolved) <= len(text) + 18 * 40 + 80
    period = read_period(text, said_day)
    assert period is None or period.matches(said_day) in (True, False)
    assert name_day(said_day).endswith(str(date_of(said_day).year))


def test_a_day_begins_at_midnight() -> None:
    assert day_of(SAID_MS - SAID_MS % DAY_MS) == day_of(SAID_MS) == day_of(SAID_MS - SAID_MS % DAY_MS - 1) + 1
    assert name_day(day_of(SAID_MS)) == "Monday 8 May 2023"


@pytest.mark.parametrize("part", ["yesterday ", "il y a ", "the day before ", "hier ", "999 days ", "-2023-01"])
def test_hostile_texts_take_linear_time(part: str) -> None:
    check_growth(
        f"days, {part}",
        lambda text: (resolve_days(text, SAID_DAY), read_period(text, SAID_DAY)),
        lambda count: part * count,
        2_000,
    )
