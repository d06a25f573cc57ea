"""The sums of docs/scaling.md and docs/howto/sizing.md are right, and their figures stand where the pages say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from redismem import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text()
MEASURED = (ROOT / "benchmarks" / "README.md").read_text()
# Where each measured figure stands in benchmarks/README.md.
QUOTED = {
    "turn_server_us": "| 44.5 | 39.7 | 43.4 |",
    "turn_client_us": "| 44.5 | 39.7 | 43.4 |",
    "request_us": "| redismem | 9,737 | 5.7 | 102 |",
    "message_bytes": "A message takes 639 bytes in all",
    "raw_bytes": "2,658 messages, 1,601,644 bytes of raw text",
    "kept_share": "| of the file, most, in single blocks | 481 | x 0.46 | x 0.44 |",
    "sketch_kib": "The sketch adds 1.2 KiB",
    "summary_ms": "this one takes 3.2 to 5.4 ms with the drain around it",
    "summary_server_us": "A summary costs 86 µs of Redis' CPU",
    "shard_sessions": "| 10,000 | 10 | 0.78 | **0.88** |",
    "tick_percent": "0.3 % with 1,024",
}
ASKED = {"turns_per_s", "sessions", "session_messages", "core_share", "master_gb"}


def number(text: str) -> float:
    return float(text.replace(",", "").strip("*"))


def rows(columns: int) -> list[list[str]]:
    """The rows of the table with so many columns that has a name in it, and no head."""
    lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line[:1] == "|"]
    return [cells for cells in lines if len(cells) == columns and any(cell.startswith("`") for cell in cells)]


GIVEN = {cells[0].strip("`"): (cells[1], cells[3]) for cells in rows(4) if cells[0].startswith("`")}
SUMS = [(cells[1].strip("`"), cells[2].strip("`"), cells[3]) for cells in rows(4) if not cells[0].startswith("`")]


def evaluate() -> dict[str, float]:
    """All that comes out, each sum from what goes in and from those above it."""
    known = {name: number(figure) for name, (figure, _) in GIVEN.items()}
    for name, formula, _ in SUMS:
        assert re.fullmatch(r"[\w\s+*/().,-]+", formula), formula
        known[name] = float(eval(formula, {"__builtins__": {}, "ceil": math.ceil, "max": max}, known))
    return known


@pytest.mark.parametrize(("name", "figure"), [(name, figure) for name, _, figure in SUMS])
def test_a_sum_comes_to_what_the_page_says(name: str, figure: str) -> None:
    places = len(figure.strip("*").partition(".")[2])
    assert round(evaluate()[name], places) == number(figure)


def test_what_goes_in_is_measured_or_a_default_or_said_to_be_assumed() -> None:
    defaults = {name for name, (_, source) in GIVEN.items() if source == "default"}
    assert GIVEN.keys() == QUOTED.keys() | ASKED | defaults
    assert {name for name, (_, source) in GIVEN.items() if source in ("asked", "assumed")} == ASKED
    for name in defaults:
        assert number(GIVEN[name][0]) == getattr(Settings(), name)


@pytest.mark.parametrize("name", QUOTED)
def test_what_is_measured_stands_in_the_benchmarks(name: str) -> None:
    quoted = QUOTED[name]
    assert quoted in MEASURED
    module = GIVEN[name][1].strip("`")
    assert module in MEASURED
    if name == "raw_bytes":
        messages, text = (number(found) for found in re.findall(r"[\d,]+\d", quoted))
        assert number(GIVEN[name][0]) == round(text / messages)
    else:
        assert GIVEN[name][0] in quoted


def test_the_default_number_of_shards_fits_the_default_number_of_sessions() -> None:
    settings = Settings()
    assert settings.max_sessions <= settings.shards * number(GIVEN["shard_sessions"][0])


def wrong_sizes(page: str) -> Iterator[str]:
    """Yield each sum of a sizing table that does not come to its figures."""
    table = [re.split(r" *\| *", line)[1:-1] for line in page.splitlines() if line[:2] == "| "]
    asked = {name.strip("`"): figures for _, name, formula, *figures in table if name[0] == "`" and not formula}
    sums = [
        (name.strip("`"), formula.strip("`"), figures) for _, name, formula, *figures in table if formula[:1] == "`"
    ]
    assert len(asked) == 2
    assert len(sums) == 5
    for name, formula, figures in sums:
        for column, figure in enumerate(figures):
            known = evaluate() | {name: number(values[column]) for name, values in asked.items()}
            size = float(eval(formula, {"__builtins__": {}}, known))
            if round(size, len(figure.partition(".")[2])) != number(figure):
                yield f"{name}: {size} is not {figure}"


def test_the_sizes_of_small_deployments_follow_from_the_same_figures() -> None:
    page = (ROOT / "docs" / "howto" / "sizing.md").read_text()
    assert list(wrong_sizes(page)) == []
    assert list(wrong_sizes(page.replace("| 1.08 |", "| 1.18 |"))) == ["worker_cores: 1.08 is not 1.18"]
