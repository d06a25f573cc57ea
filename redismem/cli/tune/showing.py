"""Show what was measured: the table, the picture, and the settings of a goal."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from redismem.cli.terminal import console, print_rows
from redismem.cli.tune.choices import Choice
from redismem.cli.tune.figures import Figures
from redismem.cli.tune.goals import Goal, Row
from redismem.cli.tune.racing import Ratio

_HELD = {
    "p50": "tokens\np50",
    "p95": "tokens\np95",
    "words": "later\nwords",
    "answers": "marked\nanswers",
    "prefix": "shared\nprefix",
}
_COSTS = {
    "summaries": "\nsummaries",
    "summary_tokens": "their\ntokens",
    "session_bytes": "\nbytes",
    "sessions_per_gb": "sessions\nper GB",
    "server_us": "Redis\nCPU, µs",
    "client_us": "client\nCPU, µs",
    "p99_ms": "p99,\nms",
}
_LABELS = {
    "p50": "tokens of a request, p50",
    "p95": "tokens of a request, p95",
    "priced_tokens": "tokens, cached ones at a tenth",
    "words": "later words held",
    "answers": "marked answers held",
    "prefix": "prefix shared with the request before",
    "summaries": "summaries a session",
    "summary_tokens": "tokens of summaries a session",
    "session_bytes": "bytes a session",
    "trips": "round trips a turn",
    "server_us": "Redis CPU a turn, µs",
    "client_us": "client CPU a turn, µs",
    "p99_ms": "p99 of a turn at the rate, ms",
    "sessions_per_gb": "sessions a GB",
}
_WARNINGS: dict[tuple[str, Any], str] = {
    ("strategy", "none"): "A conversation much longer than these costs all its tokens in each request.",
    ("strategy", "trim"): "Without recall, what leaves the window is not in a request any more.",
}
_SHARES = ("words", "answers", "prefix")
_ALONE = {"mean_tokens": "tokens", "words": "words", "session_bytes": "bytes"}
_WIDTH, _HEIGHT = 60, 14


def figures_of(figures: Figures, *, with_model: bool = False) -> dict[str, Any]:
    """Return the figures as JSON values; `None` stands for a figure that could not be measured."""
    tokens, size, sessions = sorted(figures.tokens), figures.session_bytes, max(1, figures.sessions)
    took = sorted(figures.opened.took_ms) if figures.opened is not None else []
    return {
        "requests": len(tokens),
        "p50": percentile(tokens, 0.5),
        "p95": percentile(tokens, 0.95),
        "mean_tokens": _round(fmean(tokens) if tokens else None, 1),
        "priced_tokens": round(figures.priced_tokens(with_model=with_model), 1),
        "words": _round(figures.words, 4),
        "answers": _round(figures.answered, 4),
        "prefix": round(figures.prefix, 4),
        "summaries": round(figures.summaries / sessions, 2),
        "summary_tokens": round((figures.summary_input + figures.summary_output) / sessions),
        "session_bytes": _round(size, 0),
        "trips": round(figures.trips_per_turn, 3),
        "server_us": _round(figures.server_us, 1),
        "client_us": round(figures.client(), 1),
        "p50_ms": _round(percentile(took, 0.5), 3),
        "p99_ms": _round(percentile(took, 0.99), 3),
        "failures": dict(figures.opened.failures) if figures.opened is not None else {},
        "sessions_per_gb": int(1e9 / size) if size else None,
    }


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value that `share` of the values do not exceed; `None` if there are no values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def print_table(rows: Sequence[Row]) -> None:
    """Print what a request holds and what it costs, one line per choice in each, at most 80 columns wide."""
    figures = [figures_of(row.figures) for row in rows]
    for title, heads in (("What a request to the model holds", _HELD), ("What it costs", _COSTS)):
        console().print(f"\n{title}", style="bold")
        cells = []
        for letter, row, each in zip(_letters(), rows, figures, strict=False):
            name = f"{letter} {row.choice.name}".replace(", ", ",\n  ")
            cells.append([name, *(_cell(head, each[head]) for head in heads)])
        print_rows(("\nsettings", *heads.values()), cells)


def print_race(rows: Sequence[Row]) -> None:
    """Print the CPU of turns relative to now, of the rows that were raced to the end."""
    now, *others = rows
    raced = [row for row in others if row.figures.ratio and len(row.figures.heats) == len(now.figures.heats)]
    if not raced:
        return
    console().print("\nCPU of a turn, in Redis and here, as a multiple of now", style="bold")
    ratios = sorted(
        (row.figures.ratio.middle, row.choice.name, _interval(row.figures.ratio)) for row in raced if row.figures.ratio
    )
    print_rows(
        ("settings", "median", "95 % interval"), [[name, f"{middle:.2f}", text] for middle, name, text in ratios]
    )


def _interval(ratio: Ratio) -> str:
    return f"{ratio.least:.2f} to {ratio.most:.2f}"


def print_picture(rows: Sequence[Row]) -> None:
    """Print each row's letter by the mean tokens of its requests, to the right, and by what they hold, upwards."""
    out = console()
    points = [(fmean(row.figures.tokens), row.figures.held) for row in rows]
    lowest, highest = (choose(held for _, held in points) for choose in (min, max))
    fewest, most = (choose(math.log(max(1, tokens)) for tokens, _ in points) for choose in (min, max))
    width = max(20, min(_WIDTH, out.width - 10))
    canvas = [[" "] * width for _ in range(_HEIGHT)]
    for letter, (tokens, held) in reversed([*zip(_letters(), points, strict=False)]):
        x = _place(math.log(max(1, tokens)), fewest, most, width)
        canvas[_HEIGHT - 1 - _place(held, lowest, highest, _HEIGHT)][x] = letter
    out.print("\nWhat a request holds (upwards) by its tokens (to the right)", style="bold")
    for number, line in enumerate(canvas):
        share = highest - (highest - lowest) * number / (_HEIGHT - 1)
        label = f"{share:.3f}" if number in (0, _HEIGHT - 1) or number == _HEIGHT // 2 else ""
        out.print(f"{label:>6} │{''.join(line)}".rstrip(), markup=False)
    out.print(f"{'':6} └{'─' * width}")
    left, right = f"{math.exp(fewest):,.0f} tokens", f"{math.exp(most):,.0f} tokens"
    out.print(f"{'':8}{left}{right:>{width - len(left)}}")
    out.print("Of letters in one place, the first is shown.", style="dim")


def _place(value: float, least: float, most: float, count: int) -> int:
    return 0 if most <= least else min(count - 1, round((value - least) / (most - least) * (count - 1)))


def print_changes(named: Choice, rows: Sequence[Row]) -> None:
    """Print the difference that each of the joined changes makes alone. CPU is known only if the change was raced."""
    of_name = {row.choice.name: row.figures for row in rows}
    now = figures_of(of_name[rows[0].choice.name])
    for name in named.name.split(", ") if named.changes > 1 else ():
        alone = figures_of(of_name[name])
        differences = [f"{text} {_change(now, alone, key)}" for key, text in _ALONE.items() if now[key]]
        if (ratio := of_name[name].ratio) is not None:
            differences.append(f"CPU × {ratio.middle:.2f}")
        console().print(f"  {name} alone: {', '.join(differences)}", markup=False, soft_wrap=True)


def print_named(goals: Sequence[Goal], named: Choice, rows: Sequence[Row]) -> None:
    """Print the settings that these goals name."""
    out = console()
    out.print(f"\n{', '.join(goal.name for goal in goals)}: {named.name}", style="bold", markup=False)
    for line in [*named.lines(), *recall_lines(named, rows[0].choice.recall)]:
        out.print(f"  {line}", markup=False, soft_wrap=True)
    print_changes(named, rows)
    for name, value in named.settings.items():
        if (name, value) in _WARNINGS:
            out.print(f"  {_WARNINGS[name, value]}", markup=False)


def print_again(goals: Sequence[Goal], now: Figures, then: Figures | None, again: str) -> None:
    """Print both sides as they were measured again. `then` is `None` if they were not."""
    out = console()
    if then is None:
        out.print("not measured again")
        return
    out.print(f"\nBoth measured again, {again}", style="bold", markup=False)
    before, after = (figures_of(each, with_model=goals[0].with_model) for each in (now, then))
    known = [name for name in _LABELS if before[name] is not None and after[name] is not None]
    cells = [
        [_LABELS[name], *(_cell(name, each[name]) for each in (before, after)), _change(before, after, name)]
        for name in known
    ]
    print_rows(("", "now", "named", ""), cells)
    for goal in goals:
        out.print(verdict(goal, now, then), markup=False)


def recall_lines(named: Choice, recall: int) -> list[str]:
    """Return the lines that set recall, which is an argument of a turn and no setting."""
    if named.recall == recall:
        return []
    if not named.recall:
        return ["no recall= in your turns; --recall 0 for a server"]
    return [f"recall={named.recall} in each of your turns; --recall {named.recall} for a server"]


def verdict(goal: Goal, now: Figures, then: Figures) -> str:
    """Return the line that says if the named settings were better again, and within the goal's limits."""
    ratio = then.ratio if goal.name == "fastest" else None
    found = "" if ratio is None else f": {ratio.middle:.2f} times the CPU of a turn, 95 % interval {_interval(ratio)}"
    if not goal.is_better(then, now):
        return f"not {goal.name} when measured again{found}. Keep the settings that you have"
    if not goal.allows(then, now):
        return f"{goal.name} again{found}, but beyond the limit of --keep or --times-tokens this time"
    return f"{goal.name} again{found}"


def _change(before: dict[str, Any], after: dict[str, Any], name: str) -> str:
    if name == "p99_ms":
        return ""  # it changes more from run to run
    if name in _SHARES:
        return f"{(after[name] - before[name]) * 100:+.1f} points"
    return f"{(after[name] / before[name] - 1) * 100:+.0f} %" if before[name] else ""


def _letters() -> Sequence[str]:
    return string.ascii_uppercase + string.ascii_lowercase


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits or None)


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return "—"
    if name in _SHARES:
        return f"{value:.3f}" if name != "prefix" else f"{value:.2f}"
    if value >= 1e4:
        scaled, unit = (value / 1e6, "M") if value >= 1e6 else (value / 1e3, "k")
        return f"{scaled:.1f}{unit}" if scaled < 100 else f"{scaled:.0f}{unit}"
    return f"{value:.1f}" if value < 100 and value != int(value) else f"{value:.0f}"
