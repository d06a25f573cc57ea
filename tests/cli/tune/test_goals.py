"""The goals: what they lower, what they must keep, and the joined changes that are tried."""

from __future__ import annotations

from typing import Any

import pytest

from redismem import Settings
from redismem.cli.tune.choices import Choice, combinations, joined, kinds
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.goals import TRIED_COUNT, Goal, Row
from redismem.cli.tune.racing import Ratio

NOW = Choice("now", {}, 0, 0)


def figures(tokens: int, held: float, cpu_us: float = 100, equal: int = 0) -> Figures:
    return Figures(tokens=[tokens], equal=[equal], client_us=[cpu_us], later=1, later_held=held)


def goal(name: Any, **options: Any) -> Goal:
    return Goal(**{"name": name, "keep": 0.95, "times_tokens": 2, "with_model": False} | options)


@pytest.mark.parametrize(
    ("name", "best"), [("cheapest", "few tokens"), ("fastest", "little CPU"), ("remembers", "much")]
)
def test_the_best_row_keeps_within_the_limits(name: Any, best: str) -> None:
    rows = [
        Row(NOW, figures(1_000, 0.8)),
        Row(Choice("few tokens", {}, 0), figures(500, 0.78)),
        Row(Choice("forgets", {}, 0), figures(100, 0.5, 10)),
        Row(Choice("little CPU", {}, 0), figures(900, 0.8, 80)),
        Row(Choice("loses a message", {}, 0), figures(100, 0.95, 10)),
        Row(Choice("loses originals", {"keep_originals": False}, 0), figures(100, 0.95, 10)),
        Row(Choice("much", {}, 0), figures(1_900, 0.9)),
        Row(Choice("everything", {}, 0), figures(9_000, 1.0)),
    ]
    rows[4].figures.differences.append((1, "message 1 differs from the file"))
    assert goal(name).best(rows).choice.name == best


def test_a_difference_within_the_error_is_none_and_the_fewest_changes_are_named() -> None:
    two = Row(Choice("two", {}, 0, 2), figures(700, 0.8, 98))
    one = Row(Choice("one", {}, 0, 1), figures(701, 0.8, 99))
    assert goal("cheapest").best([Row(NOW, figures(1_000, 0.8)), two, one]) is one
    rows = [Row(NOW, figures(1_000, 0.8)), two]
    assert goal("fastest").best(rows) is rows[0]


def test_fastest_is_named_only_beyond_the_error_of_the_race_and_without_more_round_trips() -> None:
    now, unsure, sure, more_trips = (Row(Choice(name, {}, 0), figures(1_000, 0.8)) for name in ("now", "a", "b", "c"))
    now.figures.ratio = Ratio(1, 1, 1)
    unsure.figures.ratio = Ratio(0.5, 0.4, 1.01)
    sure.figures.ratio = Ratio(0.8, 0.7, 0.9)
    more_trips.figures.ratio = Ratio(0.5, 0.4, 0.6)
    now.figures.trips = unsure.figures.trips = sure.figures.trips = 2
    more_trips.figures.trips = 3
    assert goal("fastest").best([now, unsure, sure, more_trips]) is sure
    assert goal("fastest").best([now, unsure, more_trips]) is now
    two = Row(Choice("sure, more", {}, 0, 2), figures(1_000, 0.8))
    two.figures.trips, two.figures.ratio = 2, Ratio(0.7, 0.6, 0.8)
    sure.figures.heats = [(80.0, None) for _ in range(12)]
    two.figures.heats = [(70.0 if heat % 4 else 90.0, None) for heat in range(12)]
    assert goal("fastest").best([now, sure, two]) is sure, "fewer changes, and in a quarter of the heats it was faster"
    two.figures.heats = [(70.0, None) for _ in range(12)]
    assert goal("fastest").best([now, sure, two]) is two
    other = Row(Choice("as sure, fewer tokens", {}, 0), figures(900, 0.8))
    other.figures.trips, other.figures.ratio = 2, Ratio(0.81, 0.7, 0.9)
    other.figures.heats = [(81.0, None) for _ in range(12)]
    assert goal("fastest").best([now, sure, other]) is other


def test_cached_tokens_cost_a_tenth_and_summaries_of_a_model_count() -> None:
    cached, short = figures(2_000, 0.8, equal=1_500), figures(2_000, 0.8, equal=500)
    assert cached.priced_tokens(with_model=False) == pytest.approx(650)
    assert short.priced_tokens(with_model=False) == 2_000, "providers cache no beginning under 1,024 tokens"
    cached.summary_input, cached.summary_output = 300, 100
    assert cached.priced_tokens(with_model=True) == pytest.approx(650 + 300 + 800)


def test_the_tried_combinations_are_those_whose_differences_promise_most() -> None:
    settings = Settings()
    rows = [Row(NOW, figures(1_000, 0.8))]
    for of_kind in kinds(settings, 0).values():
        for choice in of_kind:
            tokens, held = {
                "no originals": (500, 0.8),
                "summary 600": (600, 0.7),
                "recall 350": (800, 0.9),
                "strategy trim": (100, 0.1),
            }.get(choice.name, (1_050, 0.8))
            rows.append(Row(choice, figures(tokens, held)))
    tried = goal("cheapest").candidates(rows, settings, 0)
    assert len(tried) == TRIED_COUNT
    assert not any("no originals" in choice.name for choice in tried), "what it loses is in no figure"
    assert tried[0].name == "summary 600, recall 350", "neither alone is cheap enough and remembers enough"
    assert (tried[0].settings, tried[0].recall, tried[0].changes) == ({"summary_tokens_total": 600}, 350, 2)


def test_no_combination_has_a_change_without_effect() -> None:
    settings = Settings()
    names = [joined(choices, 0).name for choices in combinations(kinds(settings, 0), settings, 0)]
    assert "window 20/6, summary 600, recall 700" in names
    assert not any("strategy none" in name.split(", ") for name in names)
    assert not any("strategy trim" in name and "summary" in name for name in names)
    assert not any("recall" in name and "no originals" in name for name in names)


def test_what_is_set_now_is_not_tried() -> None:
    names = [each.name for of_kind in kinds(Settings(threshold=20), 700).values() for each in of_kind]
    assert "window 20/6" not in names, "the default of the recent window"
    assert "recall 700" not in names
    assert {"no recall", "window 10/6", "strategy trim"} <= set(names)
    assert "no originals" not in names, "recall needs them"
    assert Choice("x", {"keep_originals": False, "threshold": 20}, 0).lines() == [
        "export REDISMEM_KEEP_ORIGINALS=false",
        "export REDISMEM_THRESHOLD=20",
    ]
