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
_TRIPS_ERROR = 0.01
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
            return figures.cpu_us if figures.ratio is None else figures.ratio.middle
        return -figures.held

    def allows(self, figures: Figures, now: Figures) -> bool:
        """True if the figures keep within the goal's limits, relative to the settings now."""
        if self.name == "fastest" and figures.trips_per_turn > now.trips_per_turn * (1 + _TRIPS_ERROR):
            return False
        return _is_within(self, figures.held, fmean(figures.tokens), now)

    def is_better(self, figures: Figures, now: Figures) -> bool:
        """True if the figure is less than now, and with `fastest` beyond the error of the race."""
        is_sure = self.name != "fastest" or figures.ratio is None or figures.ratio.most < 1
        return is_sure and self.figure(figures) < self.figure(now)

    def rank(self, row: Row) -> float:
        return self.figure(row.figures)

    def best(self, rows: Sequence[Row]) -> Row:
        """Return the best row within the limits, or one with fewer changes that is as good within the error.

        The first row has the settings now. Of several that are as fast, it is the one with the fewest tokens.
        """
        now = rows[0]
        sound = (row for row in rows[1:] if not row.figures.differences and _keeps_messages(row.choice))
        better = (row for row in sound if self.is_better(row.figures, now.figures))
        allowed = [now, *(row for row in better if self.allows(row.figures, now.figures))]
        best = min(allowed, key=self.rank)
        close = [row for row in allowed if self._is_close(row, best)]
        by_tokens = self.name == "fastest"  # which of those is the fastest is chance
        return min(
            close, key=lambda row: (row.choice.changes, fmean(row.figures.tokens) if by_tokens else self.rank(row))
        )

    def _is_close(self, row: Row, best: Row) -> bool:
        """True if the difference is within the error, and with `fastest` also if it is not sure from the race."""
        least = self.rank(best)
        if self.rank(row) <= least + _ERRORS[self.name] * abs(least):
            return True
        found = row.figures.ratio_to(best.figures) if self.name == "fastest" else None
        return found is not None and found.least <= 1

    def candidates(self, rows: Sequence[Row], settings: Settings, recall: int) -> list[Choice]:
        """Return the joined changes that should be better than all rows, if differences of single changes add up."""
        now, of_name = rows[0].figures, {row.choice.name: row.figures for row in rows}
        effective = {
            kind: [
                each
                for each in choices
                if each.name in of_name and _keeps_messages(each) and self._has_effect(of_name[each.name], now)
            ]
            for kind, choices in kinds(settings, recall).items()
        }
        best = self.rank(self.best(rows))
        guesses = []
        for choices in combinations(effective, settings, recall):
            held = _add_up(choices, of_name, now, lambda each: each.held)
            tokens = _add_up(choices, of_name, now, lambda each: fmean(each.tokens))
            figure = _add_up(choices, of_name, now, self.figure)
            if _is_within(self, held, tokens, now) and figure < best - _ERRORS[self.name] * abs(best):
                guesses.append((figure, len(choices), joined(choices, recall)))
        return [choice for *_, choice in sorted(guesses, key=lambda guess: guess[:2])[:TRIED_COUNT]]

    def _has_effect(self, figures: Figures, now: Figures) -> bool:
        """True if the figures differ beyond the error in what the goal lowers or in what limits it."""
        pairs = [(self.figure(figures), self.figure(now)), (figures.held, now.held)]
        pairs.append((fmean(figures.tokens), fmean(now.tokens)))
        return any(abs(one - other) > _ERRORS[self.name] * abs(other) for one, other in pairs)


def _keeps_messages(choice: Choice) -> bool:
    """False if summarised messages would be lost: no figure shows what that costs."""
    return choice.settings.get("keep_originals", True) is not False


def _is_within(goal: Goal, held: float, tokens: float, now: Figures) -> bool:
    if goal.name == "remembers":
        return tokens <= goal.times_tokens * fmean(now.tokens)
    return held >= goal.keep * now.held


def _add_up(
    choices: Sequence[Choice], of_name: Mapping[str, Figures], now: Figures, value: Callable[[Figures], float]
) -> float:
    """Return the value now, plus the differences that the choices make."""
    base = value(now)
    return base + sum(value(of_name[each.name]) - base for each in choices)
