"""Draw the results of `benchmarks.peers` as bars: python -m benchmarks.chart peers.json peers.svg"""

from __future__ import annotations

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _BAR = 860, 270, 150, 62, 34, 22
_OURS, _OTHERS, _INK, _SOFT = "#c2410c", "#94a3b8", "#1e293b", "#64748b"


def draw(result: dict[str, Any]) -> str:
    """Return an SVG with one bar per side, as long as its turns per second."""
    rows, around = result["rows"], result["surroundings"]
    most = max(row["turns_per_s"] for row in rows)
    height = _TOP + _STEP * len(rows) + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" role="img">',
        "<title>Turns a second, redismem and others</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(20, 28, "Turns a second: one process, 64 sessions at once", 17, weight="bold"),
        _text(20, 47, "append a user message, read the context, append the answer; longer is better", 12, _SOFT),
    ]
    for number, row in enumerate(rows):
        parts += _bar(row, _TOP + _STEP * number, row["turns_per_s"] / most)
    where = f"{around['machine']} (load {around['load']}); {around['server'].partition(',')[0]}"
    parts.append(_text(20, height - 26, where, 11, _SOFT))
    parts.append(_text(20, height - 10, f"Python {around['python']}; {around['versions']}", 11, _SOFT))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(row: dict[str, Any], top: int, share: float) -> list[str]:
    is_ours = row["label"].startswith("redismem")
    length = max(1.0, share * (_WIDTH - _LEFT - _RIGHT))
    figure = f"{row['turns_per_s']:,.0f}"
    if row["ratio"] != 1:
        figure += f"  (lane x {row['ratio']:.3g})"
    middle = top + _BAR - 6
    return [
        _text(_LEFT - 10, middle, row["label"], 13, anchor="end", weight="bold" if is_ours else "normal"),
        f'<rect x="{_LEFT}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{_OURS if is_ours else _OTHERS}"/>',
        _text(_LEFT + length + 8, middle, figure, 12),
    ]


def _text(
    x: float, y: float, text: str, size: int, colour: str = _INK, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chart", description=__doc__)
    parser.add_argument("results", type=Path, help="what peers wrote with --json")
    parser.add_argument("drawing", type=Path, help="the SVG to write")
    asked = parser.parse_args()
    asked.drawing.write_text(draw(json.loads(asked.results.read_text())))


if __name__ == "__main__":
    main()
