"""The goals: their figure, what they must not give up, and the joined changes that are worth measuring. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from redismem.cli.tune.choices import Choice, combinations, joined, kinds
from redismem.cli.tune.figures import Figures
from redismem.settings.settings import Settings

GoalName = Literal["cheapest", "fastest", "remembers"]
_ERRORS: dict[GoalName, float] = {"cheapest": 0.002, "fastest": 0.03, "remembers": 0.002}
"""The relative difference of two figures that says nothing."""
TRIED_COUNT = 4
"""The number of joined changes that are measured for a goal."""


@dataclass(frozen=True, slots=True)
class Row:
    """A choice and its figures."""

    choice: Choice
    figures: Figures


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal with its limits, relative to the settings now."""

    name: GoalName
    keep: float
    """With `cheapest` and `fastest`: the share of what the context holds now that it must still hold."""
    times_tokens: float
    """With `remembers`: the tokens of a request, as a multiple of the tokens now."""
    with_model: bool

    def figure(self, figures: Figures) -> float:
        """Return the figure that the goal lowers."""
        if self.name == "cheapest":
            return figures.priced_tokens(with_model=self.with_model)
        if self.name == "fastest":
            return figures.cpu_us
        return -figures.held

    def allows(self, figures: Figures, now: Figures) -> bool:
        return _is_within(self, figures.held, fmean(figures.tokens), now)

    def rank(self, row: Row) -> float:
        return self.figure(row.figures)

    def best(self, rows: Sequence[Row]) -> Row:
        """Return the best row within the limits, or one with fewer changes that is as good within the error.

        The first row has the settings now.
        """
        now = rows[0]
        allowed = [now, *(row for row in rows[1:] if self.allows(row.figures, now.figures))]
        best = min(map(self.rank, allowed))
        close = [row for row in allowed if self.rank(row) <= best + _ERRORS[self.name] * abs(best)]
        return min(close, key=lambda row: (row.choice.changes, self.rank(row)))

    def candidates(self, rows: Sequence[Row], settings: Settings, recall: int) -> list[Choice]:
        """Return the joined changes that should be best, if the differences that single changes make add up."""
        of_name = {row.choice.name: row.figures for row in rows}
        measured = {
            kind: [each for each in choices if each.name in of_name]
            for kind, choices in kinds(settings, recall).items()
        }
        return _most_promising(self, measured, of_name, rows[0].figures, settings, recall)


def _is_within(goal: Goal, held: float, tokens: float, now: Figures) -> bool:
    if goal.name == "remembers":
        return tokens <= goal.times_tokens * fmean(now.tokens)
    return held >= goal.keep * now.held


def _most_promising(
    goal: Goal,
    measured: Mapping[str, Sequence[Choice]],
    of_name: Mapping[str, Figures],
    now: Figures,
    settings: Settings,
    recall: int,
) -> list[Choice]:
    def sum_up(choices: Sequence[Choice], value: Callable[[Figures], float]) -> float:
        base = value(now)
        return base + sum(value(of_name[each.name]) - base for each in choices)

    guesses = []
    for choices in combinations(measured, settings, recall):
        held, tokens = sum_up(choices, lambda each: each.held), sum_up(choices, lambda each: fmean(each.tokens))
        if _is_within(goal, held, tokens, now):
            # Of equal guesses, the one with fewer changes.
            guesses.append((sum_up(choices, goal.figure), len(choices), joined(choices, recall)))
    guesses.sort(key=lambda guess: guess[:2])
    return [choice for *_, choice in guesses[:TRIED_COUNT]]
