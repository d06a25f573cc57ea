"""The tables of `redismem tune`, on terminals of different widths."""

from __future__ import annotations

from typing import Any

import pytest

from redismem.cli.tune.choices import Choice
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.goals import Row
from redismem.cli.tune.showing import print_race, print_table


def wide(heats: int) -> Figures:
    """Figures whose cells are as wide as they get."""
    figures = Figures(sessions=1, tokens=[99_999], equal=[99_999], later=1, later_held=0.888, answers=[0.888])
    figures.summaries, figures.summary_input, figures.stored_bytes = 999, 999_999, 99_999
    figures.heats = [(9_999.0, 9_999.0)] * heats
    figures.ratio = figures.ratio_to(figures)
    return figures


@pytest.mark.parametrize("columns", [40, 80])
def test_the_tables_fit_the_terminal(capsys: Any, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = ["now", "strategy none", "window 40/24, summary 3000, recall 1200, no dictionary"]
    rows = [Row(Choice(name, {}, 0), wide(4)) for name in names]
    rows.append(Row(Choice("left out early", {}, 0), wide(2)))
    print_table(rows)
    print_race(rows)
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert max(map(len, lines)) <= columns
    assert ("B strategy none " in shown) is (columns == 80), "one line per row"
    if columns == 80:
        (heading,) = (line.split() for line in lines if "summaries" in line)
        assert heading == ["settings", "summaries", "tokens", "bytes", "per", "GB", "CPU,", "µs", "CPU,", "µs", "ms"]
        assert "left out early" not in shown[shown.index("multiple of now") :]
